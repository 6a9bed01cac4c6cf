"""How TensorFlow calls what a node does: `a * b` is `mul`, `tf.reduce_sum` is `Sum`."""

from __future__ import annotations

from typing import Any

# What the operators are called, and functions that do not go by their own name.
_TYPES = {
    "multiply": "mul",
    "subtract": "sub",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "power": "pow",
    "get_item": "strided_slice",
    "concatenate": "concat",
    "concat": "concat",
    "convert_to_tensor": "Const",
    "constant": "Const",
    "negative": "Neg",
    "absolute": "Abs",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "normal": "random_normal",
    "uniform": "random_uniform",
}
# Small letters, as in TensorFlow: those that are made of several operations there.
_SMALL = {"add", "mod", "matmul", "transpose", "zeros", "ones", "zeros_like"}
_SMALL |= {"ones_like", "truncated_normal", "dropout", "stack", "split", "range"}


def type_of(operation: Any) -> str:
    """TensorFlow's name of a type of operation, from which names are made up."""
    function = getattr(operation, "function", None)
    name = operation.name if function is None else function.__name__
    if hasattr(operation, "sets"):  # a step that only graphs have
        return str(operation.name)
    if function is None or name in _SMALL:
        return str(name)
    if name in _TYPES:
        return _TYPES[name]
    return "".join(
        word.capitalize() for word in name.removeprefix("reduce_").split("_")
    )
