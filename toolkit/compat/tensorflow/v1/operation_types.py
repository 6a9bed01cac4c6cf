"""TensorFlow's operation types of nodes: `a * b` is `mul`, `tf.reduce_sum` is `Sum`."""

from __future__ import annotations

from typing import Any

# Operator types, by the names of toolkit's functions.
_OPERATORS = {
    "add": "add",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "get_item": "strided_slice",
    "matmul": "matmul",
    "mod": "mod",
    "multiply": "mul",
    "power": "pow",
    "subtract": "sub",
}
# Functions whose type is not their name.
_KINDS = {
    "absolute": "Abs",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "concatenate": "concat",
    "constant": "Const",
    "convert_to_tensor": "Const",
    "divide": "truediv",
    "getitem": "strided_slice",
    "matmul": "MatMul",
    "multiply": "Mul",
    "negative": "Neg",
    "normal": "random_normal",
    "subtract": "Sub",
    "uniform": "random_uniform",
    "where": "SelectV2",
    "while_loop": "while",
}
# Lower-case types: as in TensorFlow, functions of several operations.
_SMALL = frozenset(
    "case clip_by_norm clip_by_value concat cond dropout embedding_lookup eye floordiv "
    "foldl foldr map mod moments mul one_hot ones ones_like range scan sequence_mask "
    "split stack sub transpose truncated_normal unstack while zeros zeros_like".split()
)


def operation_kind(function: str) -> str:
    """Return TensorFlow's operation type for a function of this name."""
    if function in _KINDS or function in _SMALL:
        return _KINDS.get(function, function)
    if "cross_entropy" in function:
        return function
    words = function.removeprefix("reduce_").split("_")
    return "".join(word.capitalize() for word in words)


def operation_type(operation: Any) -> str:
    """Return TensorFlow's operation type, from which names are generated."""
    if hasattr(operation, "kind"):  # a step, or a TensorFlow function
        return str(operation.kind)
    if not hasattr(operation, "function"):  # a layer
        return str(operation.name)
    name = operation.function.__name__
    if name == "__call__":  # of a loss
        return str(operation.name)
    return _OPERATORS.get(name) or operation_kind(name)
