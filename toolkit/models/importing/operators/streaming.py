"""Operators with an explicit state, to continue a sequence."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops
from toolkit.control_flow.loops import scan
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.values import Value
from toolkit.ops.conv import conv_p

_RULES = {  # rule -> whether it has a decay, and a correction
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
_ACTIVATIONS = ("none", "silu", "swish")


def _causal_conv(
    call: Call, x: Value, w: Value, bias: Value | None = None, past: Value | None = None
) -> tuple[Value, Value]:
    """Return a depthwise convolution over the past and the present."""
    activation = call.text("activation", "none")
    if activation not in _ACTIVATIONS:
        raise ModelFileError(
            f"expected activation to be one of {_ACTIVATIONS}; received {activation!r}"
        )
    if x.ndim != 3 or w.ndim != 3 or w.shape[:2] != (x.shape[1], 1):
        raise ModelFileError(f"weights of shape {w.shape} do not fit shape {x.shape}")
    batch, channels, steps = x.shape
    extra = w.shape[2] - 1
    call.allow((batch, channels, steps + extra), x.dtype)
    call.work(batch, steps, w.size)
    if past is None:
        before = ops.zeros((batch, extra, channels), x.dtype)
    elif past.shape != (batch, channels, extra):
        raise ModelFileError(
            f"a state of shape {past.shape} does not fit shape {x.shape}"
        )
    else:
        before = past.ordered((0, 2, 1))
    padded = ops.concatenate([before, x.ordered((0, 2, 1))], axis=1)
    y = bind(
        conv_p,
        padded,
        w.ordered((2, 1, 0)),
        strides=(1,),
        padding=((0, 0),),
        dilation=(1,),
        groups=channels,
    )
    y = y if bias is None else y + bias.tensor
    y = y if activation == "none" else ops.cast(ops.silu(y), x.dtype)
    return Value(y, (0, 2, 1)), Value(padded[:, steps:], (0, 2, 1))


def _linear_attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    past: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
) -> tuple[Value, Value]:
    """Compute attention without a softmax: each step reads a sum of outer products."""
    heads, groups = call.integer("kv_num_heads"), call.integer("q_num_heads")
    rule, scale = call.text("update_rule", "gated_delta"), call.number("scale", 0.0)
    call.integer("chunk_size", 64)  # a performance hint
    if rule not in _RULES or _RULES[rule] != (decay is not None, beta is not None):
        raise ModelFileError(
            f"unsupported update_rule={rule!r} with decay: {decay is not None}, "
            f"beta: {beta is not None}; expected one of {_RULES}"
        )
    if heads < 1 or groups < 1 or groups % heads:
        raise ModelFileError(
            f"{groups} query heads are not a multiple of {heads} key heads"
        )
    q, k, v = (
        _by_step(x, n) for x, n in ((query, groups), (key, heads), (value, heads))
    )
    steps, batch = q.shape[:2]
    state_shape = (batch, heads, k.shape[-1], v.shape[-1])
    if k.shape[:2] != q.shape[:2] or k.shape[:3] != v.shape[:3]:
        raise ModelFileError(
            f"queries, keys and values of shapes {query.shape}, {key.shape} and "
            f"{value.shape} do not fit"
        )
    if q.shape[-1] != k.shape[-1] or (past is not None and past.shape != state_shape):
        raise ModelFileError(
            f"queries of shape {query.shape} do not fit a state of shape {state_shape}"
        )
    call.allow((*state_shape,), "float32")
    call.work(steps, *state_shape, groups // heads + 2)
    rows = [q, k, v]
    if decay is not None:
        rows.append(ops.exp(_by_step(decay, heads)))
    if beta is not None:
        rows.append(_by_step(beta, beta.shape[-1]))
    start = ops.zeros(state_shape, "float32")
    if past is not None:
        start = ops.cast(past.tensor, "float32")
    factor = float(scale) or 1 / math.sqrt(k.shape[-1])
    with call.loop(steps):
        last, outputs = scan(
            _step_function(groups // heads, factor, _RULES[rule]), start, tuple(rows)
        )
    y = ops.reshape(ops.moveaxis(outputs, 0, 1), (batch, steps, groups * v.shape[-1]))
    kind = query.dtype if past is None else past.dtype
    return Value(ops.cast(y, query.dtype)), Value(ops.cast(last, kind))


def _by_step(x: Value, heads: int) -> Tensor:
    """Return (steps, batch, heads, features) in float32."""
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads:
        raise ModelFileError(f"cannot split shape {x.shape} into {heads} heads")
    split = ops.reshape(x.tensor, (*x.shape[:2], heads, x.shape[2] // heads))
    return ops.cast(ops.moveaxis(split, 1, 0), "float32")


def _step_function(times: int, factor: float, rule: tuple[bool, bool]) -> Any:
    """Return a function (state, row) -> (new state, output)."""

    def step(state: Any, row: Any) -> Any:
        q, k, v, *extras = row
        if rule[0]:
            state = state * ops.expand_dims(extras[0], -1)
        if rule[1]:
            v = extras[-1] * (v - ops.einsum("bhdm,bhd->bhm", state, k))
        state = state + ops.expand_dims(k, -1) * ops.expand_dims(v, -2)
        read = ops.repeat(state, times, axis=1) if times > 1 else state
        return state, factor * ops.einsum("bhd,bhdm->bhm", q, read)

    return step


OPERATORS = (
    Operator("CausalConvWithState", _causal_conv),
    Operator("LinearAttention", _linear_attention),
)
