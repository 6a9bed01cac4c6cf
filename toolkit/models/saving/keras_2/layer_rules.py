"""Conversion rules of Keras 2 layers: class name -> rule.

A rule receives the arguments of the layer and returns the name and the arguments of the
current layer that computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.errors import ModelFileError

Arguments = dict[str, Any]
Rule = Callable[[Arguments], tuple[str, Arguments]]

# Augmentations with a random output shape, which Keras 3 has removed.
_REMOVED = {
    "RandomHeight": "Resizing, or a crop in the input pipeline,",
    "RandomWidth": "Resizing, or a crop in the input pipeline,",
    "Merge": "Add, Concatenate, Multiply, Average, Maximum or Dot",
    "MaxoutDense": "Dense, Reshape and a maximum",
    "Highway": "Dense and Multiply",
}


def _batch_normalization(inner: Arguments) -> tuple[str, Arguments]:
    axis = inner.get("axis")
    if isinstance(axis, (list, tuple)) and len(axis) == 1:
        inner["axis"] = int(axis[0])
    return "BatchNormalization", inner


def _synchronized(inner: Arguments) -> tuple[str, Arguments]:
    name, inner = _batch_normalization(inner)
    return name, {**inner, "synchronized": True}


def _gru(inner: Arguments) -> tuple[str, Arguments]:
    # Before Keras 2.1.3 this argument did not exist, and the reset was first.
    inner.setdefault("reset_after", False)
    return "GRU", inner


def _gru_cell(inner: Arguments) -> tuple[str, Arguments]:
    return "GRUCell", _gru(inner)[1]


def _leaky_relu(inner: Arguments) -> tuple[str, Arguments]:
    if "alpha" in inner:
        inner["negative_slope"] = inner.pop("alpha")
    return "LeakyReLU", inner


def _without_kernel(name: str) -> Rule:
    """Return a rule that removes the kernel arguments of a convolution without one."""

    def rule(inner: Arguments) -> tuple[str, Arguments]:
        removed_keys = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")
        inner = {key: value for key, value in inner.items() if key not in removed_keys}
        if name.startswith("Depthwise"):
            inner.pop("filters", None)
        return name, inner

    return rule


def _category_encoding(inner: Arguments) -> tuple[str, Arguments]:
    if "max_tokens" in inner:
        inner["num_tokens"] = inner.pop("max_tokens")
    return "CategoryEncoding", _multi_hot(inner)


def _multi_hot(inner: Arguments) -> Arguments:
    """Rename the output mode of zeros and ones to its current name."""
    if inner.get("output_mode") == "binary":
        inner["output_mode"] = "multi_hot"
    return inner


def _lookup(name: str) -> Rule:
    def rule(inner: Arguments) -> tuple[str, Arguments]:
        inner.pop("has_input_vocabulary", None)
        inner.pop("vocabulary_size", None)
        return name, _multi_hot(inner)

    return rule


def _discretization(inner: Arguments) -> tuple[str, Arguments]:
    if "bins" in inner:
        inner["bin_boundaries"] = inner.pop("bins")
    return "Discretization", inner


def _without_noise_shape(name: str) -> Rule:
    """Return a rule for a dropout of whole channels, whose noise shape is fixed."""

    def rule(inner: Arguments) -> tuple[str, Arguments]:
        inner.pop("noise_shape", None)
        return name, inner

    return rule


def _lambda(inner: Arguments) -> tuple[str, Arguments]:
    """Convert a Lambda: its function needs a name, or an argument of the loader."""
    function = inner.get("function")
    if inner.get("function_type") == "function" and isinstance(function, str):
        inner["function"] = {
            "module": "builtins",
            "class_name": "function",
            "config": function,
            "registered_name": function,
        }
    elif not isinstance(function, dict):
        inner["function"] = {"class_name": "__lambda__", "config": {"value": None}}
    shape: Any = inner.get("output_shape")
    is_shape = isinstance(shape, (list, tuple)) and all(
        isinstance(extent, int) or extent is None for extent in shape
    )
    arguments = ("name", "trainable", "dtype", "function", "mask", "arguments")
    inner = {key: inner[key] for key in arguments if key in inner}
    if is_shape and inner.get("output_shape_type", "raw") == "raw":
        inner["output_shape"] = tuple(shape)
    return "Lambda", inner


def _removed(name: str) -> Rule:
    def rule(inner: Arguments) -> tuple[str, Arguments]:
        raise ModelFileError(
            f"{name} {inner.get('name')!r}: Keras 3 does not have this layer; use "
            f"{_REMOVED[name]} in the model instead"
        )

    return rule


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_normalization,
    "CategoryEncoding": _category_encoding,
    "Discretization": _discretization,
    "GRU": _gru,
    "GRUCell": _gru_cell,
    "Lambda": _lambda,
    "LeakyReLU": _leaky_relu,
    "SyncBatchNormalization": _synchronized,
    **{
        name: _without_noise_shape(name)
        for name in ("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
    },
    **{name: _lookup(name) for name in ("IntegerLookup", "StringLookup")},
    "TextVectorization": _lookup("TextVectorization"),
    **{
        name: _without_kernel(name)
        for kind in ("SeparableConv", "DepthwiseConv")
        for name in (f"{kind}1D", f"{kind}2D")
    },
    **{name: _removed(name) for name in _REMOVED},
}
