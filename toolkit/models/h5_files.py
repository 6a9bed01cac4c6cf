"""HDF5 files: written in one step, and read only after their structure is checked."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import (
    MissingFileError,
    ModelFileError,
    ToolkitError,
    UnwritableFileError,
)

# Data that unpacks to more than this many times its size in the file is refused.
_MAX_RATIO = 1000
_SMALL = 1 << 20  # bytes that are always fine
_MAX_OBJECTS = 1_000_000


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a new file beside `path`, then move it there, flushed to disk.

    If anything fails, an older file stays as it was.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        _flush(temporary)
        os.replace(temporary, target)
        if os.name == "posix":
            _flush(target.parent)
    except OSError as error:
        raise UnwritableFileError(f"cannot write {str(path)!r}: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_groups(path: Path, groups: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Write group path -> (name attribute, arrays by key) as a new file."""
    import h5py

    with h5py.File(path, "x") as file:
        for group_path, (name, arrays) in groups.items():
            group = file.create_group(group_path)
            group.attrs["name"] = name
            for key, array in arrays.items():
                dataset = group.create_dataset(key, data=array)
                if array.dtype.name == "bfloat16":  # HDF5 has no such type
                    dataset.attrs["dtype"] = "bfloat16"


@contextmanager
def open_datasets(
    source: Path | io.BytesIO, label: str | None = None
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
    source: Path | io.BytesIO, label: str | None = None
) -> Iterator[tuple[Any, dict[str, Dataset]]]:
    """The open file, and its datasets; see `open_datasets`."""
    import h5py

    label = label or str(source)
    if isinstance(source, Path) and not source.is_file():
        raise MissingFileError(f"there is no file {label!r}")
    try:
        with h5py.File(source, "r") as file:
            yield file, dict(_walk(file, h5py))
    except ModelFileError as error:
        error.args = (f"{label!r}: {error}",)
        raise
    except ToolkitError:  # of a model that is made meanwhile, not of the file
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise ModelFileError(
            f"{label!r}: expected an HDF5 file; it is damaged or something else "
            f"({error})"
        ) from error


def _walk(file: Any, h5py: Any) -> Iterator[tuple[str, Dataset]]:
    """All datasets; every link must be a plain one, and lead to each object once."""
    seen: set[int] = set()
    stack = [("", file)]
    while stack:
        prefix, group = stack.pop()
        for key in group:
            path = prefix + key
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                kind = type(group.get(key, getlink=True)).__name__
                raise ModelFileError(
                    f"{path} is a link ({kind}), maybe to another file: refused"
                )
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen or len(seen) > _MAX_OBJECTS:
                raise ModelFileError(f"{path} is an object met before: refused")
            seen.add(address)
            if isinstance(item, h5py.Group):
                stack.append((path + "/", item))
            elif isinstance(item, h5py.Dataset):
                yield path, Dataset(path, item)


class Dataset:
    """An array in a file, of which only the shape and dtype have been read so far."""

    def __init__(self, path: str, dataset: Any) -> None:
        if dataset.is_virtual or dataset.external:
            kind = "virtual" if dataset.is_virtual else "external"
            raise ModelFileError(
                f"{path} is {kind}: it takes its data from another file: refused"
            )
        self.path = path
        self.shape: tuple[int, ...] = tuple(dataset.shape or ())
        self.nbytes = int(dataset.nbytes)
        self._dataset = dataset

    @property
    def dtype(self) -> str:
        """The name of the dtype that `read` returns, if it is one of numbers."""
        named = self._dataset.attrs.get("dtype")
        return "bfloat16" if named == "bfloat16" else str(self._dataset.dtype)

    @property
    def owner(self) -> str | None:
        """The name of the object that the array belongs to, if the file says it."""
        name = self._dataset.parent.attrs.get("name")
        return name if isinstance(name, str) else None

    def check(self) -> None:
        """Raise if it declares far more than the file holds."""
        stored = self._dataset.id.get_storage_size()
        if self.nbytes > max(_SMALL, _MAX_RATIO * stored):
            raise ModelFileError(
                f"{self.path} declares {self.nbytes} bytes, of which the file holds "
                f"{stored}: refused"
            )

    def read(self) -> np.ndarray[Any, Any]:
        """The array."""
        self.check()
        dataset = self._dataset
        array = np.asarray(dataset[()])
        if dataset.attrs.get("dtype") == "bfloat16" and array.dtype.itemsize == 2:
            return array.view(dtypes.numpy_dtype("bfloat16"))
        if array.dtype.kind not in "biuf":
            raise ModelFileError(
                f"{self.path}: expected numbers; found the type {array.dtype}"
            )
        return array


def total_bytes(datasets: dict[str, Dataset]) -> int:
    """What all datasets together need in memory; each is checked to be in the file."""
    for dataset in datasets.values():
        dataset.check()
    return sum(dataset.nbytes for dataset in datasets.values())
