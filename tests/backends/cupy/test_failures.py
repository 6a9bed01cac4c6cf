"""What a GPU lacks is said when a program is loaded or compiled; nothing falls back."""

import numpy as np
import pytest

import toolkit
from tests.backends.conftest import why_no_gpu
from tests.backends.cupy.lowered import lowered, node_of
from toolkit import ops
from toolkit.backends.base import contiguous
from toolkit.backends.cupy import algorithms, availability, cublaslt, libraries
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.backends.cupy.cublaslt import compute_type
from toolkit.backends.cupy.lowering import Numerics, providers
from toolkit.errors import (
    BackendUnavailable,
    DeviceError,
    OutOfDeviceMemory,
    UnsupportedOnBackend,
)
from toolkit.ir import Spec


class Runtime:
    """CuPy's binding of the CUDA runtime, as far as it is asked."""

    def __init__(self, driver, built=13020, count=1):
        self.driverGetVersion = lambda: driver
        self.runtimeGetVersion = lambda: built
        self.count = count

    def getDeviceCount(self):
        if isinstance(self.count, Exception):
            raise self.count
        return self.count


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (Runtime(0), "no CUDA driver.*cudaErrorInsufficientDriver"),
        (Runtime(12080), r"driver is for CUDA 12.8, CuPy for CUDA 13.2.*cuda12"),
        (Runtime(13020, count=0), "no CUDA device"),
        (Runtime(13020, count=RuntimeError("all busy")), "no device.*all busy"),
    ],
)
def test_why_no_device_can_be_used(runtime, words):
    with pytest.raises(BackendUnavailable, match=words):
        availability.require(runtime)
    assert availability.require(Runtime(13020, count=2)) == 2


def test_without_cupy_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(availability, "import_module", missing)
    with pytest.raises(BackendUnavailable, match="CuPy is not installed.*cuda13"):
        availability.cupy_module()


def test_without_cublaslt_nothing_starts_without_cudnn_convolutions_are_slow(
    monkeypatch,
):
    reasons = {"cublaslt": "libcublasLt.so.13 was not found", "cudnn": "no cuDNN"}
    monkeypatch.setattr(availability, "usable_libraries", lambda: (set(), reasons))
    with pytest.raises(BackendUnavailable, match="libcublasLt"):
        availability.warn_of_missing(frozenset())
    with pytest.warns(UserWarning, match="several times slower: no cuDNN"):
        availability.warn_of_missing(frozenset({"cublaslt"}))
    monkeypatch.setenv("TOOLKIT_REQUIRE_CUDNN", "1")
    with pytest.raises(BackendUnavailable, match="no cuDNN"):
        availability.warn_of_missing(frozenset({"cublaslt"}))
    assert providers("conv", "float32", frozenset({"cublaslt"}))[0] == "windows"
    assert providers("conv", "float32", frozenset({"cublaslt", "cudnn"}))[0] == "cudnn"
    assert providers("conv", "float64", frozenset({"cublaslt", "cudnn"}))[0] != "cudnn"


def test_a_library_that_is_nowhere(monkeypatch):
    monkeypatch.setitem(libraries.SONAMES, "cublasLt", ("libnowhere.so.1",))
    libraries.load.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"libnowhere\.so\.1 was not found"):
        libraries.load("cublasLt")
    libraries.load.cache_clear()


@pytest.mark.parametrize("on_host", [{"limit": 4096}], indirect=True)
def test_memory_that_runs_out_is_told_with_its_largest_buffers(on_host):
    @toolkit.function
    def f(x):
        y = ops.matmul(x, x)
        return ops.sum(ops.matmul(y, y))

    x = ops.ones((24, 24))
    with toolkit.device("gpu:0"):
        with pytest.raises(OutOfDeviceMemory, match="arena.*largest: matmul float32"):
            f(x)
    assert on_host.device.trims
    assert isinstance(OutOfDeviceMemory("x"), MemoryError)
    assert float(f(x)) == 24.0**5  # the processor goes on


def test_an_index_out_of_range_is_told_when_someone_waits(gpu):
    x, rows = ops.ones((3, 2)), ops.convert_to_tensor(np.array([0, 7]))
    with toolkit.device("gpu:0"):
        found = toolkit.function(lambda x, i: ops.take(x, i, axis=0))(x, rows)
        with pytest.raises(IndexError, match="index 7 is out of range"):
            found.numpy()
        found = ops.take(x, np.array([2]), axis=0)
    assert found.numpy().tolist() == [[1.0, 1.0]]


def test_what_nothing_computes_is_refused_when_it_is_compiled(on_host):
    node = node_of("argsort", [Spec((3,), "complex64")], axis=0)
    backend = CupyBackend(on_host.device, np)
    backend.arrays = {}
    operands = [contiguous(node.inputs[0].spec)], [contiguous(node.outputs[0].spec)]
    with pytest.raises(UnsupportedOnBackend, match="argsort of int32"):
        backend.lower(node, *operands)
    with pytest.raises(UnsupportedOnBackend, match="multiplies floats only"):
        compute_type("int32", "strict")


def test_a_device_that_is_broken_says_so(on_host):
    f = toolkit.function(lambda x: x + 1.0)
    on_host.device.broken = DeviceError("gpu:0: a kernel failed; restart the process")
    with toolkit.device("gpu:0"):
        with pytest.raises(DeviceError, match="restart"):
            f(ops.ones(3))


def test_precision_decides_how_float32_is_multiplied():
    specs = [Spec((4, 3), "float32"), Spec((3, 5), "float32")]
    for precision, expected in (("strict", "32F"), ("tf32", "32F_FAST_TF32")):
        found = lowered("matmul", specs, numerics=Numerics(precision=precision))
        assert found.steps[0].gemm.compute == expected


def test_without_a_device_the_library_has_no_handle():
    try:
        cublaslt.library()
    except BackendUnavailable as error:
        pytest.skip(str(error))
    if why_no_gpu():
        with pytest.raises(DeviceError, match="cublasLtCreate"):
            algorithms.Plans()
