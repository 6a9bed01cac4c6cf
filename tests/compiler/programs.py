"""Random programs of operations of all kinds, with exact results.

A program is a list of steps. Each step reads values by number and appends one value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.steps import (
    DTYPES,
    LIMITS,
    MAX_SIZE,
    RULES,
    Draw,
    Step,
    is_true,
    resemble,
    rule,
    small,
)
from toolkit import dtypes, ops
from toolkit.errors import ToolkitError

# --- branches and loops, whose bodies are also programs -------------------------------


def body(draw: Draw, values: Sequence[Any]) -> tuple[list[Step], list[Any]]:
    """Draw a few steps over some values; return them and all values after them."""
    steps: list[Step] = []
    all_values = list(values)
    for _ in range(draw.integer(0, 3)):
        steps.append(take_step(draw, all_values))
    return steps, all_values


@rule(5)
def branches(draw: Draw, values: Sequence[Any]) -> Step | None:
    numbers = [draw.number(values) or 0 for _ in range(draw.integer(1, 3))]
    operands = [values[i] for i in numbers]
    (true_body, true_values), (false_body, false_values) = (
        body(draw, operands),
        body(draw, operands),
    )
    a, b = (draw.integer(0, len(xs) - 1) for xs in (true_values, false_values))
    second = draw.integer(0, 1)

    def step(index: Any, *xs: Any) -> Any:
        results = ops.cond(
            ops.reshape(index, ()) if index.spec.size == 1 else is_true(index),
            lambda: (resemble(run_steps(true_body, xs)[a], xs[0]), xs[0]),
            lambda: (xs[0], resemble(run_steps(false_body, xs)[b], xs[0])),
        )
        return results[second]

    is_choice = draw.chance(0.5)
    index = draw.number(values, (lambda x: x.dtype == "bool") if is_choice else None)
    return [index or 0, *numbers], step


@dataclass
class Iteration:
    """One iteration of a loop, which computes a new value for each carried one.

    sources: the source of each new value. "value": the value of a number; "other": the
        carried value of a number, if the specs match; "constant": ones; "same":
        unchanged.
    """

    steps: list[Step]
    sources: list[tuple[str, int]]

    def __call__(self, carried: Sequence[Any], invariants: Sequence[Any]) -> list[Any]:
        results, new = run_steps(self.steps, [*carried, *invariants]), []
        for (kind, number), x in zip(self.sources, carried, strict=True):
            other = carried[number % len(carried)]
            if kind == "other" and other.spec == x.spec:
                new.append(other)
            elif kind == "value":
                new.append(resemble(results[number], x))
            else:
                new.append(ops.ones_like(x) if kind == "constant" else x)
        return new


def draw_iteration(draw: Draw, values: Sequence[Any], carried: int) -> Iteration:
    steps, results = body(draw, values)
    kinds = ["other", "same", "constant", "value", "value"]
    return Iteration(
        steps,
        [
            (draw.one_of(kinds), draw.integer(0, len(results) - 1))
            for _ in range(carried)
        ],
    )


@rule(6)
def scans(draw: Draw, values: Sequence[Any]) -> Step | None:
    carried, invariants = small(draw, values, 3), small(draw, values, 2)
    rows = draw.number(values, lambda x: x.ndim and 0 < x.shape[0] < 6)
    if not carried or rows is None:
        return None
    operands = [values[i] for i in (*carried, *invariants)]
    iteration = draw_iteration(draw, [*operands, values[rows][0]], n := len(carried))
    result, reverse = draw.integer(0, n), draw.chance(0.3)

    def step(rows: Any, *xs: Any) -> Any:
        def f(state: Any, x: Any) -> Any:
            new = iteration(state, [*xs[n:], x])
            return tuple(new), new[0]

        final, stacked = ops.scan(f, tuple(xs[:n]), rows, reverse=reverse)
        return [*final, stacked][result]

    return [rows, *carried, *invariants], step


@rule(6)
def while_loops(draw: Draw, values: Sequence[Any]) -> Step | None:
    carried, invariants = small(draw, values, 3), small(draw, values, 2)
    if not carried:
        return None
    n, operands = len(carried), [values[i] for i in (*carried, *invariants)]
    iteration, trip_count = draw_iteration(draw, operands, n), draw.integer(0, 4)
    limit, result = draw.one_of([None, 0, 2, 9]), draw.integer(0, n)
    has_condition = draw.chance(0.4)

    def step(*xs: Any) -> Any:
        def has_next(i: Any, *state: Any) -> Any:
            return (
                ops.logical_and(i < trip_count, is_true(state[0]))
                if has_condition
                else i < trip_count
            )

        return ops.while_loop(
            has_next,
            lambda i, *state: (i + 1, *iteration(state, xs[n:])),
            (ops.convert_to_tensor(0), *xs[:n]),
            maximum_iterations=limit,
        )[result]

    return [*carried, *invariants], step


# --- programs -------------------------------------------------------------------------


def run_steps(steps: Sequence[Step], values: Sequence[Any]) -> list[Any]:
    """Return the values after all steps."""
    results = list(values)
    for numbers, function in steps:
        results.append(function(*(results[i] for i in numbers)))
    return results


def take_step(draw: Draw, values: list[Any]) -> Step:
    """Draw a step that these values allow, and append its result."""
    while True:
        step = draw.one_of(RULES)(draw, values)
        if step is None:
            continue
        numbers, function = step
        try:
            result = function(*(values[i] for i in numbers))
        except (ToolkitError, ValueError):  # shapes that do not match
            continue
        if result.size > MAX_SIZE:
            continue
        if is_large(result):
            function = clipped(function)
            result = function(*(values[i] for i in numbers))
        values.append(result)
        return numbers, function


def is_large(x: Any) -> bool:
    """Return whether sums of such numbers might be rounded."""
    if not dtypes.is_float(x.dtype):
        return False
    magnitude = np.abs(np.asarray(x).astype("float64"))
    return bool((magnitude[np.isfinite(magnitude)] > LIMITS.get(x.dtype, 2048)).any())


def clipped(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: ops.clip(function(*xs), -8, 8)


class RandomProgram:
    """The program of a seed.

    Attributes:
        arrays: the inputs.
        steps: the operations.
        outputs: the numbers of the returned values. They may include inputs, and one
            value twice.
        values: all values, computed eagerly.
    """

    def __init__(self, seed: int) -> None:
        draw = self.draw = Draw(seed)
        shape, dtype = draw.shape(), draw.one_of(DTYPES)
        self.arrays = [draw.array(shape, dtype)]
        for _ in range(draw.integer(0, 3)):
            has_equal_operations = draw.chance(0.5)
            spec = (
                (shape, dtype)
                if has_equal_operations
                else (draw.shape(), draw.one_of(DTYPES))
            )
            self.arrays.append(draw.array(*spec))
        self.steps: list[Step] = []
        self.values = [ops.convert_to_tensor(x) for x in self.arrays]
        for _ in range(draw.integer(1, 12)):
            self.steps.append(take_step(draw, self.values))
        last_index = len(self.values) - 1
        self.outputs = [last_index, *(draw.integer(0, last_index) for _ in range(3))]

    def __call__(self, *inputs: Any) -> list[Any]:
        results = run_steps(self.steps, [ops.convert_to_tensor(x) for x in inputs])
        return [results[i] for i in self.outputs]

    def other_arrays(self) -> list[Any]:
        """Return other arrays for the inputs."""
        return [self.draw.array(x.shape, str(x.dtype)) for x in self.arrays]
