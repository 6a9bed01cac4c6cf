"""Tests of branches that become selections, on devices that cannot wait for a
predicate.
"""

from types import SimpleNamespace

import numpy as np

from tests.compiler.graphs import op_names, target
from toolkit import ops
from toolkit.compiler.evaluate import evaluate
from toolkit.compiler.passes.branches import select_branches
from toolkit.compiler.pipeline import compile_program
from toolkit.core.trace import Trace
from toolkit.ir import Spec

# The attributes of a backend that the pass reads.
WITHOUT_BRANCHES = target(SimpleNamespace(generator=SimpleNamespace(can_branch=False)))


def traced(function, *specs):
    with Trace("test") as trace:
        outputs = function(*[trace.placeholder(spec) for spec in specs])
    return trace.finish([outputs])


def choose(p, x):
    return ops.cond(p, lambda: ops.exp(x) + 1.0, lambda: ops.negative(x))


def test_both_branches_are_computed_and_one_is_selected():
    graph = traced(choose, Spec((), "bool"), Spec((3,), "float32"))
    selected = select_branches(graph, WITHOUT_BRANCHES)
    selected.verify()
    assert {"add", "exp", "negative", "where"} <= set(op_names(selected))
    assert "cond" not in op_names(selected)
    x = np.array([1.0, 2.0, 3.0], "float32")
    for p, expected in ((True, np.exp(x) + 1), (False, -x)):
        feeds = dict(zip(selected.inputs, (np.array(p), x), strict=True))
        (result,) = evaluate(selected, selected.outputs, feeds)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


def test_a_loop_stays_in_its_branch():
    def loop_in_a_branch(p, x):
        def grow():
            return ops.while_loop(
                lambda y: ops.sum(y) < 10.0, lambda y: (y + 1.0,), (x,)
            )[0]

        return ops.cond(p, grow, lambda: x)

    specs = Spec((), "bool"), Spec((3,), "float32")
    graph = traced(loop_in_a_branch, *specs)
    assert op_names(select_branches(graph, WITHOUT_BRANCHES)) == op_names(graph)


def test_branches_stay_on_a_processor():
    graph = traced(choose, Spec((), "bool"), Spec((3,), "float32"))
    program = compile_program(graph, target())
    assert "cond" in op_names(program.graph)
