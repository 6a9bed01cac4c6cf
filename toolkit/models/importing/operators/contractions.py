"""Matrix products and einsum."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.elementwise import apply, broadcast
from toolkit.models.importing.values import Value


def matmul(call: Call, x: Value, y: Value) -> Value:
    """Return the matrix product."""
    _check_product(call, x, y)
    return Value(ops.matmul(x.tensor, y.tensor))


def _check_product(call: Call, x: Value, y: Value) -> None:
    """Raise if the product of two values would exceed the budget."""
    a = x.shape if x.ndim > 1 else (1, *x.shape)
    b = y.shape if y.ndim > 1 else (*y.shape, 1)
    if not x.ndim or not y.ndim or a[-1] != b[-2]:
        raise ModelFileError(f"cannot multiply shapes {x.shape} and {y.shape}")
    shape = (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])
    call.allow(shape, x.dtype)
    call.work(*shape, a[-1])


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


def _einsum(call: Call, x: Value, *more_inputs: Value) -> Value:
    equation = call.text("equation").replace(" ", "")
    values = (x, *more_inputs)
    extents = _extents(equation, values)
    if len(values) > 2:  # an intermediate result can have all axes
        call.allow(extents.values(), x.dtype)
    result = equation.partition("->")[2] if "->" in equation else None
    if result is not None and "." not in equation:
        call.allow([extents.get(letter, 1) for letter in result], x.dtype)
    elif "." not in equation:
        unique_letters = [c for c in extents if equation.count(c) == 1]
        call.allow([extents[c] for c in unique_letters], x.dtype)
    num_products = math.prod(extents.values()) * math.prod(
        value.size
        for term, value in zip(_terms(equation), values, strict=True)
        if "." in term
    )
    call.work(num_products)
    return Value(ops.einsum(equation, *(v.tensor for v in values)))


def _terms(equation: str) -> list[str]:
    """Return the letters of each input."""
    return equation.partition("->")[0].split(",")


def _extents(equation: str, values: Any) -> dict[str, int]:
    """Return the extent of each letter."""
    terms = _terms(equation)
    if len(terms) != len(values) or len(equation) > 200:
        raise ModelFileError(
            f"the equation {equation!r} does not fit {len(values)} inputs"
        )
    extents: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        if "." not in term and len(term) != value.ndim:
            raise ModelFileError(
                f"the term {term!r} does not fit the shape {value.shape}"
            )
        if "." not in term:
            extents.update(zip(term, value.shape, strict=True))
    return extents


def _determinant(call: Call, x: Value) -> Value:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ModelFileError(f"expected square matrices; received shape {x.shape}")
    return Value(ops.linalg.det(x.tensor))


OPERATORS = (
    Operator("MatMul", matmul),
    Operator("Gemm", _gemm),
    Operator("Einsum", _einsum),
    Operator("Det", _determinant),
)
