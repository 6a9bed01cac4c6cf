"""Writer of `.npz` files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.files.staging import replace_file


def save_npz(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name to a `.npz` file atomically.

    Dtypes that NumPy lacks become float32, which represents all their values.
    """

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "x") as archive:
            for name, array in arrays.items():
                if array.dtype.isbuiltin == 2:  # not a NumPy dtype
                    array = array.astype(np.float32)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)

    replace_file(path, write)
