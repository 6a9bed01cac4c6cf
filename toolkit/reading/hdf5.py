"""HDF5 files, opened only when nothing in them is suspicious.

Links to other files, data in other files and views of other files are refused. Before
HDF5's library opens a file its structure is checked, for the library may crash on a
damaged one, or never return. Where the check cannot tell, a child process reads the
file first, with a limit of time; see `hdf5_probe`.
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
from toolkit.reading.budget import limited_load, spend
from toolkit.reading.clear import check_present, naming
from toolkit.reading.hdf5_library import h5py_module
from toolkit.reading.hdf5_probe import is_harmless
from toolkit.reading.hdf5_structure import Damage, Doubt, Structure

# Data that unpacks to more than this many times its size in the file is refused.
_MAX_RATIO = 1000
_SMALL = 1 << 20  # bytes that are always fine
_MAX_OBJECTS = 1_000_000
CHECKSUM = "crc32"  # the attribute of a dataset that we write
_FILTERS = {1, 2, 3, 4, 5, 6, 32_000}  # what comes with HDF5 and h5py: no plugins
_DAMAGES = (  # what h5py may raise for a damaged file
    *(OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError),
    *(OverflowError, MemoryError, RecursionError, NotImplementedError, SystemError),
)

Source = Path | io.BytesIO


@contextmanager
def open_datasets(
    source: Source, label: str | None = None
) -> Iterator[dict[str, Dataset]]:
    """The datasets of a file by their path, once nothing in it is suspicious.

    Args:
        source: a path, or the bytes of the file.
        label: what messages call the file; its path by default.

    Raises:
        MissingFileError: if there is no such file.
        ModelFileError: if it is not HDF5, is damaged, or points out of itself.
    """
    with open_file(source, label) as (_, datasets):
        yield datasets


@contextmanager
def open_file(
    source: Source, label: str | None = None
) -> Iterator[tuple[Any, dict[str, Dataset]]]:
    """The open file, and its datasets; see `open_datasets`."""
    label = label or str(source)
    with ExitStack() as stack:
        if isinstance(source, Path):
            check_present(source)
            stack.enter_context(limited_load(source))
            stack.enter_context(naming(label))
        file = stack.enter_context(closing(opened(source, label)))
        with named(label):
            datasets = dict(_walk(file, label))
        yield file, datasets


@contextmanager
def named(label: str) -> Iterator[None]:
    """Whatever h5py raises for a damaged file is an error of ours that names it."""
    try:
        yield
    except ModelFileError as error:
        error.args = (f"{label!r}: {error}",)
        raise
    except ToolkitError:
        raise
    except _DAMAGES as error:
        raise ModelFileError(
            f"{label!r}: expected an HDF5 file; it is damaged or something else "
            f"({error})"
        ) from None


def opened(source: Source, label: str) -> Any:
    """The open file, whose structure has been checked; not its links."""
    h5py = h5py_module()

    with named(label):
        _check_structure(source)
        return h5py.File(source, "r")


def _check_structure(source: Source) -> None:
    try:
        if isinstance(source, Path):
            with open(source, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                Structure(_reader(file), size).check()
        else:
            view = source.getbuffer()
            Structure(lambda a, n: bytes(view[a : a + n]), len(view)).check()
    except Damage as error:
        raise ModelFileError(
            f"expected an HDF5 file; it is damaged or something else ({error})"
        ) from None
    except Doubt as doubt:
        if not is_harmless(source):
            raise ModelFileError(
                "expected an HDF5 file; it is damaged, for reading it does not end, "
                f"takes too much memory or fails ({doubt})"
            ) from None


def _reader(file: Any) -> Callable[[int, int], bytes]:
    def read(address: int, size: int) -> bytes:
        file.seek(address)
        return file.read(size)

    return read


def _walk(file: Any, label: str) -> Iterator[tuple[str, Dataset]]:
    """All datasets; every link must be a plain one, and lead to each object once."""
    h5py = h5py_module()

    seen: set[int] = set()
    stack = [("", file)]
    while stack:
        prefix, group = stack.pop()
        for key in group:
            path = prefix + key
            item = linked(group, key, path)
            address = h5py.h5o.get_info(item.id).addr
            if address in seen or len(seen) > _MAX_OBJECTS:
                raise ModelFileError(f"{path} is an object met before: refused")
            seen.add(address)
            if isinstance(item, h5py.Group):
                stack.append((path + "/", item))
            elif isinstance(item, h5py.Dataset):
                yield path, Dataset(path, item, label)


def linked(group: Any, key: str, path: str) -> Any:
    """What a name in a group stands for, which must be in this file."""
    h5py = h5py_module()

    link = group.get(key, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise ModelFileError(
            f"{path} is a link ({type(link).__name__}), maybe to another file: refused"
        )
    return group[key]


def check_dataset(path: str, dataset: Any) -> None:
    """Refuse a dataset that takes its data from elsewhere, or needs a plugin."""
    if dataset.is_virtual or dataset.external:
        kind = "virtual" if dataset.is_virtual else "external"
        raise ModelFileError(
            f"{path} is {kind}: it takes its data from another file: refused"
        )
    plan = dataset.id.get_create_plist()
    for number in range(plan.get_nfilters()):
        kind = plan.get_filter(number)[0]
        if kind not in _FILTERS:
            raise ModelFileError(
                f"{path} is packed by filter {kind}, which only a plugin unpacks: "
                "refused"
            )


class Dataset:
    """An array in a file, of which only the shape and dtype have been read so far."""

    def __init__(self, path: str, dataset: Any, label: str = "") -> None:
        check_dataset(path, dataset)
        self.path = path
        self.shape: tuple[int, ...] = tuple(dataset.shape or ())
        self.nbytes: int = int(dataset.nbytes)
        self._dataset, self._label = dataset, label

    @property
    def dtype(self) -> str:
        """The name of the dtype that `read` returns, if it is one of numbers."""
        with named(self._label):
            named_type = self._dataset.attrs.get("dtype")
            is_wide = isinstance(named_type, str) and named_type == "bfloat16"
            return "bfloat16" if is_wide else str(self._dataset.dtype)

    @property
    def owner(self) -> str | None:
        """The name of the object that the array belongs to, if the file says it."""
        with named(self._label):
            name = self._dataset.parent.attrs.get("name")
        return name if isinstance(name, str) else None

    @property
    def checksum(self) -> int | None:
        """That of its values, and of what they are called; None: the file has none."""
        with named(self._label):
            found = self._dataset.attrs.get(CHECKSUM)
        return int(found) if isinstance(found, np.integer) else None

    def checksum_of(self, array: np.ndarray[Any, Any]) -> int:
        """The checksum that goes with these values."""
        kind = "bfloat16" if self.dtype == "bfloat16" else self._dataset.dtype.name
        about = repr([self.path, self.owner, kind, self.shape]).encode()
        # As bytes: there is no buffer of a bfloat16, and no view of a scalar.
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return zlib.crc32(values.data, zlib.crc32(about))

    def check(self) -> None:
        """Raise if it declares far more than the file holds."""
        with named(self._label):
            stored = self._dataset.id.get_storage_size()
            if self.nbytes > max(_SMALL, _MAX_RATIO * stored):
                raise ModelFileError(
                    f"{self.path} declares {self.nbytes} bytes, of which the file "
                    f"holds {stored}: refused"
                )

    def read(self) -> np.ndarray[Any, Any]:
        """The array."""
        self.check()
        dtype = self.dtype
        is_wide = dtype == "bfloat16" and self._dataset.dtype.kind == "V"
        if self._dataset.dtype.kind not in "biuf" and not is_wide:
            raise ModelFileError(
                f"{self.path}: expected numbers; found the type {dtype}"
            )
        spend(self.nbytes + chunk_bytes(self._dataset), f"the array {self.path}")
        with named(self._label):
            array = np.asarray(self._dataset[()])
        if self.checksum not in (None, self.checksum_of(array)):
            raise ModelFileError(
                f"{self.path}: its values are not those that were saved: the file is "
                f"damaged, or was changed by a program that kept the attribute "
                f"{CHECKSUM!r}, without which they can be loaded"
            )
        if dtype == "bfloat16" and array.dtype.itemsize == 2:
            return array.view(dtypes.numpy_dtype("bfloat16"))
        return array


def is_text(dtype: Any) -> bool:
    """Whether a dtype of objects stands for strings, or for arrays of any length."""
    h5py = h5py_module()

    kinds = h5py.check_string_dtype(dtype), h5py.check_vlen_dtype(dtype)
    return any(kind is not None for kind in kinds)


def chunk_bytes(dataset: Any) -> int:
    """What a chunk takes, which is unpacked as a whole; 0 where there are none."""
    if not dataset.chunks:
        return 0
    size = dataset.dtype.itemsize
    for extent in dataset.chunks:
        size *= int(extent)
    return int(size)


def check_all(datasets: dict[str, Dataset]) -> None:
    """Raise if one of them declares far more than the file holds."""
    for dataset in datasets.values():
        dataset.check()


def contents_checksum(datasets: dict[str, Dataset]) -> str:
    """One that differs if any dataset does; the values are not read."""
    sums = sorted((path, dataset.checksum) for path, dataset in datasets.items())
    return checksum_text(repr(sums).encode())


def checksum_text(data: bytes) -> str:
    """The checksum of bytes, as lists of files hold it."""
    return f"{CHECKSUM}:{zlib.crc32(data):08x}"
