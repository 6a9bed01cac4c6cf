"""HDF5 files of weights, written with a checksum of each array."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from toolkit.reading.hdf5 import CHECKSUM, Dataset
from toolkit.reading.hdf5_library import import_h5py
from toolkit.type_aliases import TensorLike


class _Disk:
    """File object that accepts all writes of HDF5 and records the first failure.

    HDF5 cannot close a file whose last blocks failed to write: it would keep the file
    open until the process exits, and later files would also fail.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write, unless a write has already failed."""
        if self.error is None:
            try:
                view = memoryview(data).cast("B")
                while len(view):
                    view = view[self._file.write(view) :]
            except BaseException as error:
                self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Resize the file."""
        if self.error is None:
            try:
                return self._file.truncate(size)
            except BaseException as error:
                self.error = error
        return size or 0

    def read(self, size: int = -1) -> bytes:
        """Read back written data."""
        return self._file.read(size)

    def readinto(self, data: Any) -> int:
        """Read back written data."""
        return self._file.readinto(data)  # type: ignore[attr-defined]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek to a byte."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the current byte position."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: writes are unbuffered."""


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block.

    If it were raised while HDF5 calls Python to write a block, it would become an HDF5
    error.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(handler):  # Python handles no signals in this thread
        yield
        return
    signals: list[Any] = []
    signal.signal(signal.SIGINT, lambda *call: signals.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            handler(*signals[0])


@contextmanager
def created(path: Path) -> Iterator[Any]:
    """Yield a new HDF5 file for writing; close it at the end, before an interrupt.

    Raises:
        OSError: a write failed.
    """
    h5py = import_h5py()

    with open(path, "x+b", buffering=0) as raw, _defer_interrupts():
        disk = _Disk(raw)
        with h5py.File(disk, "w") as file:
            yield file
        if disk.error is not None:
            raise disk.error


def write_groups(path: Path, groups: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Write group path -> (name attribute, arrays by key) as a new file."""
    with created(path) as file:
        for group_path, (name, arrays) in groups.items():
            group = file.create_group(group_path)
            group.attrs["name"] = name
            for key, array in arrays.items():
                write_array(group, key, array)


def write_array(group: Any, key: str, value: TensorLike) -> None:
    """Add an array or the value of a Variable to a group, with its checksum."""
    array = np.asarray(value)
    dataset = group.create_dataset(key, data=array)
    if array.dtype.name == "bfloat16":  # HDF5 has no such type
        dataset.attrs["dtype"] = "bfloat16"
    if not array.dtype.hasobject:
        written = Dataset(dataset.name.lstrip("/"), dataset)
        dataset.attrs[CHECKSUM] = np.uint32(written.checksum_of(array))
