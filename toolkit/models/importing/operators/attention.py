"""Attention, with heads in a separate axis or in the features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.values import Value
from toolkit.reading.onnx.tensors import dtype_of

_HEADS = (0, 2, 1, 3)  # (batch, heads, steps, features) as (batch, steps, heads, ...)
_LOGITS = 3  # the output of logits or weights
_MODES = range(4)  # that output: logits, capped, with the bias, after the softmax


@dataclass
class _Mask:
    """Mask of a query: `allowed` and `bias` broadcast to the logits, or None."""

    allowed: Any = None
    bias: Any = None

    def limit(self, allowed: Any) -> None:
        """Combine with another boolean mask."""
        if self.allowed is not None:
            allowed = ops.logical_and(self.allowed, allowed)
        self.allowed = allowed

    def sees_something(self) -> Any:
        """Return which queries have an unmasked key; None if all have one."""
        visible = self.allowed
        if self.bias is not None:
            finite = self.bias > -math.inf
            visible = finite if visible is None else ops.logical_and(visible, finite)
        return None if visible is None else ops.any(visible, axis=-1, keepdims=True)


def _attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> Any:
    """Compute softmax(query key^T scale + mask) value, for each head."""
    heads = call.integer("q_num_heads", None), call.integer("kv_num_heads", None)
    q, k, v = (
        _split(x, n) for x, n in ((query, heads[0]), (key, heads[1]), (value, heads[1]))
    )
    steps = 0
    if (past_key is None) != (past_value is None) or (lengths and past_key):
        raise ModelFileError("expected a cache of keys and values, or their lengths")
    if past_key is not None and past_value is not None:
        steps = past_key.shape[2]
        k, v = _joined(call, past_key, k), _joined(call, past_value, v)
    if q.shape[1] % max(k.shape[1], 1) or k.shape[:3] != v.shape[:3]:
        raise ModelFileError(
            f"{q.shape[1]} query heads do not fit keys of shape {k.shape}"
        )
    call.allow((*q.shape[:3], k.shape[2]), q.dtype)
    call.work(*q.shape[:3], k.shape[2], q.shape[3] + v.shape[3])
    visible = _read_mask(mask, k.shape[2])
    is_causal = _limit_steps(call, visible, q.shape[2], k.shape[2], steps, lengths)
    y, weights = _mixed(call, q, k, v, visible, is_causal)
    if query.ndim == 3:
        y = Value(ops.reshape(y.ordered(_HEADS), (y.shape[0], y.shape[2], -1)))
    return (y, k, v, weights)[: max(call.outputs, 1)]


def _split(x: Value, heads: int | None) -> Value:
    """Return (batch, heads, steps, features)."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or heads < 1 or x.shape[2] % heads:
        raise ModelFileError(f"cannot split shape {x.shape} into {heads} heads")
    n, steps, features = x.shape
    split = ops.reshape(x.tensor, (n, steps, heads, features // heads))
    return Value(split, _HEADS)


def _joined(call: Call, past: Value, x: Value) -> Value:
    """Concatenate the past and the new steps."""
    n, heads, steps, features = x.shape
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (n, heads, features):
        raise ModelFileError(
            f"a cache of shape {past.shape} does not fit shape {x.shape}"
        )
    call.allow((n, heads, past.shape[2] + steps, features), x.dtype)
    tensors = [past.ordered(_HEADS), x.ordered(_HEADS)]
    return Value(ops.concatenate(tensors, axis=1), _HEADS)


# --- masks ----------------------------------------------------------------------------


def _read_mask(mask: Value | None, keys: int) -> _Mask:
    """Return the mask of the node; keys after its end are masked."""
    if mask is None:
        return _Mask()
    if not 1 <= mask.ndim <= 4:
        raise ModelFileError(f"unsupported mask of shape {mask.shape}")
    tensor, padding = mask.tensor, keys - mask.shape[-1]
    if padding > 0 and mask.shape[-1] != 1:
        fill = False if mask.dtype == "bool" else -math.inf
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, padding)]
        tensor = ops.pad(tensor, widths, "constant", fill)
    tensor = ops.reshape(tensor, (*(1,) * (4 - mask.ndim), *tensor.shape))
    return _Mask(allowed=tensor) if mask.dtype == "bool" else _Mask(bias=tensor)


def _limit_steps(
    call: Call, mask: _Mask, queries: int, keys: int, steps: int, lengths: Value | None
) -> bool:
    """Limit a mask to keys within the window and without padding.

    Returns:
        Whether the remaining mask is purely causal.
    """
    causal = call.integer("is_causal", 0)
    left_size = call.integer("left_window_size", -1)
    right_size = call.integer("right_window_size", -1)
    if min(left_size, right_size) < -1:
        raise ModelFileError(f"windows of {left_size} and {right_size}")
    plain = mask.allowed is None and mask.bias is None and lengths is None
    if plain and causal and not steps and max(left_size, right_size) < 0:
        return True
    columns = ops.reshape(ops.arange(keys, dtype="int64"), (1, 1, 1, -1))
    rows = ops.reshape(ops.arange(queries, dtype="int64"), (1, 1, -1, 1)) + steps
    if lengths is not None:
        counts = ops.reshape(ops.cast(lengths.tensor, "int64"), (-1, 1, 1, 1))
        rows = rows + (counts - queries)
        mask.limit(columns < counts)
    if causal:
        mask.limit(columns <= rows)
    if left_size >= 0:
        mask.limit(columns >= rows - left_size)
    if right_size >= 0:
        mask.limit(columns <= rows + right_size)
    return False


