"""Safe reader of HDF5 files.

It refuses external links, external data and virtual datasets. A check of the structure
precedes HDF5's library, which can crash or hang on a corrupt file. If the check is
inconclusive, a child process reads the file first, with a time limit; see `hdf5_probe`.

The check alone would refuse intact files in newer formats, such as `libver="latest"`.
The child alone accepts some corrupt files, and it has no limits on Windows. Each file
that Keras writes would also start a process and need a second read.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import ModelFileError, ToolkitError
from toolkit.reading.budget import load_within_budget, spend
from toolkit.reading.byte_ranges import FileRange
from toolkit.reading.file_errors import add_path_to_errors, check_present
from toolkit.reading.hdf5_library import import_h5py
from toolkit.reading.hdf5_probe import is_safe_to_read
from toolkit.reading.hdf5_structure import CorruptFile, Structure, UnverifiableFile
from toolkit.type_aliases import Array

# Maximum compression ratio of a dataset.
_MAX_RATIO = 1000
_ALWAYS_ALLOWED_SIZE = 1 << 20  # bytes that are always allowed
_MAX_OBJECTS = 1_000_000
CHECKSUM = "crc32"  # attribute of a dataset that this package writes
_FILTERS = {1, 2, 3, 4, 5, 6, 32_000}  # filters of HDF5 and h5py: no plugins
_CORRUPT_FILE_ERRORS = (  # h5py errors for a corrupt file
    *(OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError),
    *(OverflowError, MemoryError, RecursionError, NotImplementedError, SystemError),
)

Source = Path | io.BytesIO | FileRange


@contextmanager
def open_datasets(
    source: Source, label: str | None = None
) -> Iterator[dict[str, Dataset]]:
    """Return a context with the datasets of a checked file, by path.

    Args:
        source: a path, the bytes of the file, or its range in an archive.
        label: the name of the file in messages; its path by default.

    Raises:
        MissingFileError: the file does not exist.
        ModelFileError: the file is not HDF5, is corrupt, or refers to other files.
    """
    with open_file(source, label) as (_, datasets):
        yield datasets


@contextmanager
def open_file(
    source: Source, label: str | None = None
) -> Iterator[tuple[Any, dict[str, Dataset]]]:
    """Return a context with the open file and its datasets; see `open_datasets`."""
    label = label or str(source)
    with ExitStack() as stack:
        if isinstance(source, Path):
            check_present(source)
            stack.enter_context(load_within_budget(source))
            stack.enter_context(add_path_to_errors(label))
        file = stack.enter_context(closing(open_checked(source, label)))
        with convert_h5py_errors(label):
            datasets = dict(_find_datasets(file, label))
        yield file, datasets


@contextmanager
def convert_h5py_errors(label: str) -> Iterator[None]:
    """Return a context that converts h5py errors to errors with the file's name."""
    try:
        yield
    except ModelFileError as error:
        error.args = (f"{label!r}: {error}",)
        raise
    except ToolkitError:
        raise
    except _CORRUPT_FILE_ERRORS as error:
        raise ModelFileError(
            f"{label!r}: expected an HDF5 file; it is corrupt or has another format "
            f"({error})"
        ) from None


def open_checked(source: Source, label: str) -> Any:
    """Return a context with the open file; only its structure is checked."""
    h5py = import_h5py()

    with convert_h5py_errors(label):
        _check_structure(source)
        return h5py.File(source, "r")


