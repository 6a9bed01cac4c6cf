"""Rules for the steps of a random program, and random draws of their parameters.

Floats are small multiples of 1/4, infinite or NaN, so that no sum is rounded. Every way
to compute a program has equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import dtypes, ops

EXTENTS = [0, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33]
FLOATS = ["float32", "float32", "float64", "float16", "bfloat16"]
DTYPES = [*FLOATS, "int32", "int64", "int8", "uint8", "uint32", "bool"]
# Limits: elements of a value, elements of a carried value, and numbers by dtype.
MAX_SIZE, MAX_CARRIED_SIZE = 3000, 300
LIMITS = {"float16": 64, "bfloat16": 32}
SPECIAL_VALUES = [np.nan, np.inf, -np.inf, -0.0, 0.0]

Step = tuple[Sequence[int], Callable[..., Any]]


class Draw:
    """Random draws of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.one_of(EXTENTS) for _ in range(self.integer(0, 4)))
        return shape if np.prod(shape) <= MAX_SIZE else self.shape()

    def array(self, shape: tuple[int, ...], dtype: str) -> Any:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        low = 0 if dtype.startswith("u") else -12
        numbers = np.asarray(self.rng.integers(low, 13, shape))
        special_values: Any = SPECIAL_VALUES
        if dtypes.is_float(dtype):
            numbers = numbers / self.one_of([1, 4])
        else:
            numbers = numbers.astype(dtype)
            special_values = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        if self.chance(0.3):
            is_replaced = self.rng.random(shape) < 0.2
            numbers = np.where(
                is_replaced, self.rng.choice(special_values, shape), numbers
            )
        return np.asarray(numbers).astype(dtypes.numpy_dtype(dtype))

    def number(self, values: Sequence[Any], fits: Any = None) -> int | None:
        """Draw the number of a value that fits, preferably a recent one."""
        candidates = [i for i, x in enumerate(values) if fits is None or fits(x)]
        if not candidates:
            return None
        return max(self.one_of(candidates), self.one_of(candidates))


def is_number(x: Any) -> bool:
    return bool(x.dtype != "bool")


def has_axes(x: Any) -> bool:
    return bool(x.ndim)


def is_filled(x: Any) -> bool:
    return bool(x.ndim and x.size)


def is_true(x: Any) -> Any:
    """Return a choice that depends on a value."""
    return ops.any(x > 0 if is_number(x) else x)


def resemble(x: Any, reference: Any) -> Any:
    """Return a value that depends on x, with the shape and dtype of another one."""
    if is_number(x):
        x = ops.clip(ops.where(ops.isnan(x), ops.zeros_like(x), x), 0, 16)
    if x.shape != reference.shape:
        x = ops.any(x) if not is_number(x) or not x.size else ops.max(x)
    return ops.broadcast_to(ops.cast(x, reference.dtype), reference.shape)


def small(draw: Draw, values: Sequence[Any], max_count: int) -> list[int]:
    """Return the numbers of some values that a loop may carry or read."""
    numbers = (
        draw.number(values, lambda x: x.size < MAX_CARRIED_SIZE)
        for _ in range(draw.integer(1, max_count))
    )
    return [number for number in numbers if number is not None]


# --- rules for steps ------------------------------------------------------------------

RULES: list[Callable[[Draw, Sequence[Any]], Step | None]] = []


def rule(weight: int) -> Any:
    """Register a rule with a relative frequency."""

    def add(function: Any) -> Any:
        RULES.extend([function] * weight)
        return function

    return add


def unary_rule(fits: Any, weight: int) -> Any:
    """Register a rule for a function of the draw and one value."""

    def add(function: Any) -> Any:
        def unary_step(draw: Draw, values: Sequence[Any]) -> Step | None:
            number = draw.number(values, fits)
            if number is None:
                return None
            return [number], function(draw, values[number])

        return rule(weight)(unary_step)

    return add


@unary_rule(is_number, 10)
def unary(draw: Draw, x: Any) -> Any:
    c = draw.one_of([0, 1, 2, 3])
    return draw.one_of(
        [
            *(ops.abs, ops.sign, ops.relu, ops.floor, ops.isnan, ops.isinf, ops.copy),
            *(lambda x: x * c, lambda x: c - x, lambda x: x > c, lambda x: x - 0),
            *(lambda x: ops.maximum(x, c), lambda x: ops.where(x < c, x, x * 0)),
        ]
    )


@rule(10)
def binary(draw: Draw, values: Sequence[Any]) -> Step | None:
    x = values[i := draw.number(values) or 0]
    number = draw.number(values, lambda y: y.dtype == x.dtype)
    names = ["logical_xor", "logical_and", "equal", "maximum"]
    if is_number(x):
        names += ["add", "subtract", "multiply", "minimum", "less", "greater_equal"]
    return [i, number or 0], getattr(ops, draw.one_of(names))


@rule(4)
def where(draw: Draw, values: Sequence[Any]) -> Step | None:
    numbers = [draw.number(values) or 0 for _ in range(3)]
    return numbers, lambda c, a, b: ops.where(ops.cast(c, "bool"), a, b)


@unary_rule(None, 4)
def cast(draw: Draw, x: Any) -> Any:
    dtype = draw.one_of(DTYPES)
    finite = not (dtypes.is_float(x.dtype) and not dtypes.is_float(dtype))
    low = 0 if dtype.startswith("u") else -99
    if finite or dtype == "bool":
        return lambda x: ops.cast(x, dtype)
    return lambda x: ops.cast(
        ops.clip(ops.where(ops.isnan(x), x * 0 + 1, x), low, 99), dtype
    )


