"""Sources for files of arrays: npz, npy, HDF5 and image folders."""

from __future__ import annotations

import math
import os
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from toolkit.data.dataset import Dataset, source
from toolkit.data.rows import ArrayRows, Indices, Rows, as_index_array
from toolkit.data.sources import FromTensorSlices
from toolkit.data.streams import PassContext
from toolkit.data.structure import (
    TensorSpec,
    leaves,
    map_leaves,
)
from toolkit.errors import DatasetError, MissingDataError, ShapeError, UnsupportedError
from toolkit.reading.decompression import decompression_limit, size_error
from toolkit.reading.file_errors import check_regular_file
from toolkit.reading.hdf5 import (
    check_dataset,
    chunk_bytes,
    convert_h5py_errors,
    follow_link,
    is_text_dtype,
    open_checked,
)
from toolkit.reading.images import open_image
from toolkit.reading.npy import map_npy, open_npz
from toolkit.type_aliases import Array

Path_ = str | os.PathLike[str]
CORRUPT_FILE_ERRORS = (  # errors for a corrupt or missing file
    *(OSError, EOFError, ValueError, KeyError, zlib.error),
    *(BadZipFile, struct.error, NotImplementedError),
)
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


@source("from_npz")
class FromNpz(FromTensorSlices):
    """The rows of the arrays of an .npz file, as dicts; the arrays are loaded at once.

    Args:
        path: the path of the file.
        keys: the names of the arrays. One name gives rows of that array only; None
            means all.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        ...     np.savez(file.name, x=np.arange(3))
        ...     [int(row["x"]) for row in Dataset.from_npz(file.name)]
        [0, 1, 2]
    """

    def __init__(self, path: Path_, keys: Any = None) -> None:
        try:
            with open_npz(Path(path)) as stored:
                selected = select_arrays(stored, list(stored) if keys is None else keys)
                arrays = map_leaves(lambda array: array.read(), selected)
        except CORRUPT_FILE_ERRORS as error:
            raise _corrupt_file_error(path, error) from error
        super().__init__(arrays)


@source("from_npy")
class FromNpy(FromTensorSlices):
    """The rows of memory-mapped arrays in .npy files.

    Args:
        paths: a path, or a structure of tuples and dicts of paths.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from toolkit.data import Dataset
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.arange(3))
        ...     [int(x) for x in Dataset.from_npy(file.name)]
        [0, 1, 2]
    """

    def __init__(self, paths: Any) -> None:
        super().__init__(map_leaves(_mapped, paths))


def _mapped(path: Path_) -> Array:
    check_regular_file(path, DatasetError, MissingDataError)
    try:
        return np.asarray(map_npy(Path(path)))
    except CORRUPT_FILE_ERRORS as error:
        raise _corrupt_file_error(path, error) from error


def _corrupt_file_error(path: Path_, error: Exception) -> DatasetError:
    """Return the error for a corrupt file, with the offset of a possible truncation."""
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    end = f" (the file ends at byte {size:,})" if size else ""
    reason = str(error).removeprefix(f"{os.fspath(path)!r}: ")
    return DatasetError(f"{os.fspath(path)}: {reason}{end}")


def select_arrays(arrays: Any, keys: Any) -> Any:
    """Return the selected arrays: an array, or a dict or tuple for several."""
    if isinstance(keys, str):
        return arrays[keys]
    if isinstance(keys, tuple):
        return tuple(arrays[key] for key in keys)
    return {key: arrays[key] for key in keys}


