"""Fused bodies as the compiler makes them, on the processor, against the reference."""

import numpy as np
import pytest

from tests.backends.cuda.host import GXX, Host
from tests.backends.jit.running import graph_of
from tests.compiler.graphs import evaluate
from toolkit import dtypes, ops
from toolkit.autodiff.tape import GradientTape
from toolkit.backends import get_backend
from toolkit.backends.cupy.cuda.fused import generate_reduction, is_fusable
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.backends.target import Target
from toolkit.compiler.fusion.fuse import join_nodes
from toolkit.compiler.pipeline import optimize
from toolkit.ir import PRIMITIVES, Node, Spec, Value
from toolkit.plans.operands import contiguous

pytestmark = pytest.mark.skipif(GXX is None, reason="g++ is not installed")
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def labels(rows, classes):
    return RNG.integers(-classes, classes, rows).astype("int32")


def with_gradients(function, *inputs):
    """A function's result and the gradients of the sum of its squares."""
    with GradientTape() as tape:
        for x in inputs:
            tape.watch(x)
        y = function(*inputs)
        loss = ops.sum(ops.square(y))
    return (y, *tape.gradient(loss, list(inputs)))


def layer_norm(x, gamma, beta):
    mean = ops.mean(x, axis=-1, keepdims=True)
    centered = x - mean
    variance = ops.mean(centered * centered, axis=-1, keepdims=True)
    return centered * ops.rsqrt(variance + 1e-5) * gamma + beta


def batch_norm(x, gamma, beta):
    mean = ops.mean(x, axis=(0, 1, 2))
    variance = ops.mean(ops.square(x - mean), axis=(0, 1, 2))
    return ops.relu((x - mean) * ops.rsqrt(variance + 1e-3) * gamma + beta)


def cross_entropy(x, y):
    """Of integer labels, with its gradient: one pick in each row, one put back."""
    with GradientTape() as tape:
        tape.watch(x)
        rows = ops.log_softmax(x, axis=-1)
        picked = ops.take_along_axis(rows, ops.expand_dims(y, -1), axis=-1)
        loss = -ops.mean(picked)
    return loss, tape.gradient(loss, x)


def adam(p, m, v, g, step):
    m = m + (g - m) * 0.1
    v = v + (g * g - v) * 0.001
    rate = 0.001 * ops.sqrt(1 - ops.power(0.999, step)) / (1 - ops.power(0.9, step))
    return p - rate * m / (ops.sqrt(v) + 1e-7), m, v


