"""Import of h5py, only in this module."""

from __future__ import annotations

from typing import Any

from toolkit.processes import set_processor_name


def import_h5py() -> Any:
    """Import h5py and return it."""
    set_processor_name()  # h5py gets it from `platform`
    import h5py

    return h5py
