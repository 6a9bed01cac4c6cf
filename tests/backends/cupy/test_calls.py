"""The step of a session on a GPU that looks at each call of a library alone."""

import importlib
from pathlib import Path

import pytest

from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.signatures import Geometry, convolution

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
GEMM = Gemm(
    *(128, 4, 16),
    transpose=(False, False),
    leading=(128, 16, 128),
    dtypes=("float32", "float32"),
    compute="32F",
    epilogue="relu_aux_bias",
    aux_leading=128,
)
SHAPES = (2, 8, 4, 4), (16, 8, 3, 3), (2, 16, 4, 4)
GEOMETRY = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1))


@pytest.fixture
def calls(monkeypatch):
    if not BENCHMARKS.exists():
        pytest.skip("the benchmarks are in checkouts only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_calls")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_call_that_is_wrong_is_found(on_host, calls, monkeypatch, dtype):
    conv = convolution("conv_fprop", SHAPES, GEOMETRY, dtype, "strict", ("bias",))
    for call in (GEMM, conv):
        worst, limit = calls.error(call)
        assert worst <= limit
    device = on_host.device

    def beside(make):
        """Calls whose first operand is somewhere else."""

        def wrong(*about):
            start = make(*about)
            return lambda places, work: start((places[0] + 64, *places[1:]), work)

        return wrong

    monkeypatch.setattr(device, "dnn", beside(device.dnn))
    monkeypatch.setattr(device, "product", beside(device.product))
    for call in (GEMM, conv):
        worst, limit = calls.error(call)
        assert not worst <= limit
