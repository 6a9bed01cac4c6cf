"""Tests of random graphs whose values share memory, against the reference backend.

Views of computed values are read with and after them, in other layouts, by nodes that
could overwrite them. Several outputs stay alive, and Variables are updated in place.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.graphs import compiled
from toolkit import ops
from toolkit.backends import get_backend
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.functions.decorator import function
from toolkit.ir import Spec

SIZES = (5, 16, 33, 64)

# Square matrices of the same shape, so that most values fit into most buffers.
VIEWS = [
    ops.transpose,
    lambda x: ops.flip(x, 0),
    lambda x: ops.reshape(ops.reshape(x, (-1,)), x.shape),
    lambda x: ops.transpose(ops.flip(x, 1)),
    lambda x: ops.broadcast_to(x[:1], x.shape),
    lambda x: ops.broadcast_to(x[:, 1:2], x.shape),
    lambda x: ops.concatenate([x[2:], x[:2]], axis=0),
]
ELEMENTWISE = [
    ops.tanh,
    ops.abs,
    lambda x: x * 0.5 + 0.25,
    lambda x: ops.maximum(x, -0.5),
    lambda x: ops.where(x > 0.0, x, 0.1 * x),
    lambda x: ops.mod(x, 1.5),
    # No generated code.
    lambda x: ops.real(ops.cast(x, "complex64") * 0.5),
]
BINARY = [
    ops.add,
    ops.subtract,
    ops.maximum,
    lambda x, y: x * 0.5 + ops.tanh(y),
    lambda x, y: ops.where(x > y, x, 0.5 * y),
]
# Operations that read a complete operand, or more than the same element.
WHOLE = [
    lambda x, y: ops.matmul(x, y) * (1 / x.shape[0]),
    lambda x, y: ops.tanh(ops.matmul(x, y)) + x,
    lambda x, y: ops.cumsum(x, axis=0) * 0.1 + y,
    lambda x, y: x - ops.max(y, axis=-1, keepdims=True),
    lambda x, y: x - ops.mean(y, axis=0, keepdims=True),
    lambda x, y: (x + y) / ops.sum(ops.abs(y) + 1.0, axis=-1, keepdims=True),
    lambda x, y: ops.sort(x, axis=0) + y,
    lambda x, y: ops.split(ops.concatenate([x, y], axis=1), 2, axis=1)[1] * 0.5,
    lambda x, y: ops.concatenate([x[::2], y[1::2]], axis=0),
]


def append_operations(rng, values, count):
    """Append operations on values, most of them on recent values."""
    for _ in range(count):
        recent = values[-4:] if rng.random() < 0.7 else values
        x, y = (recent[rng.integers(len(recent))] for _ in range(2))
        kind = rng.random()
        if kind < 0.25:
            # Views that are read with their source are the hardest case of shared
            # memory.
            view = pick(rng, VIEWS)(x)
            if rng.random() < 0.6:
                pair = (x, view) if rng.random() < 0.5 else (view, x)
                view = pick(rng, BINARY)(*pair)
            values.append(view)
        elif kind < 0.5:
            values.append(pick(rng, ELEMENTWISE)(x))
        elif kind < 0.7:
            values.append(pick(rng, BINARY)(x, y))
        else:
            values.append(pick(rng, WHOLE)(x, y))
    return values


def pick(rng, functions):
    return functions[rng.integers(len(functions))]


def random_graph(seed):
    rng = np.random.default_rng(seed)
    n = SIZES[rng.integers(len(SIZES))]
    with Trace("random") as trace:
        inputs = [trace.placeholder(Spec((n, n), "float32")) for _ in range(2)]
        values = append_operations(
            rng, [ops.tanh(x) for x in inputs], int(rng.integers(4, 16))
        )
        output_numbers = {
            len(values) - 1,
            *rng.integers(len(values), size=rng.integers(4)),
        }
        outputs = [values[i] for i in sorted(output_numbers)]
    return trace.finish(outputs)


def arrays_of(graph, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(x.spec.shape).astype("float32") for x in graph.inputs]


def run_reference(graph, arrays):
    """Return the outputs, computed node by node, each in separate memory."""
    kernels = get_backend("reference").kernels
    values = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        inputs = [values.get(x, x.constant) for x in node.inputs]
        results = kernels[node.op.name](*map(np.array, inputs), **node.attrs)
        results = results if isinstance(results, tuple) else (results,)
        values.update(zip(node.outputs, results, strict=True))
    return [values.get(y, y.constant) for y in graph.outputs]


def assert_same(actual, expected, label):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3, err_msg=label)


def first_seeds(count):
    """Return the first seed of each test of twenty; all but the first two are slow."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=slow if n >= 40 else ()) for n in range(0, count, 20)]


@pytest.mark.parametrize("first", first_seeds(100))
@pytest.mark.parametrize("generate", [True, False], ids=["generated", "kernels"])
def test_programs_match_the_reference(first, generate):
    for seed in range(first, first + 20):
        graph = random_graph(seed)
        program = compiled(graph, get_backend("numpy"), generate=generate)
        results = []
        for repeat in range(2):  # the second run starts with the arena of the first
            arrays = arrays_of(graph, repeat)
            copies = [a.copy() for a in arrays]
            results.append((program(arrays), run_reference(graph, arrays)))
            for a, b in zip(arrays, copies, strict=True):
                np.testing.assert_array_equal(a, b)
        for repeat, (actual, expected) in enumerate(results):  # results stay
            assert_same(actual, expected, f"graph {seed}, turn {repeat}")


@pytest.mark.parametrize("first", first_seeds(60))
def test_updates_match_sequential_updates(first):
    for seed in range(first, first + 20):
        n = SIZES[seed % len(SIZES)]
        x = np.random.default_rng(seed).standard_normal((n, n)).astype("float32")

        def step(variables, x, seed=seed):
            rng = np.random.default_rng(seed)
            for variable in (*variables, *variables[:1]):
                values = append_operations(rng, [variable * 1.0, ops.tanh(x)], 4)
                variable.assign(ops.tanh(values[-1]))
            return values[-2]

        values_by_mode = []
        for is_compiled in (True, False):
            variables = [Variable(x * k) for k in (0.5, -0.25)]
            run = function(step) if is_compiled else step
            results = [run(variables, ops.convert_to_tensor(x)) for _ in range(3)]
            values_by_mode.append([y.numpy() for y in (*variables, *results)])
        assert_same(*values_by_mode, f"step {seed}")
