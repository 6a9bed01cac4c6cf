"""The operators of tensors, symbols and Variables: `x + y` is `ops.add(x, y)`."""

from collections.abc import Callable
from typing import Any, NoReturn

from toolkit.core.tensor import Operators, Tensor
from toolkit.core.variable import Variable
from toolkit.definitions import foreign_names, hints
from toolkit.ops.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    left_shift,
    right_shift,
)
from toolkit.ops.contract import matmul
from toolkit.ops.core import copy
from toolkit.ops.elementwise import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    multiply,
    not_equal,
    subtract,
)
from toolkit.ops.getitem import get_item
from toolkit.ops.numeric import (
    absolute,
    floor_divide,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    mod,
    negative,
    round,
)
from toolkit.ops.shape import reshape, squeeze, transpose
from toolkit.ops.symbolic import KerasTensor
from toolkit.ops.transcendental import power
from toolkit.type_aliases import TensorLike

_OPERATORS: dict[str, Any] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "floordiv": floor_divide,
    "mod": mod,
    "matmul": matmul,
    "pow": power,
    "and": lambda x, y: _logical_or_bitwise(logical_and, bitwise_and, x, y),
    "or": lambda x, y: _logical_or_bitwise(logical_or, bitwise_or, x, y),
    "xor": lambda x, y: _logical_or_bitwise(logical_xor, bitwise_xor, x, y),
    "lshift": left_shift,
    "rshift": right_shift,
}
_COMPARISONS = {
    "eq": equal,
    "ne": not_equal,
    "lt": less,
    "le": less_equal,
    "gt": greater,
    "ge": greater_equal,
}


def _logical_or_bitwise(
    logical: Any, bitwise: Any, x: TensorLike, y: TensorLike
) -> Tensor:
    """Apply `&`, `|` or `^`: logical for booleans and bitwise for integers."""
    booleans = _all_bool(x) and _all_bool(y)
    return (logical if booleans else bitwise)(x, y)


def _all_bool(x: TensorLike) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == "bool"


def _invert(x: TensorLike) -> Tensor:
    return logical_not(x) if _all_bool(x) else bitwise_not(x)


# As in Keras, Symbols and Variables use the logical operators.
_LOGICAL = {"and": logical_and, "or": logical_or, "xor": logical_xor}
_UNARY = {
    "neg": negative,
    "pos": copy,
    "abs": absolute,
    "invert": _invert,
    "round": round,
}


def install_operators() -> None:
    """Install the operators on the classes: each is the public function of its name."""
    for cls in (Tensor, KerasTensor, Variable):
        operators = _OPERATORS if cls is Tensor else _OPERATORS | _LOGICAL
        for name, function in (operators | _COMPARISONS).items():
            if cls is KerasTensor and name == "eq":
                # compared by identity, as in Keras, so that symbols work in lists
                continue
            setattr(cls, f"__{name}__", _method(function))
        for name, function in operators.items():
            setattr(cls, f"__r{name}__", _reflected(function))
        for name, function in _UNARY.items():
            setattr(cls, f"__{name}__", function)
        setattr(cls, "__getitem__", get_item)  # noqa: B010
        setattr(cls, "T", property(transpose))  # noqa: B010
        setattr(cls, "__setitem__", _refuse_assignment)  # noqa: B010
    KerasTensor.reshape = _reshape  # type: ignore[attr-defined]
    KerasTensor.squeeze = squeeze  # type: ignore[attr-defined]
    for base in (Operators, KerasTensor):
        hints.explain_missing(base, foreign_names.TENSORS)


def _reshape(x: KerasTensor, *newshape: Any) -> Any:
    """Call `ops.reshape`; the extents may also be separate arguments.

    Args:
        *newshape: the new shape as one tuple, or its extents as separate arguments.

    Returns:
        A symbolic tensor of shape `newshape`.
    """
    is_one = len(newshape) == 1 and not isinstance(newshape[0], int)
    return reshape(x, newshape[0] if is_one else newshape)


def _refuse_assignment(x: object, key: object, value: object) -> NoReturn:
    """Raise, with the operations that return a changed copy."""
    is_variable = isinstance(x, Variable)
    raise TypeError(
        f"{type(x).__name__!r} object does not support item assignment; use "
        "x = ops.slice_update(x, start_indices, updates), "
        "ops.scatter_update(x, indices, updates) or ops.where(condition, value, x)"
        f"{', and assign the result by x.assign' if is_variable else ''}"
    )


def _method(function: Callable[..., Any]) -> Any:
    def method(self: Tensor, other: TensorLike) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented  # x == None is False, x + None a TypeError
        return function(self, other)

    return method


def _reflected(function: Callable[..., Any]) -> Any:
    def method(self: Tensor, other: TensorLike) -> Any:
        return NotImplemented if isinstance(other, str) else function(other, self)

    return method
