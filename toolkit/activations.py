"""Activation functions by name.

An activation that `keras.ops` also has is a function of `toolkit.ops`, and is imported
from there. All others are defined here. An argument such as `activation` may be a name,
a function, a config, or None for no activation.
"""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.ops import (
    celu as celu,
    elu as elu,
    glu as glu,
    hard_shrink as hard_shrink,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_tanh as hard_tanh,
    leaky_relu as leaky_relu,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_shrink as soft_shrink,
    softmax as softmax,
    softplus as softplus,
    softsign as softsign,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    sparsemax as sparsemax,
    squareplus as squareplus,
    tanh as tanh,
    tanh_shrink as tanh_shrink,
    threshold as threshold,
)
from toolkit.ops.symbolic import operation
from toolkit.serialization import (
    deserialize_keras_object,
    get_registered_object,
    serialize_keras_object,
)
from toolkit.type_aliases import ActivationLike, TensorLike


@operation
def relu(
    x: TensorLike,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Tensor:
    """Return x above the threshold, negative_slope * (x - threshold) below it.

    Args:
        x: any shape.
        negative_slope: the slope below the threshold.
        max_value: values above the threshold are limited to [0, max_value]; None for no
            limit.
        threshold: the value at which the slope changes.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> from toolkit import activations
        >>> activations.relu([-1.0, 0.0, 8.0], max_value=6.0).tolist()
        [0.0, 0.0, 6.0]
    """
    x = convert(x)
    if negative_slope == 0 and threshold == 0:
        return ops.relu(x) if max_value is None else _clip_above(x, max_value)
    if negative_slope == 0:
        # The condition is false for NaN, so that it stays NaN.
        below = ops.less_equal(x, threshold)
        return ops.where(below, ops.zeros_like(x), _clip_above(x, max_value))
    (x,) = floating(x)
    below = negative_slope * (x - threshold)
    return ops.where(ops.greater(x, threshold), _clip_above(x, max_value), below)


def _clip_above(x: Tensor, max_value: float | None) -> Tensor:
    return x if max_value is None else ops.clip(x, 0, max_value)


@operation
def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """Multiply x by the probability that a standard normal variable is below x.

    Args:
        x: any shape.
        approximate: whether to approximate the probability with a tanh.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> from toolkit import activations
        >>> [round(y, 4) for y in activations.gelu([-1.0, 0.0, 2.0]).tolist()]
        [-0.1587, 0.0, 1.9545]

    Reference:
        https://arxiv.org/abs/1606.08415
    """
    return ops.gelu(x, approximate)


@operation
def exponential(x: TensorLike) -> Tensor:
    """Compute exp(x), elementwise.

    Args:
        x: any shape.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> from toolkit import activations
        >>> [round(y, 4) for y in activations.exponential([-1.0, 0.0, 2.0]).tolist()]
        [0.3679, 1.0, 7.3891]
    """
    return ops.exp(x)


@operation
def mish(x: TensorLike) -> Tensor:
    """Compute x * tanh(softplus(x)), elementwise.

    Args:
        x: any shape.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> from toolkit import activations
        >>> [round(y, 4) for y in activations.mish([-1.0, 0.0, 2.0]).tolist()]
        [-0.3034, 0.0, 1.944]

    Reference:
        https://arxiv.org/abs/1908.08681
    """
    (x,) = floating(x)
    return x * ops.tanh(ops.softplus(x))


@operation
def legacy_hard_sigmoid(x: TensorLike) -> Tensor:
    """Compute 0.2 * x + 0.5, limited to [0, 1]: the hard sigmoid of Keras 1 and 2.

    Models in Keras 2 files use it under the name `hard_sigmoid`.

    Args:
        x: any shape.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> import toolkit
        >>> toolkit.activations.legacy_hard_sigmoid([-3.0, 0.0, 1.0]).numpy().tolist()
        [0.0, 0.5, 0.699999988079071]
    """
    (x,) = floating(x)
    return ops.clip(0.2 * x + 0.5, 0, 1)


def linear(x: TensorLike) -> Any:
    """Return x: no activation.

    Args:
        x: any value.

    Returns:
        The same value.

    Example:
        >>> from toolkit import activations
        >>> activations.linear([-1.0, 2.0])
        [-1.0, 2.0]
    """
    return x


hard_swish = hard_silu
swish = silu

# Each operation that this module defines or imports is an activation, by its name.
_ACTIVATIONS: dict[str, Any] = {
    **{name: x for name, x in dict(vars()).items() if hasattr(x, "__wrapped__")},
    "linear": linear,
}


def serialize(activation: ActivationLike) -> Any:
    """Return an activation's name if it is in this module, else its config.

    Args:
        activation: a function.

    Returns:
        The name, or a dict of plain values.

    Example:
        >>> from toolkit import activations
        >>> activations.serialize(activations.relu)
        'relu'
    """
    name = getattr(activation, "__name__", None)
    if _ACTIVATIONS.get(str(name)) is activation:
        return name
    return serialize_keras_object(activation)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the activation for a name or config.

    Args:
        config: the result of `serialize`, or a name.
        custom_objects: a dict from names to functions that the config contains.

    Returns:
        The function.

    Example:
        >>> from toolkit import activations
        >>> activations.deserialize("relu") is activations.relu
        True
    """
    return deserialize_keras_object(
        config, custom_objects=custom_objects, module_objects=_ACTIVATIONS
    )


def get(identifier: Any) -> Any:
    """Return the activation for an argument.

    Args:
        identifier: a name, a function, a config, or None for `linear`.

    Returns:
        A function.

    Example:
        >>> import toolkit
        >>> toolkit.activations.get("relu")([-1.0, 2.0]).numpy().tolist()
        [0.0, 2.0]
    """
    if identifier is None:
        return linear
    activation = identifier
    if isinstance(identifier, str):
        registered = get_registered_object(identifier)
        activation = registered or _ACTIVATIONS.get(identifier)
        if activation is None:
            raise unknown_choice("activation", identifier, _ACTIVATIONS)
    elif isinstance(identifier, dict):
        activation = deserialize(identifier)
    if not callable(activation):
        raise ArgumentError(
            f"activation: expected a name, a function or a config; received "
            f"{identifier!r}"
        )
    return activation


__getattr__, __dir__ = lazy_namespace(__name__, {})
