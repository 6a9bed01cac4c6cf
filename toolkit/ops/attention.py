"""Scaled dot-product attention.

Its core is a composite: a backend may compute it in blocks, without all weights in
memory at once; the gradient recomputes them. The body is the definition.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes
from toolkit.arguments import is_real
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Primitive
from toolkit.ops.contract import matmul
from toolkit.ops.creation import ones, tril, zeros
from toolkit.ops.elementwise import where, zero_like
from toolkit.ops.numeric import logical_and
from toolkit.ops.reduce import max, sum
from toolkit.ops.shape import expand_dims, reshape, sum_to, transpose
from toolkit.ops.softmax import softmax_p
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, tanh
from toolkit.type_aliases import TensorLike

# Value of masked logits. It is finite, so that a row that is masked entirely has equal
# weights and no NaN, and so small that exp(MASKED - maximum) is 0.
MASKED = -2.0e38


def _grouped(x: Tensor, heads: int) -> Tensor:
    """Reshape (batch, n, h, f) to (batch, heads, h / heads, n, f)."""
    batch, n, h, f = x.shape
    return transpose(reshape(x, (batch, n, heads, h // heads, f)), (0, 2, 3, 1, 4))


def _logits(query: Tensor, key: Tensor) -> Tensor:
    """Compute query @ key of each head: (batch, heads, targets, sources)."""
    batch, targets, heads, _ = query.shape
    sources, key_heads = key.shape[1:3]
    columns = transpose(_grouped(key, key_heads), (0, 1, 2, 4, 3))
    logits = matmul(_grouped(query, key_heads), columns)
    return reshape(logits, (batch, heads, targets, sources))


def _mix(weights: Tensor, value: Tensor) -> Tensor:
    """Compute weights @ value of each head: (batch, targets, heads, features)."""
    batch, heads, targets, sources = weights.shape
    key_heads, features = value.shape[2:]
    shape = (batch, key_heads, heads // key_heads, targets, sources)
    mixed = matmul(reshape(weights, shape), _grouped(value, key_heads))
    mixed = transpose(mixed, (0, 3, 1, 2, 4))
    return reshape(mixed, (batch, targets, heads, features))


def _collect(weights: Tensor, x: Tensor, key_heads: int) -> Tensor:
    """Apply the transpose of `_mix`: (batch, sources, key_heads, features).

    x: (batch, targets, heads, features).
    """
    batch, heads, targets, sources = weights.shape
    rows = heads // key_heads * targets
    columns = transpose(
        reshape(weights, (batch, key_heads, rows, sources)), (0, 1, 3, 2)
    )
    x = reshape(_grouped(x, key_heads), (batch, key_heads, rows, x.shape[-1]))
    return transpose(matmul(columns, x), (0, 2, 1, 3))


def _allowed(
    mask: Tensor | None, is_causal: bool, shape: tuple[int, ...]
) -> Tensor | None:
    """Return where attention is allowed, or None: everywhere."""
    if not is_causal:
        return mask
    earlier = tril(ones(shape[2:], "bool"))
    return earlier if mask is None else logical_and(mask, earlier)


def _apply_bias_and_mask(
    logits: Tensor, bias: Tensor | None, mask: Tensor | None, is_causal: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the logits, and the mask of allowed positions or None.

    The logits include the bias, and are MASKED where attention is not allowed.
    """
    if bias is not None:
        logits = logits + bias
    allowed = _allowed(mask, is_causal, logits.shape)
    if allowed is not None:
        logits = where(allowed, logits, convert(MASKED, logits.dtype))
    return logits, allowed


