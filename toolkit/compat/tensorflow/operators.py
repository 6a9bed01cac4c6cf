"""The operators of `tf.Tensor`s and Variables: operands have one dtype.

toolkit promotes dtypes. In TensorFlow, the dtype of a tensor applies: arrays and Python
numbers are converted to it, and another tensor must have the same dtype. toolkit's
layers and losses, and tensors in a trace, keep the promotion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import fitting
from toolkit.console.frames import is_package_frame
from toolkit.core.composites import Composite
from toolkit.core.convert import convert
from toolkit.core.dialects import dtype_of
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.dtypes import INEXACT, is_integer
from toolkit.errors import ArgumentError, DTypeError
from toolkit.type_aliases import TensorLike

_BINARY = "add sub mul truediv floordiv mod matmul pow and or xor".split()
_COMPARISONS = "eq ne lt le gt ge".split()
_TENSORS = (Tensor, Variable)
_ARRAYS = (np.ndarray, np.generic)
_VALUES = (*_TENSORS, *_ARRAYS, bool, int, float, complex, list, tuple)
# As in TensorFlow, the quotient of small integers is float32.
_DIVIDED_AS_DOUBLES = ("int32", "int64", "uint32", "uint64")


def match_dtypes(
    function: str, operands: Sequence[Any], dtype: str | None = None
) -> list[Tensor]:
    """Convert operands to tensors of one dtype.

    Arrays are cast to it. Python numbers must fit it.

    Args:
        function: the name of the operation, for errors.
        operands: tensors, arrays, numbers or lists.
        dtype: the dtype; the default is the dtype of the first tensor, or without a
            tensor the dtype of the first operand.

    Raises:
        DTypeError: a tensor has another dtype, or a number does not fit.
    """
    if dtype is None:
        first = next((x for x in operands if isinstance(x, _TENSORS)), operands[0])
        dtype = dtype_of(own_tensor(first))
    return [_as_dtype(function, x, dtype) for x in operands]


def own_tensor(x: Any) -> Tensor:
    """Convert an operand, or a NumPy scalar, to a tensor with its dtype."""
    return convert(np.asarray(x) if isinstance(x, np.generic) else x)


def _as_dtype(function: str, x: TensorLike, dtype: str) -> Tensor:
    if isinstance(x, _ARRAYS):
        return convert(np.asarray(x), dtype)
    if not isinstance(x, _TENSORS):
        return convert(fitting(x, dtype, function), dtype)
    tensor = convert(x)
    if dtype_of(tensor) != dtype:
        raise DTypeError(
            f"{function}: expected tensors of one dtype; received {dtype} and "
            f"{dtype_of(tensor)}. Convert one of them by tf.cast"
        )
    return tensor


def divide_as_floats(x: Tensor, y: Tensor) -> Tensor:
    """Return x / y; the quotient of integers is float64, of small ones float32."""
    if dtype_of(x) in _DIVIDED_AS_DOUBLES:
        return ops.divide(ops.cast(x, "float64"), ops.cast(y, "float64"))
    return ops.divide(x, y)


def check_divisor(function: str, dividend: TensorLike, divisor: TensorLike) -> None:
    """Raise for the division of integers by a concrete zero.

    Raises:
        ArgumentError: the divisor has a zero.
    """
    if isinstance(divisor, (float, complex)) or not all(
        is_integer(str(getattr(x, "dtype", "int32"))) for x in (dividend, divisor)
    ):
        return
    static_divisor = (
        divisor if isinstance(divisor, int) else convert(divisor).static_value()
    )
    if static_divisor is not None and not np.all(static_divisor):
        raise ArgumentError(f"{function}: integer division by zero")


def install_operators(kind: type) -> None:
    """Install TensorFlow's operators in a class of tensors or Variables."""
    for name in _BINARY:
        _install(kind, f"__{name}__", is_reflected=False)
        _install(kind, f"__r{name}__", is_reflected=True)
    for name in _COMPARISONS:
        _install(kind, f"__{name}__", is_reflected=False)


def _install(kind: type, name: str, is_reflected: bool) -> None:
    core: Callable[..., Any] = getattr(kind, name)
    divides = "truediv" in name
    is_checked = "floordiv" in name or "mod" in name

    def operate(self: Tensor, other: Any) -> Tensor:
        if isinstance(other, Composite):
            return NotImplemented
        if not _has_core_dtype(self, other, divides) and not is_package_frame(
            sys._getframe(1)
        ):
            pair = (other, self) if is_reflected else (self, other)
            x, y = match_dtypes(name.strip("_"), pair)
            if divides:
                return divide_as_floats(x, y)
            self, other = (y, x) if is_reflected else (x, y)
        if is_checked:
            check_divisor(name, *((other, self) if is_reflected else (self, other)))
        return core(self, other)

    operate.__name__ = operate.__qualname__ = name
    setattr(kind, name, operate)


def _has_core_dtype(x: TensorLike, other: object, divides: bool) -> bool:
    """Return whether toolkit's operator already has TensorFlow's dtype."""
    x = x if isinstance(x, Tensor) else convert(x)
    dtype = dtype_of(x)
    if divides and dtype not in INEXACT:
        return isinstance(other, KerasTensor) or not isinstance(other, _VALUES)
    kind = type(other)
    if kind is float:
        return dtype in INEXACT
    if kind is int:
        return dtype != "bool"
    if isinstance(other, _TENSORS):
        # In a trace, a Python number that a loop changes is a tensor.
        return state.trace is not None or dtype_of(convert(other)) == dtype
    return not isinstance(other, _VALUES) or isinstance(other, str)