@source("from_hdf5")
class FromHDF5(Dataset):
    """The rows of HDF5 data sets, read in whole chunks with a small cache.

    Args:
        path: the path of the file.
        keys: a data set name, or a tuple or list of them (for elements that are tuples
            or dicts). None selects all data sets at the top level.

    Raises:
        DatasetError: the file is corrupt or truncated, or has no such data set.

    Example:
        >>> import tempfile
        >>> import h5py
        >>> from toolkit.data import Dataset
        >>> with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        ...     with h5py.File(file.name, "w") as h5:
        ...         h5["x"] = [1, 2, 3]
        ...     [int(x) for x in Dataset.from_hdf5(file.name, "x")]
        [1, 2, 3]
    """

    def __init__(self, path: Path_, keys: Any = None) -> None:
        super().__init__()
        self._path = os.fspath(path)
        check_regular_file(path, DatasetError, MissingDataError)
        try:
            self._file = open_checked(Path(path), self._path)
            with convert_h5py_errors(self._path):
                names = list(self._file) if keys is None else keys
                sets = select_arrays(_LocalDatasets(self._file), names)
                budget = decompression_limit(path)
                self._sets = map_leaves(lambda x: _ChunkedArray(x, budget), sets)
        except CORRUPT_FILE_ERRORS as error:
            raise _corrupt_file_error(path, error) from error
        lengths = {len(array) for array in leaves(self._sets)}
        if len(lengths) != 1:
            raise ShapeError(
                f"{self._path}: expected data sets with the same number of rows; "
                f"received {sorted(lengths)}"
            )
        self._length = lengths.pop()

    def _detail(self) -> str:
        return self._path

    def _cardinality(self) -> int:
        return self._length

    def _rows(self, context: PassContext) -> Rows:
        return _HDF5Rows(self._sets, self._length, self._path)

    def _spec(self) -> Any:
        return map_leaves(lambda a: TensorSpec(a.shape[1:], a.dtype), self._sets)


