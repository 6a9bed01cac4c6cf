"""Tests that compile generated kernels for devices. They need no device."""

import pytest

from tests.backends.cases import VIEWS
from tests.backends.cuda.assembler import ARCHITECTURES, check, needs_nvrtc
from tests.backends.cuda.test_fused import BODIES, floats_as, plan_of
from tests.backends.cuda.test_generated import ELEMENTWISE, REST, generated
from tests.backends.cuda.test_splitting import segments
from toolkit.backends.cupy import nvrtc
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.backends.cupy.cuda.prelude import PRELUDE
from toolkit.core.tensor import Tensor
from toolkit.errors import DeviceError
from toolkit.ir import PRIMITIVES, Node, Spec
from toolkit.plans.operands import contiguous


def kernels(step, floats=("float16", "bfloat16", "float32", "float64")):
    """The kernels of every step-th case, of all bodies in some dtypes, and of parts."""
    launches = list(segments())
    for case in [*ELEMENTWISE, *REST, *VIEWS][::step]:
        launches += generated(case, case.arrays) or ()
    for function, *arrays in BODIES.values():
        for dtype in floats:
            _, plan = plan_of(function, floats_as(arrays, dtype))
            launches += [x for _, planned in plan for x in planned or ()]
    return list({x.kernel.name: x.kernel for x in launches}.values())


def huge(name, spec, **attrs):
    """The launches of a primitive for an array of more elements than an int counts."""
    result = PRIMITIVES[name].spec(spec, **attrs)
    node = Node(PRIMITIVES[name], [Tensor(None, spec)], attrs, [Tensor(None, result)])
    return generate(node, [contiguous(spec)], [contiguous(result)])


def test_indices_of_huge_arrays_are_wide():
    line = Spec((3 << 30,), "int8")
    everywhere = [
        *huge("negative", line),
        *huge("cast", line, dtype="float32"),
        *huge("sum", line, axis=(0,), keepdims=False)[:1],
        *huge("pad", line, widths=((1, 1),), value=0),
        *huge("sum", Spec((3 << 15, 1 << 16), "float32"), axis=(1,), keepdims=False)[
            :1
        ],
    ]
    for launch in everywhere:
        body = launch.kernel.source.rpartition("#endif")[2]
        assert "const i64 i = " in body or "const i64 row = " in body, body
        assert launch.grid[0] < 2**31
    if nvrtc.library() is not None:
        check([launch.kernel for launch in everywhere], 90)


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_some_kernels_compile(arch):
    check(kernels(97, ("bfloat16",)), arch)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile(arch):
    check(kernels(1), arch)


@needs_nvrtc
def test_compile_error_names_the_line():
    with pytest.raises(DeviceError, match=r"bad\.cu\(\d+\): error: .*nothing"):
        nvrtc.compile_source(f"{PRELUDE}\nint x = nothing;", "bad", 90)


@needs_nvrtc
def test_one_kernel_becomes_a_cubin():
    kernel = kernels(4000, ())[0]
    assert nvrtc.compile_kernel(kernel, 90).startswith(b"\x7fELF")


def test_missing_nvrtc_error_names_the_extras(monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    with pytest.raises(DeviceError, match="cuda12"):
        nvrtc.compile_source("", "nothing", 90)
