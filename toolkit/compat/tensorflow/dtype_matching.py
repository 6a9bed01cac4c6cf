"""Functions of TensorFlow that need operands of one dtype.

toolkit's functions promote dtypes; `of_one_dtype` converts the operands first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from toolkit.compat.tensorflow.operators import match_dtypes, own_tensor
from toolkit.core.dialects import dtype_of
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor

_Function = Callable[..., Any]

# The dtype of the first tensor applies to these parameters.
_OF_TENSOR = {
    **dict.fromkeys(
        "atan2 bitwise_and bitwise_or bitwise_xor divide_no_nan equal floordiv "
        "floormod greater greater_equal left_shift less less_equal logical_and "
        "logical_or logical_xor maximum minimum multiply multiply_no_nan nextafter "
        "not_equal pow right_shift squared_difference subtract xdivy xlog1py "
        "xlogy".split(),
        "x y",
    ),
    "atan2": "y x",
    "bias_add": "value bias",
    "conv2d": "input filters",
    "cross": "a b",
    "nextafter": "x1 x2",
    "softmax_cross_entropy_with_logits": "logits labels",
    "solve": "matrix rhs",
    "where": "x y",
}
# The dtype of the first parameter applies to all.
_OF_FIRST = {
    "add": "x y",
    "batch_normalization": "x mean variance",
    "clip_by_value": "t clip_value_min clip_value_max",
    "matmul": "a b",
}
# Each operand keeps its dtype; the dtypes must be equal.
_OF_EACH = {
    **dict.fromkeys(("conv1d", "depthwise_conv2d"), "input filters"),
    **dict.fromkeys(("matvec", "tensordot"), "a b"),
    "sigmoid_cross_entropy_with_logits": "labels logits",
}
# The dtype of the first tensor applies to all operands in one parameter.
_OF_LIST = {"concat": "values", "einsum": "inputs"}


def match_operand_dtypes(function: _Function) -> _Function:
    """Wrap a function so that it converts its operands to one dtype.

    The tables above have the names of these functions; other functions do not change.
    """
    name = function.__name__
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters]
    if name in _OF_LIST and _OF_LIST[name] in names:
        parameter = parameters[names.index(_OF_LIST[name])]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return _match_rest(function, names.index(parameter.name))
        return _match_parameter(function, names.index(parameter.name), parameter.name)
    tables = (_OF_FIRST, _OF_TENSOR, _OF_EACH)
    operand_names = " ".join(table.get(name, "") for table in tables).split()
    if not operand_names or not set(operand_names) <= set(names):
        return function
    return _match_parameters(function, [(names.index(n), n) for n in operand_names])


def _match_parameters(
    function: _Function, positions: list[tuple[int, str]]
) -> _Function:
    name = function.__name__
    decides_first, is_each = name in _OF_FIRST, name in _OF_EACH

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        operands = [args[i] if i < len(args) else kwargs.get(n) for i, n in positions]
        if _is_matched(operands) or not _can_match(operands):
            return function(*args, **kwargs)
        if is_each:
            operands = [own_tensor(x) for x in operands]
        dtype = dtype_of(own_tensor(operands[0])) if decides_first else None
        arguments = list(args)
        for (i, n), tensor in zip(
            positions, match_dtypes(name, operands, dtype), strict=True
        ):
            if i < len(arguments):
                arguments[i] = tensor
            else:
                kwargs[n] = tensor
        return function(*arguments, **kwargs)

    return call


def _match_parameter(function: _Function, position: int, parameter: str) -> _Function:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values = args[position] if position < len(args) else kwargs.get(parameter)
        if not isinstance(values, (list, tuple)) or not values:
            return function(*args, **kwargs)
        if _is_matched(values) or not _can_match(values):
            return function(*args, **kwargs)
        tensors = match_dtypes(function.__name__, values)
        if position < len(args):
            args = (*args[:position], tensors, *args[position + 1 :])
        else:
            kwargs[parameter] = tensors
        return function(*args, **kwargs)

    return call


def _match_rest(function: _Function, position: int) -> _Function:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        values = args[position:]
        if not values or _is_matched(values) or not _can_match(values):
            return function(*args, **kwargs)
        tensors = match_dtypes(function.__name__, values)
        return function(*args[:position], *tensors, **kwargs)

    return call


def _is_matched(operands: Sequence[Any]) -> bool:
    first = operands[0]
    return isinstance(first, Tensor) and all(
        isinstance(x, Tensor) and dtype_of(x) == dtype_of(first) for x in operands
    )


def _can_match(operands: Sequence[Any]) -> bool:
    return not any(
        x is None or isinstance(x, KerasTensor) or is_string(x) for x in operands
    )
