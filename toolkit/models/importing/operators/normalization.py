"""Normalization operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator, axes_of, axis_of
from toolkit.models.importing.operators.elementwise import apply
from toolkit.models.importing.values import Value, channels_last, file_order


def _batch_normalization(
    call: Call, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Any:
    epsilon = float(call.number("epsilon", 1e-5))
    momentum = float(call.number("momentum", 0.9))
    if call.opset <= 8:
        call.integer("spatial", 1)
        call.integer("is_test", 0)
    training = call.integer("training_mode", 0)
    order = channels_last(x.ndim)
    tensor = x.ordered(order)
    for value in (scale, bias, mean, variance):
        if x.ndim < 2 or value.shape != (x.shape[1],):
            raise ModelFileError(
                f"parameters of shape {value.shape} do not fit shape {x.shape}"
            )
    moments = mean.tensor, variance.tensor
    if training:
        moments = ops.moments(tensor, axes=tuple(range(x.ndim - 1)))
    y = ops.batch_normalization(
        tensor, *moments, -1, bias.tensor, scale.tensor, epsilon
    )
    y = ops.cast(y, x.dtype)
    if not training:
        return Value(y, order)
    news = [
        Value(old.tensor * momentum + new * (1 - momentum))
        for old, new in zip((mean, variance), moments, strict=True)
    ]
    return Value(y, order), *news


def _instance_normalization(call: Call, x: Value, scale: Value, bias: Value) -> Value:
    epsilon = float(call.number("epsilon", 1e-5))
    if x.ndim < 3 or scale.shape != (x.shape[1],) or bias.shape != scale.shape:
        raise ModelFileError(
            f"parameters of shape {scale.shape} do not fit shape {x.shape}"
        )
    order = channels_last(x.ndim)
    tensor = x.ordered(order)
    axes = tuple(range(1, x.ndim - 1))
    y = _standard(tensor, axes, epsilon)
    return Value(y * scale.tensor + bias.tensor, order)


def _standard(tensor: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """Normalize to mean 0 and variance 1 over axes."""
    centered = tensor - ops.mean(tensor, axis=axes, keepdims=True)
    variance = ops.mean(centered * centered, axis=axes, keepdims=True)
    return centered * ops.rsqrt(variance + epsilon)


def _group_normalization(call: Call, x: Value, scale: Value, bias: Value) -> Value:
    epsilon = float(call.number("epsilon", 1e-5))
    groups = call.integer("num_groups")
    call.integer("stash_type", 1)
    if x.ndim < 3 or groups < 1 or x.shape[1] % groups:
        raise ModelFileError(f"cannot split shape {x.shape} into {groups} groups")
    order = channels_last(x.ndim)
    tensor = x.ordered(order)
    n, *spatial, channels = tensor.shape
    rows = ops.reshape(tensor, (n, math.prod(spatial), groups, channels // groups))
    y = _standard(rows, (1, 3), epsilon)
    if scale.shape == (groups,) and groups != channels:  # until opset 20, per group
        factor, offset = (ops.expand_dims(v.tensor, 1) for v in (scale, bias))
        return Value(ops.reshape(y * factor + offset, tensor.shape), order)
    y = ops.reshape(y, tensor.shape)
    return Value(y * scale.tensor + bias.tensor, order)


def _layer_normalization(
    call: Call, x: Value, scale: Value, bias: Value | None = None
) -> Any:
    epsilon = float(call.number("epsilon", 1e-5))
    call.integer("stash_type", 1)
    axis = axis_of(call.integer("axis", -1), x.ndim)
    axes = tuple(range(axis, x.ndim))
    shape = x.shape[axis:]
    parameters = [v for v in (scale, bias) if v is not None]
    if all(v.shape == shape for v in parameters) and call.outputs == 1:
        gamma, beta = scale.tensor, None if bias is None else bias.tensor
        return Value(ops.layer_normalization(x.tensor, gamma, beta, axes, epsilon))
    tensor = x.tensor
    mean = ops.mean(tensor, axis=axes, keepdims=True)
    centered = tensor - mean
    variance = ops.mean(centered * centered, axis=axes, keepdims=True)
    factor = ops.rsqrt(variance + epsilon)
    y = apply(call, ops.multiply, Value(centered * factor), scale)
    y = y if bias is None else apply(call, ops.add, y, bias)
    return y, Value(mean), Value(factor)


def _rms_normalization(call: Call, x: Value, scale: Value) -> Value:
    epsilon = float(call.number("epsilon", 1e-5))
    call.integer("stash_type", 1)
    axes = tuple(range(axis_of(call.integer("axis", -1), x.ndim), x.ndim))
    tensor = x.tensor
    square = ops.mean(tensor * tensor, axis=axes, keepdims=True)
    return apply(call, ops.multiply, Value(tensor * ops.rsqrt(square + epsilon)), scale)


def _lp_normalization(call: Call, x: Value) -> Value:
    axis, p = axis_of(call.integer("axis", -1), x.ndim), call.integer("p", 2)
    if p not in (1, 2):
        raise ModelFileError(f"unsupported p={p}")
    t = x.tensor
    if p == 1:
        norm = ops.sum(ops.abs(t), axis=axis, keepdims=True)
    else:
        norm = ops.sqrt(ops.sum(t * t, axis=axis, keepdims=True))
    quotient = t / ops.where(norm == 0, ops.ones_like(norm), norm)
    return Value(ops.where(norm == 0, ops.zeros_like(t), quotient))


def _local_response(call: Call, x: Value) -> Value:
    """Compute x / (bias + alpha / size * sum of squares of near channels) ** beta."""
    alpha, beta = float(call.number("alpha", 1e-4)), float(call.number("beta", 0.75))
    bias, size = float(call.number("bias", 1.0)), call.integer("size")
    if x.ndim < 3 or not 1 <= size <= 10_000:
        raise ModelFileError(f"size={size} does not fit shape {x.shape}")
    order = channels_last(x.ndim)
    tensor = x.ordered(order)
    channels = tensor.shape[-1]
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    widths = [*[(0, 0)] * (x.ndim - 1), (low, high)]
    call.allow((*tensor.shape[:-1], channels + size), x.dtype)
    call.work(x.size, size)
    squares = ops.pad(tensor * tensor, widths, "constant", 0.0)
    total = squares[..., :channels]
    for i in range(1, size):
        total = total + squares[..., i : i + channels]
    return Value(tensor / ops.power(bias + (alpha / size) * total, beta), order)


def _mean_variance(call: Call, x: Value) -> Value:
    axes = axes_of(call.integers("axes", (0, 2, 3)), x.ndim)
    order = x.orders[0]
    tensor = x.ordered(order)
    positions = tuple(order.index(axis) for axis in axes)
    centered = tensor - ops.mean(tensor, axis=positions, keepdims=True)
    variance = ops.mean(centered * centered, axis=positions, keepdims=True)
    return Value(centered / (ops.sqrt(variance) + 1e-9), order)


def along(x: Value, axis: int) -> tuple[Any, Any, int]:
    """Return a tensor of the value, its order, and the position of a file axis."""
    order = x.orders[0]
    return x.ordered(order), order, order.index(axis)


def _softmax(name: str, function: Callable[..., Any]) -> Operator:
    def of_one(tensor: Any) -> Any:
        return ops.zeros_like(tensor) if name == "LogSoftmax" else ops.ones_like(tensor)

    def run(call: Call, x: Value) -> Value:
        if call.opset >= 13:
            axis = axis_of(call.integer("axis", -1), x.ndim)
            tensor, order, position = along(x, axis)
            if x.shape[axis] == 1:
                return Value(of_one(tensor), order)
            return Value(function(tensor, position), order)
        axis = call.integer("axis", 1)
        axis = x.ndim if axis == x.ndim else axis_of(axis, x.ndim)
        if axis == x.ndim - 1:
            return Value(function(x.tensor, -1))
        # Before opset 13 all axes from `axis` on are merged.
        rows = math.prod(x.shape[:axis])
        flat = ops.reshape(x.tensor, (rows, math.prod(x.shape[axis:])))
        return Value(ops.reshape(function(flat, -1), x.shape), file_order(x.ndim))

    return Operator(name, run)


def _hardmax(tensor: Any, axis: int) -> Tensor:
    axis = axis % tensor.ndim
    extent = tensor.shape[axis]
    shape = [-1 if i == axis else 1 for i in range(tensor.ndim)]
    indices = ops.reshape(ops.arange(extent, dtype="int32"), shape)
    first = ops.expand_dims(ops.argmax(tensor, axis=axis), axis)
    return ops.cast(ops.equal(indices, ops.cast(first, "int32")), tensor.dtype)


OPERATORS = (
    Operator("BatchNormalization", _batch_normalization),
    Operator("InstanceNormalization", _instance_normalization),
    Operator("GroupNormalization", _group_normalization),
    Operator("LayerNormalization", _layer_normalization),
    Operator("RMSNormalization", _rms_normalization),
    Operator("LpNormalization", _lp_normalization),
    Operator("LRN", _local_response),
    Operator("MeanVarianceNormalization", _mean_variance),
    _softmax("Softmax", ops.softmax),
    _softmax("LogSoftmax", ops.log_softmax),
    _softmax("Hardmax", _hardmax),
)
