"""Attention, with heads in an axis of their own or in the features."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.values import Value

_HEADS = (0, 2, 1, 3)  # (batch, heads, steps, features) as (batch, steps, heads, ...)
_MODES = 3  # an output of the logits


def _attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
) -> Any:
    """softmax(query key^T scale + mask) value, for each head."""
    causal, cap = call.integer("is_causal", 0), float(call.number("softcap", 0.0))
    heads = call.integer("q_num_heads", None), call.integer("kv_num_heads", None)
    scale = call.number("scale", None)
    call.integer("qk_matmul_output_mode", 0)
    call.integer("softmax_precision", 1)
    if call.wants(_MODES):
        raise UnsupportedError("expected attention whose logits are not wanted")
    q, k, v = (
        _split(x, n) for x, n in ((query, heads[0]), (key, heads[1]), (value, heads[1]))
    )
    steps = 0
    if past_key is not None and past_value is not None:
        steps = past_key.shape[2]
        k, v = _joined(call, past_key, k), _joined(call, past_value, v)
    call.allow((*q.shape[:3], k.shape[2]), q.dtype)
    call.work(*q.shape[:3], k.shape[2], q.shape[3] + v.shape[3])
    extras: dict[str, Any] = {} if cap == 0 else {"attn_logits_soft_cap": cap}
    extras |= _mask(mask)
    masked = "mask" in extras
    if causal and (steps or masked):  # what came before is seen by all
        rows = ops.expand_dims(ops.arange(q.shape[2], dtype="int32"), 1) + steps
        seen = ops.arange(k.shape[2], dtype="int32") <= rows
        given = extras.get("mask")
        extras["mask"] = seen if given is None else ops.logical_and(seen, given)
    y = ops.dot_product_attention(
        q.ordered(_HEADS),
        k.ordered(_HEADS),
        v.ordered(_HEADS),
        scale=None if scale is None else float(scale),
        is_causal=bool(causal and not steps and not masked),
        **extras,
    )
    if masked:  # where nothing is seen, the result is 0
        seen = ops.any(extras["mask"], axis=-1, keepdims=True)
        seen = ops.reshape(seen, (*(1,) * (4 - seen.ndim), *seen.shape))
        y = ops.where(ops.transpose(seen, _HEADS), y, ops.zeros_like(y))
    if query.ndim == 3:
        out = Value(ops.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3])))
    else:
        out = Value(y, _HEADS)
    return (out, k, v)[: max(call.outputs, 1)]


def _split(x: Value, heads: int | None) -> Value:
    """(batch, heads, steps, features)."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or heads < 1 or x.shape[2] % heads:
        raise ModelFileError(f"{heads} heads of shape {x.shape}")
    n, steps, features = x.shape
    split = ops.reshape(x.tensor, (n, steps, heads, features // heads))
    return Value(split, _HEADS)


def _joined(call: Call, past: Value, x: Value) -> Value:
    """What was there, and then what is new."""
    n, heads, steps, features = x.shape
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (n, heads, features):
        raise ModelFileError(f"a cache of {past.shape} for shape {x.shape}")
    call.allow((n, heads, past.shape[2] + steps, features), x.dtype)
    parts = [past.ordered(_HEADS), x.ordered(_HEADS)]
    return Value(ops.concatenate(parts, axis=1), _HEADS)


def _mask(mask: Value | None) -> dict[str, Any]:
    if mask is None:
        return {}
    if mask.ndim > 4:
        raise ModelFileError(f"a mask of shape {mask.shape}")
    return {"mask" if mask.dtype == "bool" else "bias": mask.tensor}


OPERATORS = (Operator("Attention", _attention),)
