"""Names that only say what to use instead."""

import pytest

import toolkit


def test_export_archive():
    with pytest.raises(NotImplementedError, match="Model.save"):
        toolkit.export.ExportArchive()
