"""Tests that the work of compilation is not quadratic in the nodes of a graph.

The tests count the lines of Python that each function of the package runs.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import compiled, trace_of
from toolkit import ops
from toolkit.compiler import memory
from toolkit.compiler.fusion import fuse, groups

pytest.importorskip("llvmlite")

PACKAGE = str(Path(toolkit.__file__).parent)
# Twice the nodes may cost slightly more than twice the lines: trees become deeper.
MAX_GROWTH = 2.5
# Functions with fewer lines are too small to measure.
MIN_LINES = 1500


def unrolled(steps):
    """Return a training step of a recurrent network, unrolled in one graph."""

    def step(x, w, u, b):
        with toolkit.GradientTape() as tape:
            tape.watch([w, u, b])
            h = ops.zeros((4, 8))
            for row in ops.unstack(x):
                gate, new = ops.split(row @ w + h @ u + b, 2, axis=1)
                h = ops.sigmoid(gate) * h + ops.tanh(new)
            loss = ops.mean(h * h)
        return [loss, *tape.gradient(loss, [w, u, b])]

    return step, (steps, 4, 8), (8, 16), (8, 16), (16,)


def many_branches(count):
    """Return many branches of one product and their sum."""

    def branches(x, w):
        y = x @ w
        outputs = [ops.softmax(y * float(i)) @ w for i in range(count)]
        total = outputs[0]
        for other in outputs[1:]:
            total = total + ops.exp(other)
        return total

    return branches, (8, 8), (8, 8)


def deep_chain(layers):
    """Return a chain of elementwise nodes with some reshapes and products."""

    def chain(x, w):
        y = x
        for i in range(layers):
            y = ops.tanh(y * 1.5 + x)
            if i % 5 == 0:
                y = ops.reshape(ops.reshape(y, (4, 16)) + 1.0, (8, 8))
            if i % 20 == 0:
                y = y @ w
        return y

    return chain, (8, 8), (8, 8)


def numbers(count):
    """Return numbers that each depend on the previous one by nodes that cannot fuse."""

    def arithmetic(x, w):
        total = ops.sum(x)
        for _ in range(count):
            x = (x * total) @ w
            total = ops.sum(ops.cumsum(x, axis=0)[-1]) * 0.5 + 1.0
        return total

    return arithmetic, (8, 8), (8, 8)


def outputs(count):
    """Return many results, like an optimizer's updates, that all read one number."""

    def updates(rate, *variables):
        rate = ops.exp(rate) / 2.0
        gradients = [ops.sum(v @ ops.transpose(v), axis=0) for v in variables]
        scale = ops.rsqrt(sum(ops.sum(g * g) for g in gradients))
        pairs = zip(variables, gradients, strict=True)
        return [v - rate * (g * scale) for v, g in pairs]

    return updates, (), *[(8, 8)] * count


FAMILIES = [
    (unrolled, 12),
    (many_branches, 24),
    (deep_chain, 80),
    (numbers, 24),
    (outputs, 24),
]


def lines_run(work):
    """Count the lines that each function of the package ran, including its callees."""
    line_counts: Counter = Counter()

    def count(frame, event, argument):
        line_counts[frame.f_code] += event == "line"
        return count

    def enter(frame, event, argument):
        return count if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return line_counts


def count_work(family, size):
    function, *shapes = family(size)

    def work():
        graph = trace_of(function, *shapes)
        program = compiled(graph)
        return program([np.zeros(x.spec.shape, "float32") for x in graph.inputs])

    work()  # kernels are compiled, and one-time work is done
    return lines_run(work)


@pytest.mark.parametrize(
    ("family", "size"), FAMILIES, ids=lambda x: getattr(x, "__name__", "")
)
@pytest.mark.one_in(3)
def test_compilation_is_not_quadratic_in_nodes(monkeypatch, family, size):
    # A limit by a number of nodes must not hide quadratic work below the limit.
    monkeypatch.setattr(memory, "MAX_COMPARED", 8)
    monkeypatch.setattr(fuse, "MAX_NODES", 8)
    monkeypatch.setattr(fuse, "MAX_FAILURES", 2)
    monkeypatch.setattr(groups, "MAX_VISITED_GROUPS", 4)
    small, large = count_work(family, size), count_work(family, 2 * size)
    growth = {
        f"{Path(code.co_filename).name}:{code.co_qualname}": (small[code], lines)
        for code, lines in large.items()
        if lines > MIN_LINES and lines > MAX_GROWTH * max(1, small[code])
    }
    assert growth == {}