# --- products -------------------------------------------------------------------------


def _mixed(
    call: Call, q: Value, k: Value, v: Value, mask: _Mask, is_causal: bool
) -> tuple[Value, Value | None]:
    """Return the mixed values, and the logits or weights if they are requested."""
    cap, scale = float(call.number("softcap", 0.0)), call.number("scale", None)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    mode, number = (
        call.integer("qk_matmul_output_mode", 0),
        call.integer("softmax_precision", 0),
    )
    dtype = dtype_of(number, "softmax_precision") if number else q.dtype
    if mode not in _MODES:
        raise ModelFileError(f"unsupported qk_matmul_output_mode={mode}")
    wide = dtype == q.dtype and dtype in ("float32", "float64")
    if not wide or call.is_output_used(_LOGITS):
        if is_causal:
            visible = ops.arange(k.shape[2]) <= ops.expand_dims(
                ops.arange(q.shape[2]), 1
            )
            mask.limit(ops.reshape(visible, (1, 1, *visible.shape)))
        y, logits_of_mode = _by_steps(q, k, v, mask, (scale, cap, dtype))
        return Value(y), Value(logits_of_mode[mode])
    extras: dict[str, Any] = {} if cap == 0 else {"attn_logits_soft_cap": cap}
    y = ops.dot_product_attention(
        q.ordered(_HEADS),
        k.ordered(_HEADS),
        v.ordered(_HEADS),
        bias=mask.bias,
        mask=mask.allowed,
        scale=scale,
        is_causal=is_causal,
        **extras,
    )
    visible = mask.sees_something()
    if visible is not None:  # a fully masked query has the result 0
        y = ops.where(ops.transpose(visible, _HEADS), y, ops.zeros_like(y))
    return Value(y, _HEADS), None


def _by_steps(q: Value, k: Value, v: Value, mask: _Mask, how: Any) -> Any:
    """Return the mixed values and the output of each mode, in the file's dtypes."""
    scale, cap, dtype = how
    times = q.shape[1] // k.shape[1]
    keys, values = (
        ops.repeat(x.tensor, times, axis=1) if times > 1 else x.tensor for x in (k, v)
    )
    root = ops.cast(math.sqrt(scale), q.dtype)
    logits = ops.matmul(q.tensor * root, ops.transpose(keys * root, (0, 1, 3, 2)))
    capped = cap * ops.tanh(logits / cap) if cap > 0 else logits
    biased = capped if mask.bias is None else capped + ops.cast(mask.bias, q.dtype)
    if mask.allowed is not None:
        low = ops.cast(-math.inf, q.dtype)
        biased = ops.where(mask.allowed, biased, low)
    weights = _softmax(ops.cast(biased, dtype))
    visible = mask.sees_something()
    if visible is not None:
        weights = ops.where(visible, weights, ops.zeros_like(weights))
    weights = ops.cast(weights, q.dtype)
    return ops.matmul(weights, values), (logits, capped, biased, weights)


def _softmax(x: Any) -> Any:
    """Return the softmax over the last axis, each step rounded to the dtype of x."""
    largest = ops.max(x, axis=-1, keepdims=True)
    largest = ops.where(ops.isinf(largest), ops.zeros_like(largest), largest)
    powers = ops.exp(x - largest)
    return powers / ops.sum(powers, axis=-1, keepdims=True)


# --- positions ------------------------------------------------------------------------


def _rotary(
    call: Call, x: Value, cosines: Value, sines: Value, positions: Value | None = None
) -> Value:
    """Rotate pairs of features by angles that depend on the position."""
    split = _split(x, call.integer("num_heads", 0))
    features = split.shape[3]
    count = call.integer("rotary_embedding_dim", 0) or features
    pairs = call.integer("interleaved", 0)
    angles = [_angles(table, positions) for table in (cosines, sines)]
    expected = (split.shape[0], split.shape[2], count // 2)
    shapes = [tuple(angle.shape) for angle in angles]
    if not 0 < count <= features or count % 2 or shapes != [expected, expected]:
        raise ModelFileError(
            f"cannot rotate {count} of {features} features by angles of shapes {shapes}"
        )
    cos, sin = (ops.expand_dims(angle, 2) for angle in angles)
    tensor = split.ordered(_HEADS)
    rotated, unrotated = tensor[..., :count], tensor[..., count:]
    if pairs:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    else:
        first, second = rotated[..., : count // 2], rotated[..., count // 2 :]
    tensors = [cos * first - sin * second, sin * first + cos * second]
    joined = ops.stack(tensors, axis=-1) if pairs else ops.concatenate(tensors, axis=-1)
    y = ops.concatenate([ops.reshape(joined, rotated.shape), unrotated], axis=-1)
    if x.ndim == 3:
        return Value(ops.reshape(y, x.shape))
    return Value(y, _HEADS)


def _angles(table: Value, positions: Value | None) -> Any:
    """Return cosines or sines of each position: (batch, steps, features / 2)."""
    if positions is None:
        return table.tensor
    return ops.take(table.tensor, positions.tensor, axis=0)


OPERATORS = (
    Operator("Attention", _attention),
    Operator("RotaryEmbedding", _rotary),
)