@unary_rule(None, 12)
def reduction(draw: Draw, x: Any) -> Any:
    count = draw.integer(0, x.ndim)
    axes = tuple(int(a) for a in draw.rng.permutation(x.ndim)[:count]) or None
    names = ["sum", "sum", "max", "min", "any", "all", "count_nonzero"]
    reduce, keepdims = getattr(ops, draw.one_of(names)), draw.chance(0.4)
    if reduce is ops.count_nonzero:
        return lambda x: reduce(x, axis=axes)
    return lambda x: reduce(x, axis=axes, keepdims=keepdims)


@unary_rule(is_filled, 12)
def along_an_axis(draw: Draw, x: Any) -> Any:
    axis, keepdims = draw.integer(-x.ndim, x.ndim - 1), draw.chance(0.5)
    count = draw.integer(-5, 5)
    return draw.one_of(
        [
            lambda x: ops.argmax(x, axis=axis, keepdims=keepdims),
            lambda x: ops.argmin(x, axis=axis, keepdims=keepdims),
            lambda x: ops.sort(x, axis=axis),
            lambda x: ops.argsort(x, axis=axis),
            lambda x: ops.cumsum(x, axis=axis),
            lambda x: ops.flip(x, axis),
            lambda x: ops.roll(x, count, axis=axis),
            lambda x: ops.expand_dims(x, axis),
            lambda x: ops.repeat(x, abs(count), axis=axis),
            lambda x: ops.take_along_axis(x, ops.argsort(x, axis=axis), axis=axis),
        ]
    )


@rule(4)
def search(draw: Draw, values: Sequence[Any]) -> Step | None:
    i = draw.number(values, lambda x: is_number(x) and is_filled(x))
    if i is None:
        return None
    j = draw.number(values, lambda y: y.dtype == values[i].dtype)
    side = draw.one_of(["left", "right"])
    return [i, j or 0], lambda edges, x: ops.searchsorted(
        ops.sort(ops.ravel(edges)), x, side=side
    )


@unary_rule(has_axes, 6)
def transpose(draw: Draw, x: Any) -> Any:
    axes = tuple(int(a) for a in draw.rng.permutation(x.ndim))
    return lambda x: ops.transpose(x, axes)


@unary_rule(has_axes, 10)
def slice_axes(draw: Draw, x: Any) -> Any:
    key: list[Any] = []
    for extent in x.shape:
        bounds = [None, None, draw.integer(-extent - 1, extent + 1)]
        start, stop = draw.one_of(bounds), draw.one_of(bounds)
        step = draw.one_of([None, None, 2, 3, -1, -1, -2])
        is_index = extent and draw.chance(0.15)
        index = draw.integer(-extent, extent - 1) if is_index else None
        key.append(slice(start, stop, step) if index is None else index)
    return lambda x: x[tuple(key)]


@unary_rule(lambda x: x.size > 0, 5)
def reshape(draw: Draw, x: Any) -> Any:
    shape, size = [], x.size
    for _ in range(draw.integer(0, 2)):
        shape.append(draw.one_of([d for d in range(1, size + 1) if size % d == 0]))
        size //= shape[-1]
    return lambda y: ops.reshape(y, (*shape, size))


@unary_rule(lambda x: x.size < 300, 3)
def repeated(draw: Draw, x: Any) -> Any:
    shape = [draw.one_of([2, 3]) if extent == 1 else extent for extent in x.shape]
    front = [draw.integer(0, 3)] if draw.chance(0.4) else []
    return lambda x: ops.broadcast_to(x, (*front, *shape))


@rule(6)
def concatenated(draw: Draw, values: Sequence[Any]) -> Step | None:
    i = draw.number(values, has_axes)
    if i is None:
        return None
    x, axis = values[i], draw.integer(0, values[i].ndim - 1)

    def is_joinable(y: Any) -> bool:
        same = y.dtype == x.dtype and y.ndim == x.ndim
        return same and all(
            a == b or k == axis
            for k, (a, b) in enumerate(zip(x.shape, y.shape, strict=True))
        )

    numbers = [
        i,
        *(draw.number(values, is_joinable) or 0 for _ in range(draw.integer(0, 2))),
    ]
    flipped = draw.chance(0.4)
    return numbers, lambda *xs: ops.concatenate(
        [ops.flip(x, axis) if flipped else x for x in xs], axis
    )


@rule(5)
def take_rows(draw: Draw, values: Sequence[Any]) -> Step | None:
    i = draw.number(values, is_filled)
    j = draw.number(values, lambda k: dtypes.is_integer(k.dtype) and k.size < 100)
    if i is None or j is None:
        return None
    axis = draw.integer(0, values[i].ndim - 1)
    extent = values[i].shape[axis]
    return [i, j], lambda x, k: ops.take(
        x, ops.cast(ops.mod(ops.cast(k, "int64"), extent), "int32"), axis=axis
    )


@unary_rule(lambda x: x.ndim > 1 and x.dtype in ("float32", "float64", "int32"), 3)
def product(draw: Draw, x: Any) -> Any:
    return lambda x: ops.matmul(x, ops.swapaxes(x, -1, -2))
