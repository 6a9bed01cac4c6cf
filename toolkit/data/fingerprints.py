"""Fingerprints of datasets: a hash of their stages and arguments."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset
from toolkit.data.randomness import DrawnSeed
from toolkit.data.structure import TensorSpec

# Attributes that are runtime state, or that follow from the arguments.
RUNTIME_ATTRIBUTES = {
    "_before",
    "_file",
    "_cached",
    "_parents",
    "_passes",
    "_sets",
    "_stored",
}
RUNTIME_ATTRIBUTES |= {"_interleaved", "_values", "_profile"}
PLAIN = (str, bytes, int, float, complex, range, slice, TensorSpec, type(None))
MUTABLE = (list, dict, set)  # in a closure: possibly runtime state, such as a counter


def fingerprint(self: Dataset) -> int:
    """Return a 64-bit hash of the stages and their arguments.

    The hash of a function covers its code and the numbers, strings, tuples, functions
    and arrays in its closure, but not the functions that it calls. The hash covers the
    values of arrays, and the paths of files. It excludes seeds drawn by default. It is
    equal in other processes with the same version of Python.

    Example:
        >>> from toolkit.data import Dataset
        >>> make = lambda n: Dataset.range(n).map(lambda x: x + 1).batch(2)
        >>> make(3).fingerprint() == make(3).fingerprint() != make(4).fingerprint()
        True
    """
    digest = hashlib.blake2b(digest_size=8)
    for stage in self._ancestors():
        for data in _hashed_parts(stage, ()):
            digest.update(data + b"\0")
    return int.from_bytes(digest.digest(), "little")


Dataset.fingerprint = fingerprint  # type: ignore[attr-defined]


def _hashed_parts(value: Any, above: tuple[Any, ...]) -> Iterator[bytes]:
    """Yield the hashed parts of a value; `above` holds the enclosing values."""
    yield type(value).__qualname__.encode()
    if any(value is other for other in above):  # a reference cycle
        return
    above = (*above, value)
    if isinstance(value, DrawnSeed):
        return
    if isinstance(value, PLAIN):
        yield repr(value).encode()
    elif isinstance(value, (np.ndarray, np.generic, np.dtype)):
        yield from _hash_array(value, above)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _hashed_parts(item, above)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*_hashed_parts(key, above), *_hashed_parts(item, above))
    elif isinstance(value, (set, frozenset)):
        yield from sorted(b"".join(_hashed_parts(item, above)) for item in value)
    elif isinstance(value, (FunctionType, CodeType, MethodType, partial)):
        yield from _hash_function(value, above)
    elif isinstance(value, os.PathLike):
        yield os.fsencode(value)
    else:
        yield getattr(value, "__qualname__", "").encode()
        for name, item in sorted(getattr(value, "__dict__", {}).items()):
            if name not in RUNTIME_ATTRIBUTES and not isinstance(value, type):
                yield name.encode()
                yield from _hashed_parts(item, above)


def _hash_array(array: Any, above: tuple[Any, ...]) -> Iterator[bytes]:
    if isinstance(array, np.dtype):
        yield str(array).encode()
        return
    yield f"{array.dtype} {array.shape}".encode()
    if array.dtype.hasobject:
        yield from _hashed_parts(array.ravel().tolist(), above)
    else:
        yield np.ascontiguousarray(array).tobytes()


def _hash_function(function: Any, above: tuple[Any, ...]) -> Iterator[bytes]:
    if isinstance(function, CodeType):
        yield function.co_code
        yield from _hashed_parts((function.co_consts, function.co_names), above)
    elif isinstance(function, FunctionType):
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        cells = [value for value in cells if not isinstance(value, MUTABLE)]
        defaults = function.__defaults__, function.__kwdefaults__
        yield from _hashed_parts((function.__code__, defaults, cells), above)
    elif isinstance(function, MethodType):
        yield from _hashed_parts((function.__func__, function.__self__), above)
    else:
        yield from _hashed_parts(
            (function.func, function.args, function.keywords), above
        )
