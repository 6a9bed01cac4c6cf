"""Kernels of whole programs and of large bodies: all that they use fits a processor."""

from itertools import product

import numpy as np
import pytest

from tests.backends.cuda.assembler import ARCHITECTURES, check, needs_nvrtc
from tests.backends.cuda.bodies import draw_body
from tests.backends.cuda.host import GXX, Host
from tests.backends.cuda.programs import MODELS, POLICIES, kernels_of
from tests.backends.cuda.test_fused import layer_norm, planned, run, with_gradients
from tests.compiler.graphs import evaluate
from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.backends.cupy.cuda import splitting
from toolkit.core.trace import Trace
from toolkit.ir import Spec

needs_gxx = pytest.mark.skipif(GXX is None, reason="g++ is not installed")
slow = pytest.mark.slow


@needs_nvrtc
def test_one_program(record_property):
    kernels = kernels_of("recurrent", "mixed_float16").values()
    check(kernels, ARCHITECTURES[-1], record_property)


@slow
@needs_nvrtc
@pytest.mark.parametrize("model, policy", list(product(MODELS, POLICIES)))
def test_programs(model, policy, record_property):
    kernels = kernels_of(model, policy).values()
    for arch in ARCHITECTURES:
        check(kernels, arch, record_property)


def kernels_drawn(seed):
    """The kernels of a random graph."""
    _, plan = planned(draw_body(seed))
    return {
        x.kernel.name: x.kernel for _, planned in plan for x in planned or ()
    }.values()


@slow
@needs_nvrtc
@pytest.mark.parametrize("seed", range(40))
def test_random_bodies(seed, record_property):
    check(kernels_drawn(seed), ARCHITECTURES[seed % 2], record_property)


@needs_gxx
def test_split_bodies(tmp_path, monkeypatch):
    """Random bodies equal eager operations for parts of any size."""
    graphs = [draw_body(seed, ["float64"], (3, 40)) for seed in (1, 2)]
    work, launches = [], {}
    for max_arrays in (splitting.MAX_ARRAYS, 5):
        monkeypatch.setattr(splitting, "MAX_ARRAYS", max_arrays)
        for graph in graphs:
            work.append((graph, *planned(graph)))
            launches_of_body = [x for _, actual in work[-1][-1] for x in actual or ()]
            launches.setdefault(max_arrays, []).extend(launches_of_body)
    small_count, large_count = (
        len(launches_of_body) for launches_of_body in launches.values()
    )
    assert large_count > 2 * small_count
    host = Host(
        [x for launches_of_body in launches.values() for x in launches_of_body],
        tmp_path,
    )
    rng = np.random.default_rng(0)
    for graph, planned_graph, plan in work:
        arrays = [rng.standard_normal(x.spec.shape) for x in graph.inputs]
        expected = evaluate(graph, arrays)
        for actual, y in zip(
            run(planned_graph, plan, host, arrays), expected, strict=True
        ):
            np.testing.assert_allclose(actual, y, 1e-9, 1e-9)


def classified(x, y):
    """A loss of logits in float32, and its gradient in the dtype of the logits."""
    with GradientTape() as tape:
        tape.watch(x)
        rows = ops.log_softmax(ops.cast(x, "float32"), axis=-1)
        loss = -ops.mean(ops.take_along_axis(rows, y, axis=-1))
    return loss, tape.gradient(loss, x)


def normalized(x, gamma, beta):
    return with_gradients(layer_norm, x, gamma, beta)


ROWS = {
    "softmax": (ops.softmax, lambda n, dtype: [((512, n), dtype)]),
    "loss": (classified, lambda n, dtype: [((512, n), dtype), ((512, 1), "int32")]),
    "norm": (normalized, lambda n, dtype: [((512, n), dtype), *[((n,), dtype)] * 2]),
}


@slow
@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_any_length(kind, dtype, record_property):
    function, specs = ROWS[kind]
    kernels_by_name = {}
    for length in (10, 768, 1001, 4096, 8192, 16384, 50257):
        with Trace("rows") as trace:
            inputs = [trace.placeholder(Spec(*row)) for row in specs(length, dtype)]
            outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        _, plan = planned(trace.finish(outputs))
        kernels_by_name |= {
            x.kernel.name: x.kernel for _, planned in plan for x in planned or ()
        }
    for arch in ARCHITECTURES:
        check(kernels_by_name.values(), arch, record_property)