def _check_structure(source: Source) -> None:
    try:
        if isinstance(source, Path):
            with open(source, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                Structure(_make_reader(file), size).check()
        elif isinstance(source, FileRange):
            Structure(_make_reader(source), source.nbytes).check()
        else:
            view = source.getbuffer()
            Structure(lambda a, n: bytes(view[a : a + n]), len(view)).check()
    except CorruptFile as error:
        raise ModelFileError(
            f"expected an HDF5 file; it is corrupt or has another format ({error})"
        ) from None
    except UnverifiableFile as reason:
        if isinstance(source, FileRange):
            source.seek(0)
            source = io.BytesIO(source.read())
        if not is_safe_to_read(source):
            raise ModelFileError(
                "expected an HDF5 file; it is corrupt, because the read does not "
                f"end, needs too much memory or fails ({reason})"
            ) from None


def _make_reader(file: Any) -> Callable[[int, int], bytes]:
    def read(address: int, size: int) -> bytes:
        file.seek(address)
        return file.read(size)

    return read


def _find_datasets(file: Any, label: str) -> Iterator[tuple[str, Dataset]]:
    """Return all datasets; links must be local, and unique for each object."""
    h5py = import_h5py()

    visited: set[int] = set()
    stack = [("", file)]
    while stack:
        prefix, group = stack.pop()
        for key in group:
            path = prefix + key
            item = follow_link(group, key, path)
            address = h5py.h5o.get_info(item.id).addr
            if address in visited or len(visited) > _MAX_OBJECTS:
                raise ModelFileError(f"{path} is a second path of an object")
            visited.add(address)
            if isinstance(item, h5py.Group):
                stack.append((path + "/", item))
            elif isinstance(item, h5py.Dataset):
                yield path, Dataset(path, item, label)


def follow_link(group: Any, key: str, path: str) -> Any:
    """Return the target of a name in a group, which must be in this file."""
    h5py = import_h5py()

    link = group.get(key, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise ModelFileError(
            f"{path} is a link ({type(link).__name__}), which can refer to another file"
        )
    return group[key]


def check_dataset(path: str, dataset: Any) -> None:
    """Raise an error for a dataset with external data, or that needs a plugin."""
    if dataset.is_virtual or dataset.external:
        kind = "virtual" if dataset.is_virtual else "external"
        raise ModelFileError(f"{path} is {kind}: its data is in another file")
    plan = dataset.id.get_create_plist()
    for number in range(plan.get_nfilters()):
        kind = plan.get_filter(number)[0]
        if kind not in _FILTERS:
            raise ModelFileError(
                f"{path} is packed by filter {kind}, which needs a plugin"
            )


class Dataset:
    """Array in a file; only the shape and dtype are in memory."""

    def __init__(self, path: str, dataset: Any, label: str = "") -> None:
        check_dataset(path, dataset)
        self.path = path
        self.shape: tuple[int, ...] = tuple(dataset.shape or ())
        self.nbytes: int = int(dataset.nbytes)
        self._dataset, self._label = dataset, label

    @property
    def dtype(self) -> str:
        """Return the dtype name of the result of `read`, if it is numeric."""
        with convert_h5py_errors(self._label):
            named_type = self._dataset.attrs.get("dtype")
            is_bfloat16 = isinstance(named_type, str) and named_type == "bfloat16"
            return "bfloat16" if is_bfloat16 else str(self._dataset.dtype)

    @property
    def owner(self) -> str | None:
        """Return the name of the object that owns the array, if the file has it."""
        with convert_h5py_errors(self._label):
            name = self._dataset.parent.attrs.get("name")
        return name if isinstance(name, str) else None

    @property
    def checksum(self) -> int | None:
        """Return the stored checksum of its values and name, or None."""
        with convert_h5py_errors(self._label):
            checksum = self._dataset.attrs.get(CHECKSUM)
        return int(checksum) if isinstance(checksum, np.integer) else None

    def checksum_of(self, array: Array) -> int:
        """Return the checksum for these values."""
        kind = "bfloat16" if self.dtype == "bfloat16" else self._dataset.dtype.name
        description = repr([self.path, self.owner, kind, self.shape]).encode()
        # As bytes, because bfloat16 has no buffer interface, and a scalar has no view.
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return zlib.crc32(values.data, zlib.crc32(description))

    def check(self) -> None:
        """Raise an error if it declares far more data than the file contains."""
        with convert_h5py_errors(self._label):
            stored = self._dataset.id.get_storage_size()
            if self.nbytes > max(_ALWAYS_ALLOWED_SIZE, _MAX_RATIO * stored):
                raise ModelFileError(
                    f"{self.path} declares {self.nbytes} bytes, but the file "
                    f"contains {stored}"
                )

    def read(self) -> Array:
        """Return the array."""
        self.check()
        dtype = self.dtype
        is_bfloat16 = dtype == "bfloat16" and self._dataset.dtype.kind == "V"
        if self._dataset.dtype.kind not in "biuf" and not is_bfloat16:
            raise ModelFileError(
                f"{self.path}: expected numbers; received the type {dtype}"
            )
        spend(self.nbytes + chunk_bytes(self._dataset), f"the array {self.path}")
        with convert_h5py_errors(self._label):
            array = np.asarray(self._dataset[()])
        if self.checksum not in (None, self.checksum_of(array)):
            raise ModelFileError(
                f"{self.path}: its values are not those that were saved: the file is "
                "corrupt, or another program changed it and kept the attribute "
                f"{CHECKSUM!r}. To load the values nevertheless, remove this "
                "attribute"
            )
        if dtype == "bfloat16" and array.dtype.itemsize == 2:
            return array.view(dtypes.numpy_dtype("bfloat16"))
        return array


def is_text_dtype(dtype: object) -> bool:
    """Return whether an object dtype means strings, not arrays of variable length."""
    h5py = import_h5py()

    kinds = h5py.check_string_dtype(dtype), h5py.check_vlen_dtype(dtype)
    return any(kind is not None for kind in kinds)


def chunk_bytes(dataset: Any) -> int:
    """Return the size of a chunk, which is decompressed at once; 0 without chunks."""
    if not dataset.chunks:
        return 0
    size = dataset.dtype.itemsize
    for extent in dataset.chunks:
        size *= int(extent)
    return int(size)


def check_datasets(datasets: dict[str, Dataset]) -> None:
    """Raise an error if a dataset declares far more data than the file contains."""
    for dataset in datasets.values():
        dataset.check()


def contents_checksum(datasets: dict[str, Dataset]) -> str:
    """Return a checksum that differs if any dataset differs; values are not read."""
    sums = sorted((path, dataset.checksum) for path, dataset in datasets.items())
    return format_checksum(repr(sums).encode())


def format_checksum(data: bytes) -> str:
    """Return the checksum of bytes, in the format of manifests."""
    return f"{CHECKSUM}:{zlib.crc32(data):08x}"
