"""Test the report of `inspect` about a program: passes, kernels and schedule."""

import json
import re

import numpy as np
import pytest

import toolkit
from tests.pictures.geometry import check, texts_of
from toolkit import layers, ops
from toolkit.inspection.scaling import Stage, predict_scaling
from toolkit.pictures.shapes import Rectangle

pytestmark = pytest.mark.skipif(
    not toolkit.core.tensor.backend().generator.can_generate,
    reason="needs generated code (llvmlite)",
)


def training_step():
    model = toolkit.Sequential(
        [
            toolkit.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile("adam", "mse")
    return model.inspect(np.ones((32, 8, 8, 1)), np.ones((32, 10)))


# The tasks of stages, whether threads share them, and seconds by the number of cores.
STAGES = {
    "even": ([((1.0,) * 8, True)], {1: 8.0, 2: 4.0, 8: 1.0, 99: 1.0}),
    "alone": ([((1.0, 1.0), False)], {1: 2.0, 2: 2.0}),
    "the last waits": ([((1.0, 1.0, 4.0), True)], {1: 6.0, 2: 5.0, 3: 4.0}),
    "one after the other": (
        [((2.0,) * 4, True), ((3.0,), False), ((1.0,) * 2, True)],
        {1: 13.0, 2: 8.0, 4: 6.0},
    ),
    "nothing": ([], {1: 0.0, 4: 0.0}),
}


def test_notebooks_show_folded_sections():
    plan = toolkit.function(lambda x: ops.exp(x) @ x).inspect(ops.ones((4, 4)))
    html = plan._repr_html_()
    assert html.count("<details>") == html.count("<summary>") == 4
    visible = re.sub(r"<details>.*?</details>|<style>.*?</style>", "", html, flags=re.S)
    assert "2 kernels" in visible and "peak" in visible and len(visible) < 300


@pytest.mark.parametrize("name", STAGES)
def test_tasks_are_distributed_to_more_cores(name):
    stage_description, expected = STAGES[name]
    stages = [
        Stage(tasks, (number,) * len(tasks), is_shared)
        for number, (tasks, is_shared) in enumerate(stage_description)
    ]
    for cores, seconds in expected.items():
        for serial_share in (0.0, 0.5):
            scaling = predict_scaling(stages, serial_share, cores)
            assert scaling.seconds == seconds + serial_share
            assert 1.0 <= scaling.speed_up <= cores
            total_loss = sum(loss for _, loss in scaling.waiting)
            assert total_loss == pytest.approx(seconds - expected[1] / cores)


def test_scaling_is_measured():
    plan = training_step()
    one, two, sixty_four = plan.scaling((1, 2, 64), repeats=3)
    assert (one.cores, one.speed_up, one.waiting) == (1, 1.0, ())
    assert one.seconds >= two.seconds >= sixty_four.seconds > 0
    assert {number for number, _ in sixty_four.waiting} <= set(range(len(plan.kernels)))


@pytest.mark.parametrize("shape", [(3,), (64, 64), (512, 256)])
def test_sum_of_products_is_one_kernel(shape):
    plan = toolkit.function(lambda x, y, z: ops.sum(x + y * z)).inspect(
        *[ops.ones(shape)] * 3
    )
    assert [kernel.name for kernel in plan.kernels] == ["multiply, add, sum"]
    assert str(plan).count("one loop:") == 1


def test_every_computed_node_is_in_one_kernel():
    plan = training_step()
    computed = [node for kernel in plan.kernels for node in kernel.nodes]
    views = plan.program.layouts.views
    computing = [n for n in plan.graph.nodes if n.outputs[0] not in views]
    assert len(computed) == len(computing)
    assert set(computed) == set(computing)
    moments = {moment for kernel in plan.kernels for moment in kernel.moments}
    steps = plan.program.plan.distinct
    assert {b.first for b in steps} | {b.last for b in steps} <= moments
    assert any(len(kernel.moments) > 1 for kernel in plan.kernels)


def test_branches_are_kernels_of_one_step(tmp_path):
    def heads(x, *weights):
        return [ops.tanh(x @ w) for w in weights]

    square = ops.ones((64, 64))
    plan = toolkit.function(heads).inspect(*[square] * 6)
    assert plan.side_by_side == {0: [0, 1, 2, 3, 4]}
    assert "parallel in moment 0: kernels 0, 1, 2, 3, 4" in str(plan)
    assert all(kernel.seconds > 0 for kernel in plan.measure())
    plan.trace(tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sorted(row["args"]["kernel"] for row in rows) == [0, 1, 2, 3, 4]


def test_passes_report_their_changes():
    def f(x):
        ops.tanh(x)
        return ops.sin(x) * (ops.exp(ops.convert_to_tensor(2.0)) * 3.0) + ops.sin(x)

    plan = toolkit.function(f).inspect(ops.ones((4,)))
    lines = dict(line.split(None, 1) for line in str(plan).splitlines()[3:9])
    assert lines["prune"] == "6 nodes  without tanh"
    assert lines["fold"] == "4 nodes  without exp, multiply"
    assert lines["share"] == "3 nodes  without sin"
    assert lines["fuse"] == "1 node   3 of them in 1 loop"
    assert "decompose, widen, simplify" in lines["nothing"]


def test_source_contains_the_code_of_a_kernel():
    plan = training_step()
    plan.measure(1)
    for number, kernel in enumerate(plan.kernels):
        assert "define" in plan.source(number)
        assert kernel.seconds is not None


def test_the_arena_is_drawn():
    plan = training_step()
    picture = plan.plot()
    check(picture)
    hints = [s.hint for s in picture.shapes if isinstance(s, Rectangle) and s.hint]
    assert len(hints) == len(plan.program.plan.distinct)
    assert picture.title.startswith("Arena of train_step: ")
    registers = toolkit.function(lambda x: x * 2.0 + 1.0).inspect(ops.ones((4,)))
    assert "every value stays in registers" in registers.plot().title


def test_the_graph_is_drawn_in_kernels(tmp_path):
    plan = toolkit.function(lambda x, y: ops.sum(x + y * 2.0) * ops.max(x @ y)).inspect(
        ops.ones((40, 40)), ops.ones((40, 40))
    )
    names = texts_of(plan.plot("graph"))
    assert {f"kernel {i}" for i in range(len(plan.kernels))} <= set(names)
    for kernel in plan.kernels:
        assert {node.op.name for node in kernel.nodes} - {"fused"} <= set(names)
    assert names.count("multiply") == 2 and names.count("max") == 1
    closed = texts_of(plan.plot("graph", tmp_path / "graph.svg", expand=False))
    assert f"({plan.kernels[-1].name})" in closed and "multiply" not in closed
    assert (tmp_path / "graph.svg").stat().st_size > 1000
    with pytest.raises(ValueError, match="expected one of 'arena', 'graph'"):
        plan.plot("memory")


def test_variables_are_named_in_their_kernels():
    texts = texts_of(training_step().plot("graph", expand=True))
    assert sum(text.endswith("/conv/kernel") for text in texts) == 2
    assert texts.count("input 0") == 1


def test_the_text_of_a_recurrent_step_has_no_internals():
    model = toolkit.Sequential([toolkit.Input((5, 3)), toolkit.layers.LSTM(4)])
    model.compile("sgd", "mse")
    text = str(model.inspect(np.ones((2, 5, 3), "float32"), np.ones((2, 4), "float32")))
    assert "backward=Backward(<graph of" in text
    assert "Graph(" not in text and "<Tensor" not in text
