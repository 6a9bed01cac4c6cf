"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes
from toolkit.convert import convert, operands
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.contract import matmul
from toolkit.ops.creation import ones, tril
from toolkit.ops.elementwise import tanh, where
from toolkit.ops.numeric import logical_and
from toolkit.ops.shape import reshape, transpose
from toolkit.ops.softmax import softmax_p
from toolkit.symbolic import operation
from toolkit.tensor import Tensor, bind

# What masked logits become: finite, so that a row that is masked as a whole has equal
# weights and no NaN; small enough for exp(MASKED - maximum) to be 0.
MASKED = -2.0e38


@operation
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Tensor:
    """softmax(query @ key * scale + bias) @ value, for each head.

    Args:
        query: (batch, targets, heads, features).
        key: (batch, sources, key_heads, features); each key head serves
            heads / key_heads neighbouring query heads.
        value: of the shape of key; it may have other features.
        bias: added to the logits; broadcasts to (batch, heads, targets, sources).
        mask: booleans, True where attention is allowed; broadcasts like bias.
        scale: of the logits, 1 / sqrt(features) if None.
        is_causal: whether a target sees only the sources up to its own position.
        flash_attention: must not be True; there is one way to compute it.
        attn_logits_soft_cap: a limit c that the logits x approach as c * tanh(x / c),
            or None.

    Returns:
        (batch, targets, heads, features of value). The weights are computed in float32
        or wider.

    Reference:
        https://arxiv.org/abs/1706.03762
    """
    if flash_attention:
        raise ArgumentError(
            "dot_product_attention: flash_attention=True is not available; pass None "
            "or False"
        )
    (query, key, value), dtype = operands(query, key, value)
    _check(query, key, value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = _logits(query * convert(scale, dtype), key)
    logits = convert(logits, dtypes.result_type(dtype, "float32"))
    if attn_logits_soft_cap is not None:
        logits = attn_logits_soft_cap * tanh(logits / attn_logits_soft_cap)
    if bias is not None:
        logits = logits + convert(bias, logits.dtype)
    allowed = _allowed(mask, is_causal, logits.shape)
    if allowed is not None:
        logits = where(allowed, logits, convert(MASKED, logits.dtype))
    weights = bind(softmax_p, logits, axis=(3,))
    return _mix(convert(weights, dtype), value)


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    fits = query.ndim == key.ndim == value.ndim == 4
    fits = fits and query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3]
    fits = fits and key.shape[:3] == value.shape[:3]
    if not fits or query.shape[2] % key.shape[2]:
        raise ShapeError(
            "dot_product_attention: expected query (batch, targets, heads, features), "
            "key and value (batch, sources, key_heads, features), with heads a "
            f"multiple of key_heads; received {query.shape}, {key.shape} and "
            f"{value.shape}"
        )


def _grouped(x: Tensor, heads: int) -> Tensor:
    """(batch, n, h, f) as (batch, heads, h / heads, n, f)."""
    batch, n, h, f = x.shape
    return transpose(reshape(x, (batch, n, heads, h // heads, f)), (0, 2, 3, 1, 4))  # type: ignore[no-any-return]


def _logits(query: Tensor, key: Tensor) -> Tensor:
    """query @ key of each head: (batch, heads, targets, sources)."""
    batch, targets, heads, _ = query.shape
    sources, key_heads = key.shape[1:3]
    columns = transpose(_grouped(key, key_heads), (0, 1, 2, 4, 3))
    logits = matmul(_grouped(query, key_heads), columns)
    return reshape(logits, (batch, heads, targets, sources))  # type: ignore[no-any-return]


def _mix(weights: Tensor, value: Tensor) -> Tensor:
    """weights @ value of each head: (batch, targets, heads, features)."""
    batch, heads, targets, sources = weights.shape
    key_heads, features = value.shape[2:]
    shape = (batch, key_heads, heads // key_heads, targets, sources)
    mixed = matmul(reshape(weights, shape), _grouped(value, key_heads))
    mixed = transpose(mixed, (0, 3, 1, 2, 4))
    return reshape(mixed, (batch, targets, heads, features))  # type: ignore[no-any-return]


def _allowed(mask: Any, is_causal: bool, shape: tuple[int, ...]) -> Tensor | None:
    """Where attention is allowed, or None: everywhere."""
    allowed = None if mask is None else convert(mask, "bool")
    if is_causal:
        earlier = tril(ones(shape[2:], "bool"))
        allowed = earlier if allowed is None else logical_and(allowed, earlier)
    return allowed
