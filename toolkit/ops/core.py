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
    """Convert numbers or arrays to a Tensor, and strings to a StringTensor.

    Args:
        x: a number, an array, a Variable, nested lists of them, or strings.
        dtype: the dtype of the result. None means floatx for Python floats, int32 for
            Python integers, and the dtype of an array.
        sparse: must not be True, because there are no sparse tensors.
        ragged: must not be True, because there are no ragged tensors.

    Returns:
        A Tensor. Strings give a StringTensor, which supports no arithmetic.

    Raises:
        DTypeError: `sparse` or `ragged` is true, or the conversion is not possible.

    Example:
        >>> from toolkit import ops
        >>> ops.convert_to_tensor([1, 2, 3]).dtype
        'int32'
        >>> ops.convert_to_tensor([1, 2, 3], dtype="float16").dtype
        'float16'
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
    """Convert numbers or arrays to a Tensor, as `convert_to_tensor` does.

    Args:
        x: a number, an array, a Variable, nested lists of them, or strings.
        dtype: the dtype of the result. None means floatx for Python floats, int32 for
            Python integers, and the dtype of an array.

    Returns:
        A Tensor. Strings give a StringTensor, which supports no arithmetic.

    Example:
        >>> from toolkit import ops
        >>> print(ops.array([[1, 2], [3, 4]]))
        [[1 2]
         [3 4]]
    """
    return convert_to_tensor(x, dtype)


def convert_to_numpy(x: Any) -> Array:
    """Return a tensor as a new, writable NumPy array.

    Args:
        x: a tensor, a Variable, a number, an array, or nested lists of them.

    Returns:
        A NumPy array with the shape and dtype of `x`. Strings give the dtype object.

    Example:
        >>> from toolkit import ops
        >>> ops.convert_to_numpy(ops.array([1, 2, 3])).tolist()
        [1, 2, 3]
    """
    is_empty = isinstance(x, np.ndarray) and not x.size
    if is_string(x) or is_empty and x.dtype.kind == "O":
        return np.array(as_array(x), object)
    return np.array(convert(x).numpy())


@operation
def copy(x: TensorLike) -> Tensor:
    """Return a tensor with the same values.

    The result may be the argument, because a Tensor is immutable.

    Args:
        x: tensor of any shape.

    Returns:
        A Tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.copy([1, 2, 3]))
        [1 2 3]
    """
    return convert(x)


def is_tensor(x: TensorLike) -> bool:
    """Return whether an object is a Tensor.

    Args:
        x: any object.

    Returns:
        A Python boolean. It is False for NumPy arrays and Variables.

    Example:
        >>> from toolkit import ops
        >>> ops.is_tensor(ops.ones((2,))), ops.is_tensor([1.0, 1.0])
        (True, False)
    """
    return isinstance(x, Tensor)


def shape(x: TensorLike) -> tuple[int | None, ...]:
    """Return the shape of a tensor.

    Args:
        x: a tensor, a symbol, or an object that converts to a tensor.

    Returns:
        A tuple of integers. An unknown extent of a symbol is None.

    Example:
        >>> from toolkit import ops
        >>> ops.shape([[1, 2, 3], [4, 5, 6]])
        (2, 3)
    """
    return x.shape if isinstance(x, _SHAPED) else convert(x).shape


def ndim(x: TensorLike) -> int:
    """Return the number of axes of a tensor.

    Args:
        x: a tensor, a symbol, or an object that converts to a tensor.

    Returns:
        A Python integer.

    Example:
        >>> from toolkit import ops
        >>> ops.ndim([[1, 2, 3], [4, 5, 6]])
        2
    """
    return x.ndim if isinstance(x, _SHAPED) else convert(x).ndim


def size(x: TensorLike) -> int | None:
    """Return the number of elements of a tensor.

    Args:
        x: a tensor, a symbol, or an object that converts to a tensor.

    Returns:
        A Python integer, or None if an extent of a symbol is unknown.

    Example:
        >>> from toolkit import ops
        >>> ops.size([[1, 2, 3], [4, 5, 6]])
        6
    """
    return x.size if isinstance(x, _SHAPED) else convert(x).size


def dtype(x: TensorLike) -> str:
    """Return the name of the dtype of a tensor.

    Args:
        x: a tensor, a symbol, or an object that converts to a tensor.

    Returns:
        A string, such as "float32".

    Example:
        >>> from toolkit import ops
        >>> ops.dtype([1, 2, 3])
        'int32'
    """
    attribute = getattr(x, "dtype", None)
    return convert(x).dtype if attribute is None else dtypes.standardize(attribute)
