"""Generated convolutions and their gradients against the reference backend."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

from tests.backends.jit.convolutions import (
    KINDS,
    Problem,
    check,
    check_layer,
    computed,
    lowered,
)
from tests.backends.jit.running import vectors_of
from toolkit.backends.numpy.jit.engine import SETTINGS
from toolkit.backends.numpy.jit.kernels.conv import lower_grad
from toolkit.backends.numpy.jit.llvm import binding_for_all
from toolkit.backends.numpy.jit.processor import PROCESSORS
from toolkit.plans.rules import rules


@st.composite
def problems(draw):
    ndim = draw(st.integers(1, 3))
    small = st.integers(0, 4 if ndim == 3 else 20)

    def each(*values: Any) -> tuple[Any, ...]:
        return tuple(draw(st.sampled_from(values)) for _ in range(ndim))

    size = each(1, 2, 3) if ndim == 3 else each(1, 2, 3, 5, 10)
    attrs = {
        "strides": each(1, 1, 2, 3),
        "dilation": each(1, 1, 2, 3),
        "padding": tuple(zip(each(0, 1, 2, 4), each(0, 1, 5), strict=True)),
        "groups": draw(st.sampled_from([1, 1, 2, 3, 16])),
    }
    axes = zip(size, attrs["dilation"], attrs["padding"], strict=True)
    min_extents = [max(1, (k - 1) * d + 1 - sum(pads)) for k, d, pads in axes]
    spatial = tuple(n + draw(small) for n in min_extents)
    few = st.sampled_from([1, 2, 4])
    many = st.sampled_from([1, 3, 4, 8, 17, 24, 40])
    depth, filters = (draw(few if attrs["groups"] == 16 else many) for _ in "io")
    return Problem(draw(st.integers(0, 3)), spatial, size, (depth, filters), **attrs)


@given(
    problem=problems(),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float32", "float64"]),
    lanes=st.sampled_from([4, 8, 16]),
    chunk=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_any_configuration(problem, kind, dtype, lanes, chunk):
    with vectors_of(lanes):
        check(kind, *problem.of(kind, dtype), chunk)


SAME = ((1, 1), (1, 1))
NAMED = {
    "edges and a loop of tiles": Problem(2, (6, 60), (3, 3), (4, 32), padding=SAME),
    "pixels become one axis": Problem(2, (5, 7), (1, 1), (16, 48)),
    "pixels become blocks of one axis": Problem(2, (14, 16), (1, 1), (16, 48)),
    "strided pixels": Problem(2, (7, 8), (1, 1), (8, 16), strides=(2, 2)),
    "panels outside": Problem(3, (4, 4), (3, 3), (96, 320), padding=SAME),
    "parts of panels": Problem(1, (5, 5), (3, 3), (96, 328), padding=SAME),
    "a whole and a part of a panel": Problem(1, (6, 6), (3, 3), (5, 88)),
    "many kinds of edges": Problem(2, (19,), (13,), (3, 8), padding=((12, 0),)),
    "only padding is seen": Problem(1, (2, 2), (1, 2), (3, 4), padding=((3, 3),) * 2),
    "stride and dilation": Problem(
        2, (9, 23), (3, 3), (3, 17), strides=(2, 4), dilation=(2, 6)
    ),
    "depthwise": Problem(2, (9, 9), (3, 3), (1, 1), padding=SAME, groups=40),
    "depthwise with a multiplier": Problem(2, (6, 6), (3, 3), (1, 2), groups=24),
    "small groups": Problem(2, (6, 6), (3, 3), (4, 4), padding=SAME, groups=12),
    "groups that share no vector": Problem(1, (5, 5), (2, 2), (3, 3), groups=5),
    "volumes": Problem(2, (3, 4, 9), (2, 3, 3), (3, 20), padding=((1, 0), *SAME)),
    "dot products": Problem(2, (7, 21), (3, 3), (32, 3), padding=SAME),
    "dot products for the input": Problem(2, (9, 9), (3, 3), (1, 32), strides=(2, 2)),
    "much code": Problem(1, (24, 40), (7, 7), (3, 64), strides=(2, 2), padding=SAME),
    "no images": Problem(0, (5, 5), (3, 3), (4, 8)),
    "panels of a single row": Problem(1, (3, 3), (1, 1), (400, 330)),
    "weights from afar": Problem(1, (3, 3), (3, 3), (64, 96)),
}


# Problems of one image, which several threads must share.
SHARED = {
    "depthwise": Problem(1, (14, 14), (3, 3), (1, 1), padding=SAME, groups=576),
    "few pixels": Problem(1, (7, 7), (1, 1), (160, 960)),
    "more pixels": Problem(1, (14, 14), (1, 1), (64, 384)),
    "rows": Problem(1, (32, 32), (3, 3), (3, 32), padding=SAME),
}


@pytest.mark.parametrize("name", SHARED)
def test_one_image_is_an_even_number_of_tasks(name):
    arrays, attrs = SHARED[name].of("conv", "float32")
    lowered_conv = lowered("conv", arrays, attrs)[0]
    assert lowered_conv.calls[-1].tasks in (2, 4, 8, 16)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMED)
def test_special_configurations(name, kind):
    check(kind, *NAMED[name].of(kind, "float32"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "problem",
    [
        Problem(40, (9, 9), (3, 3), (8, 24), padding=SAME),
        Problem(3, (6, 6), (3, 3), (328, 328), padding=SAME),
    ],
)
def test_results_do_not_depend_on_chunks(kind, problem):
    arrays, attrs = problem.of(kind, "float32")
    unchunked = computed(kind, arrays, attrs)
    for chunk in (1, 2, 5):
        assert np.array_equal(computed(kind, arrays, attrs, chunk), unchunked)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize(
    ("extent", "channels"), [(40, (32, 64)), (40, (33, 60)), (6, (328, 330))]
)
def test_rows_of_one_image_are_divided_among_tasks(kind, extent, channels):
    problem = Problem(1, (extent, extent), (3, 3), channels, padding=SAME)
    _check_rows(kind, problem)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
def test_pixels_of_one_image_are_several_rows(kind):
    _check_rows(kind, Problem(1, (14, 14), (1, 1), (160, 200)))


def _check_rows(kind, problem):
    arrays, attrs = problem.of(kind, "float32")
    lowered_conv, _ = lowered(kind, arrays, attrs)
    assert lowered_conv.calls[-1].rows > 1
    check(kind, arrays, attrs)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("extent", "size", "channels"),
    [(14, 1, (256, 64)), (7, 1, (160, 64)), (12, 3, (64, 64)), (56, 1, (24, 144))],
)
def test_sums_stay_in_registers(cpu, extent, size, channels):
    pads = ((size // 2,) * 2,) * 2
    problem = Problem(1, (extent,) * 2, (size,) * 2, channels, padding=pads)
    with rules.override(processor=PROCESSORS[cpu]):
        lowered_conv, _ = lowered("conv", *problem.of("conv", "float32"))
    llvm = binding_for_all()
    target = llvm.Target.from_triple(PROCESSORS[cpu].triple)
    machine = target.create_target_machine(cpu=cpu, **SETTINGS)
    text = machine.emit_assembly(
        llvm.parse_assembly(lowered_conv.calls[-1].code.text())
    )
    assert re.search(r"vfmadd\w+\s.*[yz]mm", text)
    assert not re.search(r"\(%rsp\).*[yz]mm|[yz]mm.*\(%rsp\)", text)


@pytest.mark.parametrize("name", NAMED)
def test_large_kernels_are_divided_by_their_weights(name, monkeypatch):
    monkeypatch.setattr(lower_grad, "_MAX_PARTIAL_BYTES", 0)
    check("conv_kernel_grad", *NAMED[name].of("conv_kernel_grad", "float32"))


VIEWS = {
    "channels first": lambda a: np.moveaxis(np.moveaxis(a, -1, 1).copy(), 1, -1),
    "channels outside": lambda a: np.moveaxis(np.moveaxis(a, -1, 0).copy(), 0, -1),
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "every other channel": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["edges and a loop of tiles", "small groups"])
def test_strided_operands(name, view, kind):
    arrays, attrs = NAMED[name].of(kind, "float32")
    views = [VIEWS[view](a) for a in arrays]
    assert not any(v.flags.c_contiguous for v in views)
    check(kind, views, attrs)


@pytest.mark.parametrize("kind", ["conv", "conv_input_grad"])
@pytest.mark.parametrize("filters", [8, 32, 40])
def test_epilogue_is_fused(kind, filters):
    problem = Problem(3, (7, 18), (3, 3), (filters, filters), padding=SAME)
    check_layer(kind, problem)
