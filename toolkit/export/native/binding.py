"""ctypes binding of a native library."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.backends.library import ABI, Status
from toolkit.definitions.records import record
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    OutOfRangeError,
    ToolkitError,
    UnsupportedError,
)
from toolkit.export.native.names import KINDS, SHARED
from toolkit.files.private import find_replaceable_path
from toolkit.type_aliases import Array

_ERRORS: dict[int, type[ToolkitError]] = {
    Status.BAD_BATCH: ArgumentError,
    Status.OUT_OF_RANGE: OutOfRangeError,
    Status.NO_THREADS: UnsupportedError,
    Status.UNSUPPORTED_PROCESSOR: UnsupportedError,
}


class MissingWeightsError(ModelFileError):
    """Error for a library without embedded weights that received none."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


_Count, _Tensors = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(_Tensor)
_Arrays = ctypes.POINTER(ctypes.c_void_p)
# Name -> return type, argument types.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "abi": (ctypes.c_uint32, ()),
    "inputs": (_Tensors, (_Count,)),
    "outputs": (_Tensors, (_Count,)),
    "batches": (ctypes.POINTER(ctypes.c_int64), (_Count,)),
    "state_count": (ctypes.c_int32, ()),
    "workspace_size": (ctypes.c_size_t, (ctypes.c_int64,)),
    "weights_size": (ctypes.c_size_t, ()),
    "weights_sha256": (ctypes.POINTER(ctypes.c_uint8), ()),
    "init": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    "run": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_int64, _Arrays, _Arrays)),
    "reset": (ctypes.c_int32, (ctypes.c_void_p,)),
    "threads": (ctypes.c_int32, (ctypes.c_int32, ctypes.c_int32)),
    "stop": (None, ()),
    "message": (ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int32)),
}
FUNCTIONS = tuple(_SIGNATURES)

# Path -> the identities of its files, to detect replacement.
_file_identities: dict[str, list[tuple[int, ...]]] = {}
_identities_lock = threading.Lock()


@record
class MappedWeights:
    """Memory-mapped file of weights.

    Attributes:
        memory: the mapped file.
        address: the address of the values.
    """

    memory: Array
    address: int


class Binding:
    """Loaded library and its functions.

    Args:
        file: the result of `resolve_library`.
        prefix: the prefix of the functions.

    Raises:
        ModelFileError: the file is not a native library, or has another version.
    """

    def __init__(self, file: Path, prefix: str) -> None:
        self._file = file
        try:
            library = ctypes.CDLL(_fresh_name(file))
        except OSError as error:
            raise ModelFileError(
                f"load_native: {str(file)!r}: expected a shared library for this "
                f"system; {error}"
            ) from error
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"{prefix}_{name}", None)
            if function is None:
                raise ModelFileError(
                    f"load_native: {str(file)!r} has no function {prefix}_{name}: it "
                    "is not a native library, or the prefix of its functions differs "
                    "from the name of the file. In this case pass `prefix`"
                )
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function
        if self.call("abi") != ABI:
            raise ModelFileError(
                f"load_native: {str(file)!r} has version {self.call('abi')} of the "
                f"interface, this package {ABI}; export the model again"
            )

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function by its name without the prefix."""
        return self._functions[name](*arguments)

    def check(self, status: int, workspace: Array | None = None) -> None:
        """Raise the error for a status code."""
        if status == Status.OK:
            return
        address = None if workspace is None else workspace.ctypes.data
        raw = self.call("message", address, status)
        text = f"{self._file.name}: {raw.decode('utf-8', 'replace') if raw else ''}"
        if status == Status.NO_WEIGHTS:
            raise MissingWeightsError(text)
        raise _ERRORS.get(status, ModelFileError)(text)

    def tensors(self, name: str) -> list[tuple[str, int, list[int]]]:
        """Return the name, dtype and shape of the inputs or outputs."""
        count = ctypes.c_int32()
        pointer = self.call(name, count)
        tensors = [pointer[i] for i in range(count.value)]
        return [
            (t.name.decode("utf-8", "replace"), t.dtype, t.shape[: t.rank])
            for t in tensors
        ]

    def batches(self) -> tuple[int, ...]:
        """Return the supported batch sizes."""
        count = ctypes.c_int32()
        sizes = self.call("batches", count)
        return tuple(sizes[: count.value])

    def map_weights(self, path: Path) -> MappedWeights:
        """Map a file of weights, after a check that it belongs to the library.

        Raises:
            MissingFileError, ModelFileError: the file is missing or has other weights.
        """
        file = resolve_trusted_file(path, "weights")
        with open(file, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = 8 + int.from_bytes(stream.read(8), "little")
            expected_size = self.call("weights_size")
            if size < 8 or size - start != expected_size:
                raise ModelFileError(
                    f"load_native: {str(file)!r} contains different weights from the "
                    f"export: expected {expected_size} bytes of values; received "
                    f"{max(0, size - start)}"
                )
            memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        values = np.frombuffer(memory, np.uint8)
        digest = bytes(self.call("weights_sha256")[:32])
        if hashlib.sha256(values[start:].data).digest() != digest:
            raise ModelFileError(
                f"load_native: {str(file)!r} contains different weights from the "
                "export: their SHA-256 differs"
            )
        return MappedWeights(values, values.ctypes.data + start)


def resolve_trusted_file(path: Path, label: str = "path") -> Path:
    """Return the resolved path of a file that no other user can replace."""
    file = Path(os.path.realpath(path))
    if not file.is_file():
        raise MissingFileError(f"load_native: {label}: no file {str(path)!r}")
    unsafe_path = find_replaceable_path(Path(os.path.abspath(path)))
    if unsafe_path is not None:
        raise ModelFileError(
            f"load_native: {label}: {str(unsafe_path)!r} is writable for other "
            "users, and its code runs with your rights; remove their write access, "
            "or copy the file to a private folder"
        )
    return file


def resolve_library(path: str | os.PathLike[str]) -> Path:
    """Return the file of a library whose path includes a folder."""
    text = os.fspath(path)
    if os.path.dirname(text) == "":
        raise ArgumentError(
            "load_native: path: expected a path with its folder, so that no other "
            f"library of this name is loaded, such as {os.path.join('.', text)!r}; "
            f"received {text!r}"
        )
    kind = KINDS.get(Path(text).suffix.lower(), SHARED)
    if kind != SHARED:
        raise ArgumentError(
            f"load_native: path: expected a shared library; received {text!r}, which "
            "a program must link; export the model to a .so file"
        )
    return resolve_trusted_file(Path(text))


def _fresh_name(file: Path) -> str:
    """Return a path under which the system loader has loaded no other file.

    For a path that it has loaded before, the loader returns the old library, even if
    the file was replaced.
    """
    status = file.stat()
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _identities_lock:
        identities = _file_identities.setdefault(str(file), [])
        if identity not in identities:
            identities.append(identity)
        return os.path.join(
            file.parent, *(["."] * identities.index(identity)), file.name
        )
