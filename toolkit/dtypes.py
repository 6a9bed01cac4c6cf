"""Dtype names, their NumPy counterparts, and Keras 3's promotion rules.

Outside the backends a dtype is its name, a plain string such as "float32".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from toolkit import settings
from toolkit.errors import DTypeError

INTEGERS = (
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
FLOATS = ("bfloat16", "float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
# Dtypes with gradients.
INEXACT = (*FLOATS, *COMPLEX)
# Only for storage and casts; no arithmetic.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
DTYPES = ("bool", *INTEGERS, *INEXACT, *FLOAT8)
# From ml_dtypes, which is imported on first use; bytes of an element.
_EXTENDED = {"bfloat16": 2, **dict.fromkeys(FLOAT8, 1)}
# For symbols, and NumPy arrays of str or bytes; no tensor has it.
STRING = "string"

# Each type points to the types directly above it; "int" and "float" are the weak types
# of Python scalars. The promotion of two types is their least upper bound (the lattice
# of JAX).
_PROMOTIONS = {
    "bool": ("int",),
    "int": ("uint8", "int8", "complex64"),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float",),
    "float": ("bfloat16", "float16"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex64": ("complex128",),
    "complex128": (),
}
_INT64_TYPES = {"int64", "uint64"}
_FLOAT8 = frozenset(FLOAT8)
_PYTHON_SCALARS = {bool: "bool", int: "int", float: "float", complex: "complex64"}

_numpy_dtypes: dict[str, np.dtype[Any]] = {
    name: np.dtype(name) for name in DTYPES if name not in _EXTENDED
}


class _Names(dict[Any, str]):
    """Names of NumPy dtypes, with ml_dtypes added on first use."""

    def __missing__(self, dtype: Any) -> str:
        name = getattr(dtype, "name", None)
        if name not in _EXTENDED:
            raise DTypeError(
                f"tensor: expected a dtype among {', '.join(DTYPES)}; received {dtype}"
            )
        numpy_dtype(name)
        return str(name)


NAMES = _Names((dtype, name) for name, dtype in _numpy_dtypes.items())


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name; ml_dtypes is imported on first use."""
    if name in _EXTENDED and name not in _numpy_dtypes:
        import ml_dtypes

        _numpy_dtypes[name] = np.dtype(getattr(ml_dtypes, name))
        NAMES[_numpy_dtypes[name]] = name
    if name == STRING:
        raise DTypeError("expected a numeric dtype; received 'string'")
    return _numpy_dtypes[name]


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a NumPy dtype that tensors can have."""
    return NAMES[dtype]


def standardize(dtype: Any) -> str:
    """Return the name of a dtype in any form: None (floatx), str, type, NumPy dtype."""
    if dtype is None:
        return settings.floatx()
    if dtype is str or dtype == STRING or getattr(dtype, "kind", "") in tuple("OSU"):
        return STRING
    if isinstance(dtype, str) and dtype in _PROMOTIONS:
        return {"int": "int32", "float": settings.floatx()}.get(dtype, dtype)
    if isinstance(dtype, type) and dtype in _PYTHON_SCALARS:
        return standardize(_PYTHON_SCALARS[dtype])
    # The repr of other frameworks' dtypes ends with the name: torch.float32, <dtype:
    # 'int8'>.
    text = getattr(dtype, "name", None) or str(dtype).split(".")[-1]
    if text in DTYPES:
        return str(text)
    try:
        return name_of(np.dtype(dtype))
    except TypeError:
        raise DTypeError(
            f"dtype: expected one of {', '.join(DTYPES)}; received {dtype!r}"
        ) from None


def itemsize(name: str) -> int:
    """Return the bytes of one element."""
    return _EXTENDED.get(name) or _numpy_dtypes[name].itemsize


def to_sortable(array: Any) -> Any:
    """Return an array, as float32 if NumPy does not order its NaNs."""
    return array.astype("float32") if array.dtype.name in _EXTENDED else array


def is_float(name: str) -> bool:
    """Return whether the dtype is floating."""
    return name in FLOATS


def is_complex(name: str) -> bool:
    """Return whether the dtype is complex."""
    return name in COMPLEX


def real_type(name: str) -> str:
    """Return the real dtype of a complex dtype; any other dtype unchanged."""
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def is_integer(name: str) -> bool:
    """Return whether the dtype is an integer dtype; bool is not."""
    return name in INTEGERS


def lowest(name: str) -> float | int | bool:
    """Return the minimum of a dtype: minus infinity for floats."""
    if is_float(name):
        return float("-inf")
    return name != "bool" and int(np.iinfo(name).min)


def highest(name: str) -> float | int | bool:
    """Return the maximum of a dtype: infinity for floats."""
    if is_float(name):
        return float("inf")
    return name == "bool" or int(np.iinfo(name).max)


def largest(name: str) -> float:
    """Return the largest finite value of a floating dtype."""
    if name == "bfloat16":
        return float.fromhex("0x1.fep127")
    return float(np.finfo(name).max)


def _supertypes(name: str) -> set[str]:
    supertypes = {name}
    for upper in _PROMOTIONS[name]:
        supertypes |= _supertypes(upper)
    return supertypes


def result_type(*types: Any) -> str:
    """Return the promoted dtype of operands with these types, as in Keras 3.

    Args:
        types: dtype names, None (floatx), or the Python types `bool`, `int` and
            `float`, which are weak: they never widen a tensor's dtype.

    Returns:
        The name of the common dtype: `result_type("int32", float)` is floatx.

    Example:
        >>> import toolkit
        >>> toolkit.backend.result_type("int32", "bfloat16")
        'bfloat16'
    """
    return _promotion(types, settings.floatx())


@lru_cache(maxsize=4096)
def _promotion(types: tuple[Any, ...], floatx: str) -> str:
    if not types:
        return floatx
    names = [_PYTHON_SCALARS.get(t) or standardize_weak(t) for t in types]
    if not _FLOAT8.isdisjoint(names):
        raise DTypeError(
            "There is no implicit conversions from float8 dtypes to other dtypes; "
            f"cast them first; received {', '.join(names)}"
        )
    supertypes = set.intersection(*map(_supertypes, names))
    common_type = next(name for name in supertypes if supertypes <= _supertypes(name))
    if common_type == "int":
        return "int64" if floatx == "float64" else "int32"
    if common_type == "int64" and not _INT64_TYPES.intersection(names):
        return "int32"  # uint32 with signed integers: no promotion to 64 bits
    return floatx if common_type == "float" else common_type


def standardize_weak(dtype: Any) -> str:
    """Return the result of `standardize`, but keep the weak types "int" and "float"."""
    return dtype if dtype in ("int", "float") else standardize(dtype)


def float_type(*types: Any) -> str:
    """Return the result dtype of a function such as `exp` for operand types."""
    return result_type(*types, float)
