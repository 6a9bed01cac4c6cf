"""h5py, which is imported in this place only."""

from __future__ import annotations

from typing import Any

from toolkit.processes import know_processor


def h5py_module() -> Any:
    """Import h5py and return it."""
    know_processor()  # h5py asks `platform` for it
    import h5py

    return h5py
