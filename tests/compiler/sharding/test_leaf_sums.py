"""Test the terms of leaves on virtual ranks: their total, bits and exchanges."""

import numpy as np
import pytest

from tests.compiler.sharding.virtual import run, shard_of
from toolkit import ops
from toolkit.comm import local
from toolkit.compiler.sharding.buckets import join_collectives
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.leaf_sums import separate_terms
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.core.trace import Trace
from toolkit.ir import Kind, Spec
from toolkit.ops.leaf_sums import leaf_terms, sum_leaves

LEAVES = 4
# A gradient of x (rows, 3) for w (3,): each is a sum over the rows, or linear in one.
GRADIENTS = {
    "sum": lambda x, w: ops.sum(x * w, axis=0),
    "with a regularizer": lambda x, w: 0.1 * w + ops.sum(x * w, axis=0),
    "in a wider dtype": lambda x, w: ops.cast(
        ops.sum(ops.cast(x * w, "float16"), axis=0), "float32"
    ),
    "scaled": lambda x, w: -ops.sum(x, axis=0) / 3.0 - ops.sum(x * w, axis=0) * 2.0,
    "not a sum of terms": lambda x, w: ops.sqrt(ops.abs(ops.sum(x * w, axis=0))),
    "after another sum": lambda x, w: ops.sum((x - ops.mean(x, axis=0)) * w, axis=0),
}


def step_of(gradient, rows):
    """Return the graph of a step: stored sums, and their total if it is needed."""
    with Trace() as trace:
        x, w = trace.placeholder(Spec((rows, 3), "float32")), None
        w = trace.placeholder(Spec((3,), "float32"))
        stored = trace.placeholder(Spec((LEAVES, 3), "float32"))
        needed = trace.placeholder(Spec((), "bool"))
        sums = stored + leaf_terms(gradient(x, w), LEAVES)
        total = sum_leaves(sums, needed)
        outputs = ops.cond(needed, lambda: total * 1.0, lambda: w * 1.0)
    return trace.finish([sums, outputs])


def run_on_ranks(graph, arrays, ranks):
    """Return the joined sums, the second output, and the collectives of each rank."""
    layouts = [Split(0), None, Split(0), None]
    graph = separate_terms(graph, batch=1)

    def compute(group):
        axis = MeshAxis("batch", group, LEAVES, even=False)
        sharded = propagate(graph, axis, layouts, [Split(0), None])
        rank_graph = join_collectives(partition(sharded, axis, layouts))
        rank_graph.verify()
        pairs = zip(arrays, layouts, strict=True)
        outputs = run(rank_graph, [shard_of(*pair, axis) for pair in pairs])
        nodes = [n for n in rank_graph.nodes if n.op.kind is Kind.COLLECTIVE]
        return outputs, [(n.op.name, "conditional" in n.attrs) for n in nodes]

    results = local.run(ranks, compute)
    sums = np.concatenate([outputs[0] for outputs, _ in results])
    return sums, [outputs[1] for outputs, _ in results], [c for _, c in results]


@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("name", GRADIENTS)
def test_total_is_the_gradient_on_any_number_of_ranks(name, rows):
    random = np.random.default_rng(0)
    x, w = random.normal(size=(rows, 3)), random.normal(size=3)
    stored = random.normal(size=(LEAVES, 3)).astype("float32")
    graph = step_of(GRADIENTS[name], rows)
    with Trace() as trace:
        values = [trace.placeholder(Spec(s, "float32")) for s in ((rows, 3), (3,))]
        gradient = GRADIENTS[name](*values)
    x, w = x.astype("float32"), w.astype("float32")
    (expected,) = run(trace.finish([gradient]), [x, w])
    found = set()
    for ranks in (1, 2, 3, 4):
        for needed in (True, False):
            inputs = [x, w, stored, np.array(needed)]
            sums, outputs, collectives = run_on_ranks(graph, inputs, ranks)
            total = expected + stored.sum(0)
            rtol = 2e-3 if "wider" in name else 1e-5
            np.testing.assert_allclose(sums.sum(0), total, rtol, 1e-5)
            for output in outputs:
                np.testing.assert_allclose(output, total if needed else w, rtol, 1e-5)
            assert all(c == collectives[0] for c in collectives)
            found.add((needed, sums.tobytes(), outputs[0].tobytes()))
    assert len(found) == 2, "the bits depend on the number of ranks"


@pytest.mark.parametrize("name", sorted({*GRADIENTS} - {"not a sum of terms"}))
def test_only_the_total_is_exchanged(name):
    graph = step_of(GRADIENTS[name], 8)
    inputs = [np.ones(x.spec.shape, x.spec.dtype) for x in graph.inputs]
    _, _, (collectives, _) = run_on_ranks(graph, inputs, 2)
    unconditional = [c for c, is_conditional in collectives if not is_conditional]
    assert unconditional == ["all_reduce"] * (name == "after another sum")
    assert len(collectives) - len(unconditional) == 1