def lstm_gates(z, c):
    i, f, g, o = ops.split(z, 4, axis=-1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


BODIES = {
    "softmax of short rows": (ops.softmax, normal(9, 5)),
    "softmax of a warp": (ops.softmax, normal(3, 7, 48)),
    "softmax of several warps": (ops.softmax, normal(5, 1000)),
    "softmax of long rows": (ops.softmax, normal(3, 9001)),
    "log softmax": (lambda x: with_gradients(ops.log_softmax, x), normal(6, 200)),
    "cross entropy": (cross_entropy, normal(12, 10), labels(12, 10)),
    "cross entropy of many": (cross_entropy, normal(6, 5000), labels(6, 5000)),
    "cross entropy of odd rows": (cross_entropy, normal(5, 5001), labels(5, 5001)),
    "extremes of odd rows": (
        lambda x: (ops.argmax(x, axis=-1), ops.min(x, axis=-1), ops.sum(x * x)),
        normal(40, 1301),
    ),
    "layer norm": (
        lambda *xs: with_gradients(layer_norm, *xs),
        *(normal(50, 96), normal(96), normal(96)),
    ),
    "layer norm of long rows": (
        lambda *xs: with_gradients(layer_norm, *xs),
        *(normal(20, 6002), normal(6002), normal(6002)),
    ),
    "batch norm": (
        lambda *xs: with_gradients(batch_norm, *xs),
        *(normal(4, 5, 6, 24), normal(24), normal(24)),
    ),
    "batch norm of one channel": (
        lambda *xs: with_gradients(batch_norm, *xs),
        *(normal(4, 5, 6, 1), normal(1), normal(1)),
    ),
    "bias and gelu": (
        lambda x, b: with_gradients(lambda x, b: ops.gelu(x + b), x, b),
        *(normal(300, 40), normal(40)),
    ),
    "numbers of columns": (
        lambda x, i: ops.where(ops.equal(ops.arange(96), i), ops.softmax(x), 0.0),
        *(normal(5, 96), labels(5, 96)[:, None]),
    ),
    "numbers of elements": (
        lambda x: x * ops.cast(ops.arange(21), "float32"),
        normal(8, 21),
    ),
    "sums of long rows": (
        lambda x, b: with_gradients(lambda x, b: ops.softmax(x + b), x, b),
        *(normal(5, 17001), normal(17001)),
    ),
    "extremes": (
        lambda x: (ops.max(x, axis=-1), ops.argmax(x, axis=-1), ops.min(x)),
        normal(40, 130),
    ),
    "loss of everything": (
        lambda x, y: (ops.mean(ops.square(x - y)), ops.max(ops.abs(x))),
        *(normal(70, 301), normal(70, 301)),
    ),
    "adam": (
        adam,
        *(normal(33, 64), normal(33, 64), np.abs(normal(33, 64)), normal(33, 64)),
        np.float32(3) + np.zeros((), "float32"),
    ),
    "gates": (lstm_gates, normal(8, 4 * 12), normal(8, 12)),
    "masked attention": (
        lambda x, m: ops.softmax(ops.where(m, x * 0.125, -1e4), axis=-1),
        *(normal(2, 3, 16, 16), np.tril(np.ones((16, 16), bool))),
    ),
    "few long rows": (
        lambda x: (ops.sum(x * x, axis=1), ops.max(x, axis=1), ops.min(x, axis=1)),
        normal(3, 30001),
    ),
    "colours": (
        lambda x, m, s, y: (x - m) * s + ops.transpose(y, (1, 0, 2)),
        *(normal(6, 16, 3), normal(3), normal(3), normal(16, 6, 3)),
    ),
    "turned": (lambda x: ops.transpose(x, (0, 2, 1)) + 1.0, normal(3, 40, 70)),
}


def plan_of(function, arrays):
    """The graph of a function with fused nodes, and the launches of each of those."""
    return planned(graph_of(function, *arrays))


def planned(graph):
    """A graph with fused nodes, and the launches of each of those."""
    graph = optimize(graph, Target(get_backend("reference")))
    graph, plan = join_nodes(graph, is_fusable), []
    for node in graph.nodes:
        inputs = [contiguous(x.spec) for x in node.inputs]
        outputs = [contiguous(y.spec) for y in node.outputs]
        fused = node.op.name == "fused"
        plan.append((node, generate(node, inputs, outputs) if fused else None))
        assert not fused or plan[-1][1] is not None, node
    return graph, plan


def run(graph, plan, host, arrays):
    """Return the outputs. Generated code runs fused nodes, the reference the rest."""
    kernels = get_backend("reference").kernels
    values = dict(zip(graph.inputs, arrays, strict=True))

    def array(x):
        operand = values[x] if x in values else x.constant
        return np.ascontiguousarray(operand).reshape(x.spec.shape)

    for node, launches in plan:
        operands = [array(x) for x in node.inputs]
        if launches is None:
            outputs = kernels[node.op.name](*operands, **node.attrs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        else:
            outputs, problem = host.run(
                launches, operands, [y.spec for y in node.outputs]
            )
            assert not problem.any()
        values.update(zip(node.outputs, outputs, strict=True))
    return [array(y) for y in graph.outputs]


def floats_as(arrays, dtype):
    numpy_dtype = dtypes.numpy_dtype(dtype)
    return [a if a.dtype in (np.int32, bool) else a.astype(numpy_dtype) for a in arrays]


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", pytest.param("float64", marks=pytest.mark.slow)]
)
def test_bodies(dtype, tmp_path):
    work = []
    for name, (function, *arrays) in BODIES.items():
        arrays = floats_as(arrays, dtype)
        work.append((name, function, arrays, *plan_of(function, arrays)))
    launches = [x for *_, plan in work for _, actual in plan for x in actual or ()]
    host = Host(launches, tmp_path)
    tolerance = {"float32": 1e-5, "bfloat16": 0.05, "float64": 1e-11}[dtype]
    for name, function, arrays, graph, plan in work:
        exact = floats_as(arrays, "float64")
        expected = evaluate(graph_of(function, *exact), exact)
        for actual, y in zip(run(graph, plan, host, arrays), expected, strict=True):
            scale = 1 + np.abs(y.astype(np.float64)).max()
            difference = np.abs(actual.astype(np.float64) - y.astype(np.float64)).max()
            assert difference <= tolerance * scale, (name, difference, scale)


@pytest.mark.parametrize("name, shape", [("sum", (0, 3)), ("argmax", (1, 3))])
def test_results_without_elements_are_filled(name, shape):
    is_index = name == "argmax"
    x = Value(Spec(shape, "float32"))
    y = Value(Spec((3,), "int32" if is_index else "float32"))
    attrs = {"axis": 0 if is_index else (0,), "keepdims": False}
    node = Node(PRIMITIVES[name], (x,), attrs, (y,))
    operands, results = [contiguous(x.spec)], [contiguous(y.spec)]
    assert len(generate_reduction(node, operands, results, True)) == 1