class _LocalDatasets:
    """HDF5 data sets of a file by name, without links to other files."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getitem__(self, name: str) -> Any:
        item, path = self._file, ""
        for component in str(name).strip("/").split("/"):
            if not hasattr(item, "keys") or component not in item:
                raise KeyError(f"data set {name!r} is missing")
            path = f"{path}/{component}".lstrip("/")
            item = follow_link(item, component, path)
        if not hasattr(item, "chunks") or not item.shape:
            raise KeyError(f"{name!r} is not a data set of rows")
        check_dataset(path, item)
        if item.dtype.hasobject and not is_text_dtype(item.dtype):
            raise KeyError(f"{name!r} contains neither numbers nor text")
        return item


class _ChunkedArray:
    """HDF5 data set that is read in segments of whole chunks.

    Args:
        dataset: the h5py data set.
        budget: the maximum size of a segment, and of the cache, in bytes.
    """

    max_segments = 16  # segments

    def __init__(self, dataset: Any, budget: int) -> None:
        self._dataset = dataset
        self.shape, self.dtype = dataset.shape, dataset.dtype
        rows = dataset.chunks[0] if dataset.chunks else 0
        size = rows or max(1, (1 << 20) // max(1, _row_bytes(dataset)))
        self._stretch = size
        nbytes = max(1, size * _row_bytes(dataset), chunk_bytes(dataset))
        if nbytes > budget:
            raise size_error(f"a chunk of {dataset.name}", budget)
        # Not a method: a reference cycle would keep the file open.
        self._read = lru_cache(max(1, min(self.max_segments, budget // nbytes)))(
            lambda number: _read_rows(dataset, number * size, (number + 1) * size)
        )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, number: int) -> Any:
        stretch, offset = divmod(number, self._stretch)
        return self._read(stretch)[offset]

    def rows(self, numbers: Indices) -> Array:
        """Return several rows; each segment is read once."""
        if isinstance(numbers, range) and numbers.step == 1:
            return _read_rows(self._dataset, numbers.start, numbers.stop)
        indices = as_index_array(numbers)
        out = np.empty((len(indices), *self.shape[1:]), self.dtype)
        stretches = indices // self._stretch
        for stretch in np.unique(stretches):
            positions = np.flatnonzero(stretches == stretch)
            out[positions] = self._read(int(stretch))[
                indices[positions] % self._stretch
            ]
        return out


def _row_bytes(dataset: Any) -> int:
    return math.prod(map(int, dataset.shape[1:])) * int(dataset.dtype.itemsize)


def _read_rows(dataset: Any, start: int, stop: int) -> Array:
    """Read consecutive rows from the file."""
    try:
        return np.asarray(dataset[start:stop])
    except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise DatasetError(
            f"{dataset.file.filename}: {_approximate_offset(dataset, start)}"
            f"{dataset.name}, row {start:,}: {error}"
        ) from error


def _approximate_offset(dataset: Any, row: int) -> str:
    """Return the approximate offset of a row in the file, if available."""
    try:
        return f"byte {_row_offset(dataset, row):,}, "
    except (OSError, RuntimeError, ValueError, TypeError):
        return ""


def _row_offset(dataset: Any, row: int) -> int:
    """Return the offset of a row or of its chunk."""
    if not dataset.chunks:
        return (dataset.id.get_offset() or 0) + row * _row_bytes(dataset)
    chunk_start = (
        row // dataset.chunks[0] * dataset.chunks[0],
        *[0] * (dataset.ndim - 1),
    )
    return int(dataset.id.get_chunk_info_by_coord(chunk_start).byte_offset or 0)


class _HDF5Rows(Rows):
    def __init__(self, sets: Any, length: int, path: str) -> None:
        super().__init__(length)
        self._sets, self._path = sets, path

    def __getitem__(self, number: int) -> Any:
        return map_leaves(lambda array: array[number], self._sets)

    def gather(self, numbers: Indices) -> Any:
        stacked = ArrayRows(self.stacked(numbers), len(numbers))
        return list(stacked.iterate(0))

    def stacked(self, numbers: Indices) -> Any:
        return map_leaves(lambda array: array.rows(numbers), self._sets)

    def origin(self, number: int) -> str:
        return f"{self._path}, row {number:,}"


@source("from_image_folder")
class FromImageFolder(Dataset):
    """(pixels, label) of the images in a folder with one subfolder for each class.

    Pixels are uint8 with shape (height, width, channels). Needs Pillow.

    Args:
        directory: the folder. The classes are its subfolders in alphabetical order.
        image_size: the (height, width) to resize images to; None does not resize.
        color_mode: "rgb", "rgba" or "grayscale".

    Raises:
        DatasetError: the folder has no images, or an image cannot be read.
    """

    def __init__(
        self,
        directory: Path_,
        image_size: tuple[int, int] | None = None,
        color_mode: str = "rgb",
    ) -> None:
        super().__init__()
        self._size = image_size
        self._mode = {"rgb": "RGB", "rgba": "RGBA", "grayscale": "L"}[color_mode]
        root = Path(directory)
        folders = sorted(p for p in root.iterdir() if p.is_dir())
        self.class_names: list[str] = [folder.name for folder in folders]
        self._images = [
            (str(path), label)
            for label, folder in enumerate(folders)
            for path in sorted(folder.rglob("*"))
            if path.suffix.lower() in IMAGES
        ]
        if not self._images:
            raise DatasetError(f"{root}: expected folders of images; received none")

    def _cardinality(self) -> int:
        return len(self._images)

    def _rows(self, context: PassContext) -> Rows:
        return _ImageRows(self._images, self._size, self._mode)


class _ImageRows(Rows):
    def __init__(
        self, images: list[tuple[str, int]], size: tuple[int, int] | None, mode: str
    ) -> None:
        super().__init__(len(images))
        self._images, self._size, self._mode = images, size, mode

    def __getitem__(self, number: int) -> Any:
        path, label = self._images[number]
        return read_image(path, self._size, self._mode), np.int64(label)

    def origin(self, number: int) -> str:
        return self._images[number][0]


def read_image(path: str, size: tuple[int, int] | None, mode: str) -> Array:
    """Return the pixels of an image, with a channel axis."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            "from_image_folder: expected Pillow (pip install pillow)"
        ) from error
    try:
        with open_image(path, path) as file:
            image = file.convert(mode)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels
