"""Functions of TensorFlow in functional models of Keras 2, as operations.

Keras 2 records a call of `tf.math.add(x, y)` as a layer `TFOpLambda`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit import ops
from toolkit.errors import UnsupportedError
from toolkit.ops.symbolic import FunctionOperation

if TYPE_CHECKING:
    from toolkit.ir import Spec

CLASSES = ("TFOpLambda", "SlicingOpLambda")

_BINARY = {"x": "x1", "y": "x2"}
_REDUCTION = {"input_tensor": "x", "axis": "axis", "keepdims": "keepdims"}
_OF_X = {"x": "x"}
_OF_FEATURES = {"features": "x"}
_ARG = {"input": "x", "axis": "axis"}

# TensorFlow's name -> the operation, and its argument for each TensorFlow argument. The
# first entry is the positional argument.
_FUNCTIONS: dict[str, tuple[str, dict[str, str]]] = {
    **{
        f"math.{name}": (ours, _BINARY)
        for name, ours in {
            **{name: name for name in ("add", "subtract", "multiply", "maximum")},
            **{name: name for name in ("minimum", "greater", "less", "not_equal")},
            **{name: name for name in ("equal", "greater_equal", "less_equal")},
            **{name: name for name in ("logical_and", "logical_or")},
            "truediv": "true_divide",
            "divide": "true_divide",
            "pow": "power",
            "floordiv": "floor_divide",
            "floormod": "mod",
            "mod": "mod",
        }.items()
    },
    **{
        f"math.{name}": (ours, _OF_X)
        for name, ours in {
            **{name: name for name in ("abs", "exp", "log", "log1p", "sqrt", "rsqrt")},
            **{name: name for name in ("square", "sin", "cos", "tanh", "sigmoid")},
            **{name: name for name in ("negative", "sign", "floor", "ceil", "round")},
            **{name: name for name in ("erf", "expm1", "logical_not", "reciprocal")},
        }.items()
    },
    **{
        f"math.reduce_{name}": (ours, _REDUCTION)
        for name, ours in {
            **{name: name for name in ("mean", "sum", "max", "min", "prod", "std")},
            "all": "all",
            "any": "any",
            "logsumexp": "logsumexp",
            "variance": "var",
        }.items()
    },
    **{
        f"nn.{name}": (ours, _OF_FEATURES)
        for name, ours in {
            **{name: name for name in ("relu", "relu6", "elu", "selu", "softsign")},
            "softplus": "softplus",
            "swish": "silu",
            "silu": "silu",
        }.items()
    },
    "__operators__.getitem": ("get_item", {"tensor": "x", "slice_spec": "key"}),
    "cast": ("cast", {"x": "x", "dtype": "dtype"}),
    "clip_by_value": (
        "clip",
        {"t": "x", "clip_value_min": "x_min", "clip_value_max": "x_max"},
    ),
    "concat": ("concatenate", {"values": "xs", "axis": "axis"}),
    "expand_dims": ("expand_dims", {"input": "x", "axis": "axis"}),
    "linalg.matmul": ("matmul", {"a": "x1", "b": "x2"}),
    "broadcast_to": ("broadcast_to", {"input": "x", "shape": "shape"}),
    "gather": ("take", {"params": "x", "indices": "indices", "axis": "axis"}),
    "math.argmax": ("argmax", _ARG),
    "math.argmin": ("argmin", _ARG),
    "math.cumsum": ("cumsum", {"x": "x", "axis": "axis"}),
    "math.l2_normalize": ("normalize", {"x": "x", "axis": "axis"}),
    "math.softplus": ("softplus", _OF_FEATURES),
    "math.top_k": ("top_k", {"input": "x", "k": "k"}),
    "nn.gelu": ("gelu", {"features": "x", "approximate": "approximate"}),
    "nn.leaky_relu": ("leaky_relu", {"features": "x", "alpha": "negative_slope"}),
    "nn.log_softmax": ("log_softmax", {"logits": "x", "axis": "axis"}),
    "nn.sigmoid": ("sigmoid", _OF_X),
    "nn.softmax": ("softmax", {"logits": "x", "axis": "axis"}),
    "nn.tanh": ("tanh", _OF_X),
    "one_hot": ("one_hot", {"indices": "x", "depth": "num_classes"}),
    "ones_like": ("ones_like", {"input": "x"}),
    "pad": (
        "pad",
        {
            "tensor": "x",
            "paddings": "pad_width",
            "mode": "mode",
            "constant_values": "constant_values",
        },
    ),
    "repeat": ("repeat", {"input": "x", "repeats": "repeats", "axis": "axis"}),
    "reshape": ("reshape", {"tensor": "x", "shape": "newshape"}),
    "reverse": ("flip", {"tensor": "x", "axis": "axis"}),
    "split": (
        "split",
        {"value": "x", "num_or_size_splits": "indices_or_sections", "axis": "axis"},
    ),
    "squeeze": ("squeeze", {"input": "x", "axis": "axis"}),
    "stack": ("stack", {"values": "x", "axis": "axis"}),
    "tile": ("tile", {"input": "x", "multiples": "repeats"}),
    "transpose": ("transpose", {"a": "x", "perm": "axes"}),
    "where": ("where", {"condition": "condition", "x": "x1", "y": "x2"}),
    "roll": ("roll", {"input": "x", "shift": "shift", "axis": "axis"}),
    "stop_gradient": ("stop_gradient", {"input": "variable"}),
    "unstack": ("unstack", {"value": "x", "num": "num", "axis": "axis"}),
    "zeros_like": ("zeros_like", {"input": "x"}),
}
_FUNCTIONS["__operators__.add"] = _FUNCTIONS["math.add"]
_FUNCTIONS["identity"] = ("copy", {"input": "x"})
# Arguments that are required for the operation and have a default in TensorFlow.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gather": {"axis": 0},
    "math.cumsum": {"axis": 0},
    "math.l2_normalize": {"axis": None, "epsilon": 1e-6},
}
# Arguments of TensorFlow that have no effect at this value.
_WITHOUT_EFFECT = {
    "alpha": 0.2,
    "batch_dims": 0,
    "beta": 1.0,
    "conjugate": False,
    "exclusive": False,
    "output_type": "int64",
    "reverse": False,
    "sorted": True,
    "validate_indices": None,
    "transpose_a": False,
    "transpose_b": False,
}


def _name(function: str) -> str:
    """Return TensorFlow's current name of a function that Keras 2 recorded."""
    return function.removeprefix("compat.v1.")