def _named(names: tuple[str, ...], extras: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return the optional inputs by name, `bias` and `mask`; None if absent."""
    by_name = dict(zip(names, extras, strict=True))
    return {name: by_name.get(name) for name in ("bias", "mask")}


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *extras: Tensor,
    given: tuple[str, ...],
    scale: float,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute softmax(query @ key * scale + bias) @ value.

    Also return, for each row of logits, the maximum and the sum of exp(logits -
    maximum): (batch, heads, targets).

    given: the names, "bias" or "mask", of the extras.
    """
    dtype = query.dtype
    logits = _logits(query * convert(scale, dtype), key)
    logits = convert(logits, dtypes.result_type(dtype, "float32"))
    logits, _ = _apply_bias_and_mask(
        logits, is_causal=is_causal, **_named(given, extras)
    )
    peak = max(logits, axis=3, keepdims=True)
    weights = exp(logits - peak)
    total = sum(weights, axis=3, keepdims=True)
    out = _mix(convert(weights / total, dtype), value)
    rows = logits.shape[:3]
    return out, reshape(peak, rows), reshape(total, rows)


def _changes(
    g: Tensor,
    delta: Tensor,
    peak: Tensor,
    total: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *extras: Tensor,
    given: tuple[str, ...],
    scale: float,
    is_causal: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the logits, and the weights."""
    dtype = query.dtype
    logits = _logits(query * convert(scale, dtype), key)
    logits = convert(logits, peak.dtype)
    logits, allowed = _apply_bias_and_mask(
        logits, is_causal=is_causal, **_named(given, extras)
    )
    weights = exp(logits - max(logits, axis=3, keepdims=True))
    weights = weights / sum(weights, axis=3, keepdims=True)
    change = convert(_logits(g, value), peak.dtype)
    change = weights * (change - expand_dims(delta, -1))
    if allowed is not None:
        change = where(allowed, change, zero_like(change))
    return change, weights


def _attention_grad(
    g: Tensor,
    delta: Tensor,
    peak: Tensor,
    total: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *extras: Tensor,
    given: tuple[str, ...],
    scale: float,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value.

    g: gradient of the output. delta: (batch, heads, targets), the sum over a row of
    weights times their gradients. peak, total: the results of `_attention`, which
    kernels start from; no gradient flows through them.
    """
    change, weights = _changes(
        g,
        delta,
        peak,
        total,
        query,
        key,
        value,
        *extras,
        given=given,
        scale=scale,
        is_causal=is_causal,
    )
    dtype, heads = query.dtype, key.shape[2]
    change = convert(change * scale, dtype)
    weights = convert(weights, dtype)
    return (
        _mix(change, key),
        _collect(change, query, heads),
        _collect(weights, g, heads),
    )


def _delta(g: Tensor, out: Tensor, dtype: str) -> Tensor:
    """Return the sum over a row of weights times gradients: the sum over g * out."""
    return transpose(sum(convert(g, dtype) * convert(out, dtype), axis=3), (0, 2, 1))


def _attention_grad_of(
    g: Tensor, out: Tensor, peak: Tensor, *inputs: Tensor, **attrs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `_attention_grad` from the output; peak: log of sums of exp(logits)."""
    delta, total = _delta(g, out, peak.dtype), exp(peak - peak)
    return _attention_grad(g, delta, peak, total, *inputs, **attrs)


def _attention_vjp(
    gs: tuple[Tensor, ...],
    ys: tuple[Tensor, ...],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *extras: Tensor,
    **attrs: Any,
) -> tuple[Tensor | None, ...]:
    g, (out, peak, total) = gs[0], ys
    if key.shape[1] == 1:
        return _only_value_grad(g, query, key, value, extras, attrs["given"])
    delta = _delta(g, out, total.dtype)
    inputs = (g, delta, peak, total, query, key, value, *extras)
    gradients = list(bind(attention_grad_p, *inputs, **attrs))
    for name, x in zip(attrs["given"], extras, strict=True):
        is_bias = name == "bias"
        gradients.append(
            sum_to(_changes(*inputs, **attrs)[0], x.shape) if is_bias else None
        )
    return tuple(gradients)


def _only_value_grad(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    extras: tuple[Tensor, ...],
    given: tuple[str, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients for one source: its weight is always 1.

    Differences of sums that are equal except for rounding would not be exactly 0.
    """
    batch, targets, heads, _ = query.shape
    weights = ones((batch, heads, targets, 1), g.dtype)
    pairs = zip(given, extras, strict=True)
    none = [zeros(x.shape, x.dtype) for x in (query, key)]
    extra_gradients = (
        zeros(x.shape, x.dtype) if name == "bias" else None for name, x in pairs
    )
    return (*none, _collect(weights, g, key.shape[2]), *extra_gradients)


attention_p: Primitive = decomposable("attention", _attention, _attention_vjp)
attention_grad_p: Primitive = decomposable("attention_grad", _attention_grad)
# The same gradient from the output of attention, for GPU libraries that need this form.
decomposable("attention_grad_of", _attention_grad_of)


@operation
def dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    bias: Any = None,
    mask: TensorLike | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Tensor:
    """Compute softmax(query @ key^T * scale + bias) @ value, for each head.

    Args:
        query: (batch, targets, heads, features).
        key: (batch, sources, key_heads, features). Each key head serves heads /
            key_heads adjacent query heads.
        value: (batch, sources, key_heads, value_features).
        bias: numbers to add to the logits, which broadcast to (batch, heads, targets,
            sources). None means 0.
        mask: booleans that broadcast like `bias`: True where attention is allowed. None
            means everywhere.
        scale: the factor of the logits. None means 1 / sqrt(features).
        is_causal: whether a target attends only to sources up to its own index.
        flash_attention: must not be True, because there is only one algorithm.
        attn_logits_soft_cap: a bound c: each logit x becomes c * tanh(x / c). None
            means no bound.

    Returns:
        A tensor of shape (batch, targets, heads, value_features) with the common dtype.
        The weights are computed in float32 or wider.

    Raises:
        ArgumentError: `flash_attention` is True.

    Reference:
        Vaswani et al., Attention Is All You Need (2017),
            https://arxiv.org/abs/1706.03762

    Example:
        >>> from toolkit import ops
        >>> query = ops.zeros((1, 1, 1, 2))  # equal weights for all sources
        >>> key = ops.ones((1, 2, 1, 2))
        >>> value = ops.reshape([1.0, 3.0], (1, 2, 1, 1))
        >>> ops.dot_product_attention(query, key, value).tolist()
        [[[[2.0]]]]
    """
    if flash_attention:
        raise ArgumentError(
            "dot_product_attention: flash_attention=True is not available; pass None "
            "or False"
        )
    (query, key, value), dtype = operands(query, key, value)
    _check(query, key, value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if not is_real(scale):
        query, scale = query * convert(scale, dtype), 1.0
    wide = dtypes.result_type(dtype, "float32")
    bias = None if bias is None else _with_four_axes(convert(bias, wide))
    mask = None if mask is None else _with_four_axes(convert(mask, "bool"))
    if attn_logits_soft_cap is not None:
        logits = convert(_logits(query * convert(scale, dtype), key), wide)
        logits = attn_logits_soft_cap * tanh(logits / attn_logits_soft_cap)
        logits, _ = _apply_bias_and_mask(logits, bias, mask, is_causal)
        return _mix(convert(bind(softmax_p, logits, axis=(3,)), dtype), value)
    extras = {"bias": bias, "mask": mask}
    extras = {name: x for name, x in extras.items() if x is not None}
    attrs = {"given": tuple(extras), "scale": float(scale), "is_causal": is_causal}
    return bind(attention_p, query, key, value, *extras.values(), **attrs)[0]


def _with_four_axes(x: Tensor) -> Tensor:
    return reshape(x, ((1,) * (4 - x.ndim) + x.shape))


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    fits = query.ndim == key.ndim == value.ndim == 4
    fits = fits and query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3]
    fits = fits and key.shape[:3] == value.shape[:3]
    fits = fits and key.shape[1] > 0 and key.shape[2] > 0 and key.shape[3] > 0
    if not fits or query.shape[2] % key.shape[2]:
        raise ShapeError(
            "dot_product_attention: expected query (batch, targets, heads, features), "
            "key and value (batch, sources, key_heads, features), with heads a "
            "multiple of key_heads, and at least one source, head and feature; "
            f"received {query.shape}, {key.shape} and "
            f"{value.shape}"
        )
