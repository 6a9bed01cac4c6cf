"""HDF5 files of weights, written with a checksum of each array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from toolkit.reading.hdf5 import CHECKSUM, Dataset


def write_groups(path: Path, groups: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Write group path -> (name attribute, arrays by key) as a new file."""
    import h5py

    with h5py.File(path, "x") as file:
        for group_path, (name, arrays) in groups.items():
            group = file.create_group(group_path)
            group.attrs["name"] = name
            for key, array in arrays.items():
                write_array(group, key, array)


def write_array(group: Any, key: str, array: np.ndarray[Any, Any]) -> None:
    """Add an array to a group of a file, with its checksum."""
    dataset = group.create_dataset(key, data=array)
    if array.dtype.name == "bfloat16":  # HDF5 has no such type
        dataset.attrs["dtype"] = "bfloat16"
    if not array.dtype.hasobject:
        written = Dataset(dataset.name.lstrip("/"), dataset)
        dataset.attrs[CHECKSUM] = np.uint32(written.checksum_of(array))
