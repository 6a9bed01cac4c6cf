"""Kernels of whole programs and of large bodies: all that they use fits a processor."""

from itertools import product

import numpy as np
import pytest

from tests.backends.cuda.assembler import ARCHITECTURES, check, needs_nvrtc
from tests.backends.cuda.bodies import drawn
from tests.backends.cuda.host import GXX, Host
from tests.backends.cuda.programs import MODELS, POLICIES, kernels_of
from tests.backends.cuda.test_fused import planned, run
from tests.compiler.graphs import evaluate
from toolkit.backends.cupy.cuda import parts

needs_gxx = pytest.mark.skipif(GXX is None, reason="g++ is not installed")
slow = pytest.mark.slow


@needs_nvrtc
def test_a_program(record_property):
    found = kernels_of("recurrent", "mixed_float16").values()
    check(found, ARCHITECTURES[-1], record_property)


@slow
@needs_nvrtc
@pytest.mark.parametrize("model, policy", list(product(MODELS, POLICIES)))
def test_programs(model, policy, record_property):
    found = kernels_of(model, policy).values()
    for arch in ARCHITECTURES:
        check(found, arch, record_property)


def kernels_drawn(seed):
    """The kernels of a random graph."""
    _, plan = planned(drawn(seed))
    return {x.kernel.name: x.kernel for _, made in plan for x in made or ()}.values()


@slow
@needs_nvrtc
@pytest.mark.parametrize("seed", range(40))
def test_random_bodies(seed, record_property):
    check(kernels_drawn(seed), ARCHITECTURES[seed % 2], record_property)


@needs_gxx
def test_bodies_in_parts(tmp_path, monkeypatch):
    """Random bodies compute what eager operations do, however small their parts are."""
    graphs = [drawn(seed, ["float64"], (3, 40)) for seed in (1, 2)]
    work, launches = [], {}
    for most in (parts.MOST_ARRAYS, 5):
        monkeypatch.setattr(parts, "MOST_ARRAYS", most)
        for graph in graphs:
            work.append((graph, *planned(graph)))
            made = [x for _, found in work[-1][-1] for x in found or ()]
            launches.setdefault(most, []).extend(made)
    few, many = (len(made) for made in launches.values())
    assert many > 2 * few
    host = Host([x for made in launches.values() for x in made], tmp_path)
    rng = np.random.default_rng(0)
    for graph, planned_graph, plan in work:
        arrays = [rng.standard_normal(x.spec.shape) for x in graph.inputs]
        expected = evaluate(graph, arrays)
        for found, y in zip(
            run(planned_graph, plan, host, arrays), expected, strict=True
        ):
            np.testing.assert_allclose(found, y, 1e-9, 1e-9)
