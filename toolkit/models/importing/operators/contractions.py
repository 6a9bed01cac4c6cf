"""Products of matrices."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.elementwise import apply, broadcast
from toolkit.models.importing.values import Value


def _matmul(call: Call, x: Value, y: Value) -> Value:
    _check_product(call, x, y)
    return Value(ops.matmul(x.tensor, y.tensor))


def _check_product(call: Call, x: Value, y: Value) -> None:
    """Raise if the product of two values would not fit."""
    a = x.shape if x.ndim > 1 else (1, *x.shape)
    b = y.shape if y.ndim > 1 else (*y.shape, 1)
    if not x.ndim or not y.ndim or a[-1] != b[-2]:
        raise ModelFileError(f"a product of shapes {x.shape} and {y.shape}")
    call.allow((*broadcast(a[:-2], b[:-2]), a[-2], b[-1]), x.dtype)


def _gemm(call: Call, a: Value, b: Value, c: Value | None = None) -> Value:
    alpha, beta = float(call.number("alpha", 1.0)), float(call.number("beta", 1.0))
    if call.opset <= 6:
        call.integer("broadcast", 0)
    a = a.permuted((1, 0)) if call.integer("transA", 0) else a
    b = b.permuted((1, 0)) if call.integer("transB", 0) else b
    if a.ndim != 2 or b.ndim != 2:
        raise ModelFileError(f"expected matrices; received {a.shape} and {b.shape}")
    _check_product(call, a, b)
    product = Value(ops.matmul(a.tensor, b.tensor))
    if alpha != 1:
        product = apply(call, lambda t: t * alpha, product)
    if c is None or beta == 0:
        return product
    if beta != 1:
        c = apply(call, lambda t: t * beta, c)
    return apply(call, ops.add, product, c)


def _einsum(call: Call, x: Value, *others: Value) -> Value:
    equation = call.text("equation").replace(" ", "")
    values = (x, *others)
    extents = _extents(equation, values)
    if len(values) > 2:  # in between there may be all axes
        call.allow(extents.values(), x.dtype)
    result = equation.partition("->")[2] if "->" in equation else None
    if result is not None and "." not in equation:
        call.allow([extents.get(letter, 1) for letter in result], x.dtype)
    elif "." not in equation:
        once = [c for c in extents if equation.count(c) == 1]
        call.allow([extents[c] for c in once], x.dtype)
    return Value(ops.einsum(equation, *(v.tensor for v in values)))


def _extents(equation: str, values: Any) -> dict[str, int]:
    """The extent of each letter."""
    terms = equation.partition("->")[0].split(",")
    if len(terms) != len(values) or len(equation) > 200:
        raise ModelFileError(f"{equation!r} for {len(values)} inputs")
    found: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        if "." not in term and len(term) != value.ndim:
            raise ModelFileError(f"{term!r} for the shape {value.shape}")
        if "." not in term:
            found.update(zip(term, value.shape, strict=True))
    return found


def _attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> Value:
    """softmax(query key^T scale + mask) value, over heads."""
    causal, cap = call.integer("is_causal", 0), float(call.number("softcap", 0.0))
    heads = call.integer("q_num_heads", None), call.integer("kv_num_heads", None)
    scale = call.number("scale", None)
    call.integer("qk_matmul_output_mode", 0)
    call.integer("softmax_precision", 1)
    if past_key or past_value or lengths or cap or any(map(call.wants, (1, 2, 3))):
        raise UnsupportedError("expected attention without a cache and a soft cap")
    q, k, v = (
        _heads(x, n) for x, n in ((query, heads[0]), (key, heads[1]), (value, heads[1]))
    )
    call.allow((*q.shape[:3], k.shape[2]), q.dtype)
    group = q.shape[1] // max(k.shape[1], 1)
    if group != 1:
        k, v = (Value(ops.repeat(x.tensor, group, axis=1)) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    scores = ops.matmul(q.tensor * scale, k.permuted((0, 1, 3, 2)).tensor)
    if mask is not None:
        scores = _masked(scores, mask)
    if causal:
        rows = ops.expand_dims(ops.arange(q.shape[2], dtype="int32"), 1)
        allowed = ops.arange(k.shape[2], dtype="int32") <= rows
        scores = ops.where(allowed, scores, float("-inf"))
    out = Value(ops.matmul(ops.softmax(scores, axis=-1), v.tensor))
    if query.ndim == 4:
        return out
    n, h, steps, features = out.shape
    joined = out.permuted((0, 2, 1, 3)).tensor
    return Value(ops.reshape(joined, (n, steps, h * features)))


def _heads(x: Value, heads: int | None) -> Value:
    """(batch, heads, steps, features)."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise ModelFileError(f"{heads} heads of shape {x.shape}")
    n, steps, features = x.shape
    split = ops.reshape(x.tensor, (n, steps, heads, features // heads))
    return Value(split, (0, 2, 1, 3))


def _masked(scores: Any, mask: Value) -> Any:
    if mask.dtype == "bool":
        return ops.where(mask.tensor, scores, float("-inf"))
    return scores + mask.tensor


OPERATORS = (
    Operator("MatMul", _matmul),
    Operator("Gemm", _gemm),
    Operator("Einsum", _einsum),
    Operator("Attention", _attention),
)
