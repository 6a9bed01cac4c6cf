"""`tf.keras.backend`: toolkit's backend, and tensor functions of Keras 2."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from toolkit import backend as core, ops, random
from toolkit.backend import *  # noqa: F403
from toolkit.compat.tensorflow import nn
from toolkit.compat.tensorflow.arrays import (
    constant as constant,
    one_hot as one_hot,
    ones as ones,
    ones_like as ones_like,
    reshape as reshape,
    shape as shape,
    zeros as zeros,
    zeros_like as zeros_like,
)
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.ctc import (
    ctc_batch_cost as ctc_batch_cost,
    ctc_decode as ctc_decode,
    ctc_label_dense_to_sparse as ctc_label_dense_to_sparse,
)
from toolkit.compat.tensorflow.math import l2_normalize as l2_normalize
from toolkit.compat.tensorflow.nn import bias_add as bias_add
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.variables import Variable
from toolkit.core.tensor import Tensor
from toolkit.errors import UnsupportedError
from toolkit.type_aliases import Axis, DTypeLike, TensorLike

_UNARY = "abs cos exp log round sigmoid sign sin softplus softsign sqrt square tanh"
_BINARY = "equal greater greater_equal less less_equal maximum minimum not_equal"
_CROSS_ENTROPIES = "categorical_crossentropy sparse_categorical_crossentropy"
_REDUCTIONS = "all any logsumexp max mean min prod std sum var"

globals().update(
    rename_functions(
        {
            **{name: (getattr(ops, name), "x") for name in _UNARY.split()},
            **{name: (getattr(ops, name), "x y") for name in _BINARY.split()},
            **{
                name: (getattr(ops, name), "x axis keepdims")
                for name in _REDUCTIONS.split()
            },
            **{
                name: (getattr(ops, name), "target output from_logits axis")
                for name in _CROSS_ENTROPIES.split()
            },
            "arange": (ops.arange, "start stop step dtype"),
            "argmax": (ops.argmax, "x axis keepdims"),
            "argmin": (ops.argmin, "x axis keepdims"),
            "binary_crossentropy": (
                ops.binary_crossentropy,
                "target output from_logits",
            ),
            "cast": (ops.cast, "x dtype"),
            "cumprod": (ops.cumprod, "x axis"),
            "cumsum": (ops.cumsum, "x axis"),
            "dot": (ops.dot, "x y"),
            "eye": (ops.eye, "size"),
            "hard_sigmoid": (ops.hard_sigmoid, "x"),
            "permute_dimensions": (ops.transpose, "x pattern"),
            "random_normal": (random.normal, "shape mean stddev dtype seed"),
            "random_uniform": (random.uniform, "shape minval maxval dtype seed"),
            "repeat_elements": (ops.repeat, "x rep axis"),
            "reverse": (ops.flip, "x axes"),
            "tile": (ops.tile, "x n"),
            "clip": (ops.clip, "x min_value max_value"),
            "concatenate": (ops.concatenate, "tensors axis"),
            "expand_dims": (ops.expand_dims, "x axis"),
            "pow": (ops.power, "x a"),
            "relu": (ops.relu, "x"),
            "softmax": (ops.softmax, "x axis"),
            "squeeze": (ops.squeeze, "x axis"),
            "stack": (ops.stack, "x axis"),
            "stop_gradient": (ops.stop_gradient, "variables"),
            "transpose": (ops.transpose, "x"),
        }
    )
)
elu: Any = vars(nn)["elu"]


@wrap_results
def flatten(x: TensorLike) -> Tensor:
    """Flatten a tensor to one axis."""
    return ops.reshape(x, (-1,))


@wrap_results
def batch_flatten(x: Any) -> Tensor:
    """Flatten all axes but the first."""
    x = convert(x)
    return ops.reshape(x, (x.shape[0], -1))


def ndim(x: Any) -> int:
    """Return the number of axes."""
    return len(x.shape)


def int_shape(x: Any) -> tuple[Any, ...]:
    """Return the extents, None for a dynamic extent."""
    return tuple(x.shape)


def dtype(x: Any) -> str:
    """Return the name of the dtype."""
    return str(x.dtype)


@wrap_results
def cast_to_floatx(x: TensorLike) -> Any:
    """Cast to the default floating dtype; the result for an array is an array."""
    if isinstance(x, np.ndarray):
        return x.astype(core.floatx())
    return ops.cast(x, core.floatx())


@wrap_results
def gather(reference: Any, indices: TensorLike) -> Tensor:
    """Gather the rows at the indices."""
    return ops.take(reference, indices, 0)


def batch_dot(x: Any, y: Any, axes: Axis | None = None) -> Tensor:
    """Multiply each sample of x with the sample of y, and sum over one axis of each.

    The default is the last axis of x and the last but one of y, or its only one.
    """
    x, y = convert(x), convert(y)
    first, second = (axes, axes) if isinstance(axes, int) else axes or (
        x.ndim - 1,
        builtins.max(y.ndim - 2, 1),
    )  # fmt: skip
    letters = "bcdefghij"
    of_x, of_y = list(letters[: x.ndim]), ["b", *"klmnopq"[: y.ndim - 1]]
    of_x[first] = of_y[second] = "z"
    output_labels = [n for n in of_x if n != "z"] + [n for n in of_y[1:] if n != "z"]
    result = ops.einsum(
        f"{''.join(of_x)},{''.join(of_y)}->{''.join(output_labels)}", x, y
    )
    return result if result.ndim > 1 else ops.expand_dims(result, 1)


@wrap_results
def switch(condition: TensorLike, then_expression: Any, else_expression: Any) -> Any:
    """Select one of two tensors, or call one of two functions."""
    if callable(then_expression):
        return ops.cond(condition, then_expression, else_expression)
    return ops.where(condition, then_expression, else_expression)


def variable(
    value: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Variable:
    """Create a Variable."""
    return Variable(value, dtype=dtype or core.floatx(), name=name)


def update(x: Any, new_x: Any) -> Any:
    """Assign a value to a Variable."""
    return x.assign(new_x)


def count_params(x: Any) -> int:
    """Return the number of elements."""
    return int(np.prod(x.shape))


def get_value(x: TensorLike) -> Any:
    """Return the value of a Variable or tensor as an array."""
    return convert(x).numpy()


def set_value(x: Any, value: Any) -> None:
    """Assign a value to a Variable."""
    x.assign(value)


def batch_set_value(tuples: Any) -> None:
    """Assign values to Variables."""
    for x, value in tuples:
        x.assign(value)


def learning_phase() -> Any:
    """Raise: the argument `training` of a model's call has the learning phase."""
    raise UnsupportedError(
        "backend.learning_phase: pass `training` to the call instead"
    )


def __getattr__(name: str) -> Any:
    return getattr(core, name)
