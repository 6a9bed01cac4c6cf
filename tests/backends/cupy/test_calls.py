"""The step of a session on a GPU that looks at each call of a library alone."""

import ctypes
import importlib
from pathlib import Path

import numpy as np
import pytest

from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.signatures import Geometry, convolution

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu"
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


def test_nan_is_not_a_small_error(calls):
    value, zero = np.ones(3, "float32"), np.zeros(3, "float32")
    assert calls._distance(value, value, zero) == 0
    for invalid in (np.nan, np.inf):
        assert calls._distance(invalid * value, value, zero) == np.inf
    assert calls._distance(zero, value, zero) == 1
    assert (
        calls._distance(value, zero, zero) == np.inf
    )  # a read-only operand was written


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_incorrect_calls_are_detected(on_host, calls, monkeypatch, dtype):
    conv = convolution("conv_fprop", SHAPES, GEOMETRY, dtype, "strict", ("bias",))
    for call in (GEMM, conv):
        worst, limit = calls.error(call)
        assert worst <= limit
    device = on_host.device

    def spoiled(make, result):
        """Calls that leave some of their result zero."""

        def wrong(*about):
            start = make(*about)

            def run(places, work):
                start(places, work)
                ctypes.memset(places[result], 0, 64)

            return run

        return wrong

    monkeypatch.setattr(device, "dnn", spoiled(device.dnn, 3))
    monkeypatch.setattr(device, "product", spoiled(device.product, 2))
    for call in (GEMM, conv):
        worst, limit = calls.error(call)
        assert not worst <= limit
