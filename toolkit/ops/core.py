"""Conversion of tensors from and to other data, and their properties."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.strings import StringTensor, as_array, is_string
from toolkit.core.tensor import Tensor
from toolkit.errors import DTypeError
from toolkit.ops.symbolic import KerasTensor, operation
from toolkit.type_aliases import Array, DTypeLike, TensorLike

_SHAPED = (KerasTensor, StringTensor)


@operation
def convert_to_tensor(
    x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None
) -> Any:
    """Convert x to a Tensor; strings become a StringTensor, which cannot compute.

    Args:
        x: a number, an array, a Variable, or nested lists of them, or strings.
        dtype: by default Python floats become floatx and integers int32, and arrays
            keep theirs.
        sparse: must not be True; there are no sparse tensors.
        ragged: must not be True.
    """
    if sparse or ragged:
        raise DTypeError("convert_to_tensor: sparse and ragged tensors are unsupported")
    name = None if dtype is None else dtypes.standardize(dtype)
    if name == dtypes.STRING:
        return x if isinstance(x, StringTensor) else StringTensor(x)
    if name is None and isinstance(x, (list, tuple)) and is_string(x):
        return StringTensor(x)
    try:
        return convert(x, name)
    except DTypeError:
        if name is not None or not is_string(x):
            raise
        return x if isinstance(x, StringTensor) else StringTensor(x)


@operation
def array(x: TensorLike, dtype: DTypeLike | None = None) -> Any:
    """Convert x to a Tensor, like `convert_to_tensor`."""
    return convert_to_tensor(x, dtype)


def convert_to_numpy(x: Any) -> Array:
    """Return x as a new, writable NumPy array.

    Strings become an array of the dtype object.
    """
    is_empty = isinstance(x, np.ndarray) and not x.size
    if is_string(x) or is_empty and x.dtype.kind == "O":
        return np.array(as_array(x), object)
    return np.array(convert(x).numpy())


@operation
def copy(x: TensorLike) -> Tensor:
    """Return the same values; a Tensor is immutable, so it need not be copied."""
    return convert(x)


def is_tensor(x: TensorLike) -> bool:
    """Return whether x is a Tensor."""
    return isinstance(x, Tensor)


def shape(x: TensorLike) -> tuple[int | None, ...]:
    """Return the shape of x, with None for unknown extents of a symbol."""
    return x.shape if isinstance(x, _SHAPED) else convert(x).shape


def ndim(x: TensorLike) -> int:
    """Return the number of axes of x."""
    return x.ndim if isinstance(x, _SHAPED) else convert(x).ndim


def size(x: TensorLike) -> int | None:
    """Return the number of elements of x, or None if a symbol's is unknown."""
    return x.size if isinstance(x, _SHAPED) else convert(x).size


def dtype(x: TensorLike) -> str:
    """Return the name of the dtype of x."""
    attribute = getattr(x, "dtype", None)
    return convert(x).dtype if attribute is None else dtypes.standardize(attribute)
