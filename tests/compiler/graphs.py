"""Random graphs for property tests, and their evaluation node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from toolkit import ops
from toolkit.backends.target import Target
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.core.tensor import Tensor, backend
from toolkit.core.trace import Trace, inline
from toolkit.ir import Graph, Spec

UNARY = [
    ops.negative,
    ops.tanh,
    ops.abs,
    ops.stop_gradient,
    lambda x: x * 1.0,
    lambda x: x - 0.0,
    lambda x: x / 1.0,
    lambda x: x * 0.5 + 1.0,
    lambda x: ops.reshape(x, x.shape[::-1]),
    lambda x: ops.reshape(ops.reshape(x, (-1,)), x.shape),
    ops.transpose,
    ops.relu,
    lambda x: ops.relu6(ops.relu(x)),
    lambda x: ops.softplus(ops.relu(x - 1.0)),
    lambda x: ops.transpose(ops.transpose(x)),
    lambda x: ops.flip(x, 0),
    lambda x: ops.broadcast_to(ops.sum(x, axis=0, keepdims=True), x.shape),
    lambda x: x - ops.max(x, axis=-1, keepdims=True),
    lambda x: ops.concatenate([x, x], axis=0),
    lambda x: ops.split(ops.concatenate([x, x], axis=1), 2, axis=1)[1],
    lambda x: ops.where(x > 0.0, x, ops.zeros_like(x)),
    lambda x: x + ops.ones(x.shape) * 3.0,
]
BINARY = [ops.add, ops.multiply, ops.subtract, ops.maximum]


def target(override: Any = None, **options: Any) -> Target:
    """Return the target for `override`, or for the default backend."""
    return Target(override or backend(), **options)


def compiled(graph: Graph, backend: Any = None, **options: Any) -> Executable:
    """Return the program of a graph, ready to call."""
    return Executable(compile_program(graph, target(backend, **options)))


@st.composite
def graphs(draw: Any) -> Graph:
    """Draw a graph of a few inputs, up to 12 operations, and one to three outputs."""
    rows, columns = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    with Trace("random") as trace:
        values = [
            trace.placeholder(Spec((rows or 1, columns), "float32"))
            for _ in range(draw(st.integers(1, 3)))
        ]
        for _ in range(draw(st.integers(1, 12))):
            x = draw(st.sampled_from(values))
            if draw(st.booleans()):
                values.append(draw(st.sampled_from(UNARY))(x))
                continue
            fitting = [y for y in values if y.shape == x.shape]
            y = draw(st.sampled_from(fitting))
            values.append(draw(st.sampled_from(BINARY))(x, y))
        count = draw(st.integers(1, 3))
        outputs = [draw(st.sampled_from(values)) for _ in range(count)]
    return trace.finish(outputs)


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return input arrays for a graph."""
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal(v.spec.shape).astype(v.spec.dtype)
        for v in graph.inputs
    ]


def evaluate(graph: Graph, arrays: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Compute the outputs eagerly."""
    return [x.numpy() for x in inline(graph, [Tensor(a) for a in arrays])]


def trace_of(function: Any, *shapes: tuple[int, ...]) -> Graph:
    """Return the graph of a function of float32 tensors."""
    with Trace("test") as trace:
        inputs = [trace.placeholder(Spec(shape, "float32")) for shape in shapes]
        outputs = function(*inputs)
    return trace.finish(outputs if isinstance(outputs, (tuple, list)) else [outputs])


def op_names(graph: Graph) -> list[str]:
    """Return the names of the nodes' operations, in order."""
    return [node.op.name for node in graph.nodes]
