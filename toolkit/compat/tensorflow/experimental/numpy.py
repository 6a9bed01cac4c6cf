"""`tf.experimental.numpy`: NumPy's names over tensors, from `toolkit.ops`.

A name that does not exist raises an error; the constants and dtypes are NumPy's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as _np

from toolkit import ops, random as _random
from toolkit.core.convert import convert as _convert
from toolkit.core.tensor import Tensor as ndarray  # noqa: F401
from toolkit.random import set_random_seed
from toolkit.type_aliases import DTypeLike, IntOrInts, TensorLike

_CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")
_DTYPES = (
    "bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
)
# NumPy's name -> the name in `toolkit.ops`, if they differ.
_RENAMED = {
    "amax": "max",
    "amin": "min",
    "around": "round",
    "asarray": "array",
    "ascontiguousarray": "array",
    "bitwise_invert": "bitwise_not",
    "fix": "trunc",
    "remainder": "mod",
    "float_power": "power",
}


def experimental_enable_numpy_behavior(
    prefer_float32: bool = False, dtype_conversion_mode: str = "legacy"
) -> None:
    """Do nothing: tensors always behave as NumPy arrays, with toolkit's dtypes."""


def _standard_normal(*shape: int) -> Any:
    return _random.normal(shape)


def _uniform(low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
    shape = () if size is None else (size,) if isinstance(size, int) else tuple(size)
    return _random.uniform(shape, low, high)


def _randint(
    low: int,
    high: int | None = None,
    size: IntOrInts | None = None,
    dtype: DTypeLike = "int32",
) -> Any:
    low, high = (0, low) if high is None else (low, high)
    shape = () if size is None else (size,) if isinstance(size, int) else tuple(size)
    return _random.randint(shape, low, high, dtype=dtype)


random: SimpleNamespace = SimpleNamespace(
    rand=lambda *shape: _random.uniform(shape),
    randint=_randint,
    randn=_standard_normal,
    random=lambda size=None: _uniform(size=size),
    seed=set_random_seed,
    standard_normal=lambda size=None: _random.normal(size or ()),
    uniform=_uniform,
)


def shape(a: TensorLike) -> tuple[int, ...]:
    """Return the extents."""
    return tuple(_convert(a).shape)


def ndim(a: Any) -> int:
    """Return the number of axes."""
    return _convert(a).ndim


def __getattr__(name: str) -> Any:
    if name in _CONSTANTS or name in _DTYPES.split():
        return getattr(_np, name)
    value = None if name[0] == "_" else getattr(ops, _RENAMED.get(name, name), None)
    if value is None:
        raise AttributeError(
            f"tf.experimental.numpy.{name} is not supported: see toolkit.ops"
        )
    return value
