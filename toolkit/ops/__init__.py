"""Public tensor functions, with the names and signatures of `keras.ops`.

One block of names per file. At the end, the operators of Tensor, KerasTensor and
Variable are installed in one loop: `x + y` is `ops.add(x, y)`.
"""

from importlib import import_module
from typing import Any

from toolkit.ops.elementwise import (
    abs,
    absolute,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cast,
    ceil,
    clip,
    convert_to_tensor,
    cos,
    cosh,
    divide,
    equal,
    erf,
    erfinv,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    reciprocal,
    remainder,
    right_shift,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from toolkit.ops.reduce import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumprod,
    cumsum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from toolkit.ops.shape import (
    arange,
    broadcast_to,
    concatenate,
    empty,
    expand_dims,
    eye,
    flip,
    full,
    full_like,
    identity,
    linspace,
    moveaxis,
    ones,
    ones_like,
    ravel,
    reshape,
    shape,
    split,
    squeeze,
    stack,
    swapaxes,
    transpose,
    tril,
    triu,
    unstack,
    zeros,
    zeros_like,
)
from toolkit.symbolic import KerasTensor
from toolkit.tensor import Tensor
from toolkit.variable import Variable

# Public functions of higher levels that belong to `keras.ops` too.
_LATE = {
    "cond": "toolkit.control",
    "custom_gradient": "toolkit.tape",
    "fori_loop": "toolkit.control",
    "map": "toolkit.control",
    "scan": "toolkit.control",
    "switch": "toolkit.control",
    "vectorized_map": "toolkit.control",
    "while_loop": "toolkit.control",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'toolkit.ops' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


_OPERATORS: dict[str, Any] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "floordiv": floor_divide,
    "mod": mod,
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


def _logical_or_bitwise(logical: Any, bitwise: Any, x: Any, y: Any) -> Any:
    """`&`, `|` and `^` are logical for booleans and bitwise for integers."""
    booleans = all_bool(x) and all_bool(y)
    return (logical if booleans else bitwise)(x, y)


def all_bool(x: Any) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == "bool"


def _invert(x: Any) -> Any:
    return logical_not(x) if all_bool(x) else bitwise_not(x)


def _install_operators() -> None:
    for cls in (Tensor, KerasTensor, Variable):
        for name, function in _OPERATORS.items():
            setattr(cls, f"__{name}__", _method(function))
            setattr(cls, f"__r{name}__", _reflected(function))
        for name, function in _COMPARISONS.items():
            setattr(cls, f"__{name}__", _method(function))
        cls.__neg__ = _method(negative)  # type: ignore[attr-defined]
        cls.__abs__ = _method(absolute)  # type: ignore[attr-defined]
        cls.__invert__ = _method(_invert)  # type: ignore[attr-defined]
        cls.T = property(transpose)  # type: ignore[attr-defined]


def _method(function: Any) -> Any:
    def method(self: Any, *others: Any) -> Any:
        if others and isinstance(others[0], (str, type(None))):
            return NotImplemented  # x == None is False, x + None a TypeError
        return function(self, *others)

    return method


def _reflected(function: Any) -> Any:
    def method(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, str) else function(other, self)

    return method


_install_operators()