def function_operation(data: dict[str, Any]) -> FunctionOperation:
    """Return the operation for a layer that calls a TensorFlow function.

    Raises:
        UnsupportedError: if there is no such operation.
    """
    function, name = data["config"]["function"], data["name"]
    if function == "linalg.matmul" and _transposes(data["inbound_nodes"]):
        return FunctionOperation(ops.einsum, name)
    if _name(function) not in _FUNCTIONS:
        raise UnsupportedError(
            f"Functional.from_config: {name!r} calls tf.{function}, which is not a "
            "supported TensorFlow function. Put it into a layer, or into a Lambda, "
            "before you save the model"
        )
    return FunctionOperation(getattr(ops, _FUNCTIONS[_name(function)][0]), name)


def upgrade_function_call(
    operation: FunctionOperation, function: str, first: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Convert the arguments of a TensorFlow call to arguments of the operation.

    Args:
        operation: the result of `function_operation`.
        function: the name of TensorFlow's function.
        first: the positional argument.
        kwargs: the keyword arguments.
    """
    if operation.function is ops.einsum:
        return _product(first, kwargs)
    names = _FUNCTIONS[_name(function)][1]
    arguments_given = {next(iter(names)): first, **kwargs}
    arguments_given.pop("name", None)
    for key, value in arguments_given.items():
        if key not in names and value != _WITHOUT_EFFECT.get(key):
            raise UnsupportedError(
                f"Functional.from_config: tf.{function}: the argument {key}={value!r} "
                "is not supported"
            )
    arguments = dict(_DEFAULTS.get(_name(function), {}))
    arguments |= {
        names[key]: value for key, value in arguments_given.items() if key in names
    }
    for key, change in _CHANGES.items():
        if key in arguments:
            arguments[key] = change(arguments[key])
    return {"args": [], "kwargs": arguments}


_FLAGS = ("transpose_a", "transpose_b", "adjoint_a", "adjoint_b")


def _transposes(calls: Any) -> bool:
    """Return whether a matrix product transposes an operand."""
    text = repr(calls)
    return any(f"'{flag}': True" in text for flag in _FLAGS)


def _product(first: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `einsum` for a product with transposed matrices."""
    is_transposed = [
        any(kwargs.get(f"{kind}_{x}") for kind in ("transpose", "adjoint"))
        for x in "ab"
    ]
    first_operand = "...ki" if is_transposed[0] else "...ik"
    right = "...jk" if is_transposed[1] else "...kj"
    subscripts = {"subscripts": f"{first_operand},{right}->...ij"}
    return {"args": [first, kwargs["b"]], "kwargs": subscripts}


def _sections(value: Any) -> Any:
    """Return the split indices, for a number of parts or for their sizes."""
    if not isinstance(value, list):
        return value
    return [sum(value[: i + 1]) for i in range(len(value) - 1)]


def _index(spec: Spec) -> Any:
    """Convert an index from the form of Keras 2: slices are dicts with their ends."""
    if isinstance(spec, list):
        return tuple(_index(item) for item in spec)
    if isinstance(spec, dict) and spec.keys() == {"start", "stop", "step"}:
        return slice(spec["start"], spec["stop"], spec["step"])
    ellipsis = isinstance(spec, dict) and spec.get("class_name") == "__ellipsis__"
    return Ellipsis if ellipsis else spec


# Conversions of single arguments to the current form.
_CHANGES: dict[str, Any] = {
    "indices_or_sections": _sections,
    "key": _index,
    "mode": str.lower,
}
