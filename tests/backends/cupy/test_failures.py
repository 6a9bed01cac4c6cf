"""Tests of errors for a missing GPU feature at load or compile time: no fallback."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.backends.conftest import why_no_gpu
from tests.backends.cupy.lowered import lowered, node_of
from toolkit import layers, ops
from toolkit.backends.cupy import (
    algorithms,
    availability,
    cublaslt,
    cudnn,
    libraries,
    nvrtc,
)
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
from toolkit.plans.operands import contiguous


class Runtime:
    """Fake of the functions of CuPy's CUDA runtime binding that the backend calls."""

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
def test_unusable_device_error_names_the_reason(runtime, words):
    with pytest.raises(BackendUnavailable, match=words):
        availability.count_devices(runtime)
    assert availability.count_devices(Runtime(13020, count=2)) == 2


def test_missing_cupy_error_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(availability, "import_module", missing)
    with pytest.raises(BackendUnavailable, match="CuPy is not installed.*cuda13"):
        availability.cupy_module()


def test_cublaslt_is_required_and_missing_cudnn_is_slow(
    monkeypatch,
):
    reasons = {"cublaslt": "libcublasLt.so.13 was not found", "cudnn": "no cuDNN"}
    monkeypatch.setattr(availability, "usable_libraries", lambda: (set(), reasons))
    with pytest.raises(BackendUnavailable, match="libcublasLt"):
        availability.check_libraries(frozenset())
    with pytest.warns(UserWarning, match="several times slower: no cuDNN"):
        availability.check_libraries(frozenset({"cublaslt"}))
    monkeypatch.setenv("TOOLKIT_REQUIRE_CUDNN", "1")
    with pytest.raises(BackendUnavailable, match="no cuDNN"):
        availability.check_libraries(frozenset({"cublaslt"}))
    assert providers("conv", "float32", frozenset({"cublaslt"}))[0] == "windows"
    assert providers("conv", "float32", frozenset({"cublaslt", "cudnn"}))[0] == "cudnn"
    assert providers("conv", "float64", frozenset({"cublaslt", "cudnn"}))[0] != "cudnn"


def test_missing_library(monkeypatch):
    monkeypatch.setitem(libraries.SONAMES, "cublasLt", "libnowhere.so.1")
    libraries.load.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"libnowhere\.so\.1 was not found"):
        libraries.load("cublasLt")
    libraries.load.cache_clear()


@pytest.mark.parametrize("on_host", [{"limit": 4096}], indirect=True)
def test_out_of_memory_error_lists_the_largest_buffers(on_host):
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
    assert float(f(x)) == 24.0**5  # the CPU still computes


def classifier():
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential(
        [
            layers.Input((16,)),
            layers.Dense(256, activation="tanh", name="wide"),
            layers.Dense(3, name="narrow"),
        ]
    )
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    ("on_host", "stage"),
    [
        ({"limit": 2 << 20}, r"the arena of [\d,]+ bytes"),
        pytest.param(
            {"limit": 7_000_000},
            "the scratch memory of the libraries",
            marks=pytest.mark.slow,
        ),
    ],
    indirect=["on_host"],
)
def test_out_of_memory_batch_does_not_change_the_model(on_host, stage):
    model = classifier()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2048, 16)), rng.normal(size=(2048, 3))
    with toolkit.device("gpu:0"):
        model.fit(x[:64], y[:64], batch_size=16, verbose=0)
        before = [v.numpy() for v in model.variables]
        with pytest.raises(OutOfDeviceMemory) as caught:
            model.fit(x, y, batch_size=2048, verbose=0)
        text = str(caught.value)
        assert re.search(
            f"not enough memory for {stage}.*; [\\d,]+ of [\\d,]+ bytes are in", text
        )
        assert re.search(r"largest: .*float32\[2048, 256\] in sequential.*/wide", text)
        for v, value in zip(model.variables, before, strict=True):
            np.testing.assert_array_equal(v.numpy(), value, err_msg=v.path)
        actual = model.fit(x[:64], y[:64], batch_size=16, verbose=0).history["loss"]
        assert np.isfinite(actual).all()


@pytest.mark.parametrize("on_host", [{"limit": 8 << 20}], indirect=True)
def test_libraries_use_less_scratch_memory_on_request(on_host):
    model = classifier()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 16)), rng.normal(size=(64, 3))
    with toolkit.device("gpu:0"):
        model.fit(x, y, batch_size=16, verbose=0)
    assert on_host.device.trims, "32 MB were asked for first"
    assert 1 << 20 < on_host.device.used < 8 << 20


READERS = {
    "numpy": lambda y, v: y.numpy(),
    "float": lambda y, v: float(y[0, 0]),
    "tolist": lambda y, v: y.tolist(),
    "repr": lambda y, v: repr(y),
    "array": lambda y, v: np.asarray(y),
    "variable": lambda y, v: v.numpy(),
    "variable's array": lambda y, v: np.asarray(v),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_read_of_a_value_reports_an_invalid_index(on_host, reader):
    table = toolkit.layers.Embedding(3, 2, name="words")
    total = toolkit.Variable(np.zeros((2, 2), "float32"))

    @toolkit.function
    def look_up(rows):
        rows_read = table(rows)
        total.assign_add(rows_read)
        return rows_read

    with toolkit.device("gpu:0"):
        look_up(np.array([0, 1]))
        actual = look_up(np.array([0, 7]))
        with pytest.raises(IndexError, match="index 7 is out of range.*in words"):
            READERS[reader](actual, total)
        assert look_up(np.array([2, 1])).numpy().shape == (2, 2)


def test_model_runs_report_an_invalid_index(on_host, tmp_path):
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential(
        [layers.Input((2,)), layers.Embedding(3, 2, name="words"), layers.Flatten()]
    )
    model.compile("sgd", "mse")
    good, bad = np.array([[0, 1], [2, 0]]), np.array([[0, 1], [2, 9]])
    y = np.zeros((2, 4), "float32")
    step = model.make_train_function
    with toolkit.device("gpu:0"):
        model.fit(good, y, verbose=0)
        for run in (
            lambda: model.fit(bad, y, verbose=0),
            lambda: model.evaluate(bad, y, verbose=0),
            lambda: model.predict(bad, verbose=0),
            lambda: model.train_on_batch(bad, y),
            lambda: (step()((bad, y)), model.save(tmp_path / "model.keras")),
            lambda: (step()((bad, y)), model.get_weights()),
        ):
            with pytest.raises(IndexError, match="index 9 .* in sequential.*/words"):
                run()
        assert np.isfinite(model.predict(good, verbose=0)).all()


def test_failed_kernel_error_names_the_last_launches(on_host):
    device = on_host.device
    model = classifier()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(96, 16)), rng.normal(size=(96, 3))
    with toolkit.device("gpu:0"):
        model.fit(x, y, batch_size=16, verbose=0)
        step = device.log[device.log.index("replay") :]
        device.fault = next(launch for launch in step if "flat" in launch)
        with pytest.raises(DeviceError) as caught:
            model.fit(x, y, batch_size=16, verbose=0)
        assert re.search(
            r"gpu:0: an illegal memory access.*last launch: \d+ captured nodes, from "
            r".* to .*restart the process",
            str(caught.value),
        )
        for use in (
            lambda: model.predict(x, verbose=0),
            lambda: model.get_weights(),
            lambda: ops.ones(3) + 1.0,
        ):
            with pytest.raises(DeviceError, match="restart the process"):
                use()
    device.fault = device.broken = None


def test_index_out_of_range_is_raised_at_synchronization(gpu):
    x, rows = ops.ones((3, 2)), ops.convert_to_tensor(np.array([0, 7]))
    with toolkit.device("gpu:0"):
        actual = toolkit.function(lambda x, i: ops.take(x, i, axis=0))(x, rows)
        with pytest.raises(IndexError, match="index 7 is out of range"):
            actual.numpy()
        actual = ops.take(x, np.array([2]), axis=0)
    assert actual.numpy().tolist() == [[1.0, 1.0]]


def test_unsupported_operations_are_refused_at_compilation(on_host):
    node = node_of("argsort", [Spec((3,), "complex64")], axis=0)
    backend = CupyBackend(on_host.device, np)
    backend.generator.kernels = {}
    operands = [contiguous(node.inputs[0].spec)], [contiguous(node.outputs[0].spec)]
    with pytest.raises(UnsupportedOnBackend, match="argsort of int32"):
        backend.generator.lower(node, *operands)
    with pytest.raises(UnsupportedOnBackend, match="multiplies only floats"):
        compute_type("int32", "strict")


def test_failed_device_is_reported(on_host):
    f = toolkit.function(lambda x: x + 1.0)
    on_host.device.broken = DeviceError("gpu:0: a kernel failed; restart the process")
    with toolkit.device("gpu:0"):
        with pytest.raises(DeviceError, match="restart"):
            f(ops.ones(3))


def test_precision_setting_selects_the_float32_product():
    specs = [Spec((4, 3), "float32"), Spec((3, 5), "float32")]
    for precision, expected in (("strict", "32F"), ("tf32", "32F_FAST_TF32")):
        lowered_product = lowered(
            "matmul", specs, numerics=Numerics(precision=precision)
        )
        assert lowered_product.steps[0].gemm.compute == expected


def test_library_without_a_device_has_no_handle():
    try:
        cublaslt.library()
    except BackendUnavailable as error:
        pytest.skip(str(error))
    if why_no_gpu():
        with pytest.raises(DeviceError, match="cublasLtCreate"):
            algorithms.Plans()


def test_lazily_loaded_missing_library_is_named(on_host, monkeypatch):
    def missing(*_, **__):
        raise ImportError("libcusolver.so.12 was not found")

    kernel = on_host.kernels["cholesky"]
    monkeypatch.setattr(kernel, "fallback", missing)
    with pytest.raises(BackendUnavailable, match="cholesky: libcusolver.*cuda13"):
        kernel(np.eye(2, dtype="float32"))


@pytest.mark.parametrize(("built", "first"), [(12090, "12"), (13020, "13")])
def test_libraries_match_the_cuda_version_of_cupy(monkeypatch, tmp_path, built, first):
    for version in ("12", "13"):
        folder = tmp_path / f"cu{version}" / "lib"
        folder.mkdir(parents=True)
        (folder / f"libcublasLt.so.{version}").touch()
    runtime = SimpleNamespace(runtimeGetVersion=lambda: built)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(
        libraries, "folders", lambda: iter(sorted(tmp_path.glob("*/lib")))
    )
    assert libraries.path_of("cublasLt").name == f"libcublasLt.so.{first}"


def test_cuda_toolkit_is_searched_after_the_wheels(monkeypatch, tmp_path):
    monkeypatch.setattr(libraries, "find_package_folders", lambda name: [])
    monkeypatch.setattr(libraries, "TOOLKIT", str(tmp_path / "usual"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "named"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert libraries.path_of("cublasLt") is None
    for name in ("usual", "named"):
        folder = tmp_path / name / "lib64"
        folder.mkdir(parents=True)
        (folder / "libcublasLt.so.13").touch()
        assert libraries.path_of("cublasLt") == folder / "libcublasLt.so.13"
    assert str(folder / "libnvrtc.so.13") not in nvrtc._candidates()
    (folder / "libnvrtc.so.13").touch()
    assert str(folder / "libnvrtc.so.13") in nvrtc._candidates()


def test_frontend_uses_the_loaded_cudnn(monkeypatch, tmp_path):
    """It looks for one when it is imported: on LD_LIBRARY_PATH, then by its name."""
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/none:{tmp_path}")
    (tmp_path / "libcudnn.so.9").touch()
    assert libraries.path_of("cudnn") == tmp_path / "libcudnn.so.9"
    order = []
    module = SimpleNamespace(backend_version=lambda: 91900)
    monkeypatch.setattr(libraries, "load", order.append)
    monkeypatch.setattr(
        cudnn, "import_module", lambda name: order.append("frontend") or module
    )
    cudnn.frontend.cache_clear()
    try:
        assert cudnn.version() == 91900
    finally:
        cudnn.frontend.cache_clear()
    assert order[-3:] == ["cublasLt", "cudnn", "frontend"]


def test_current_folder_is_not_searched_for_libraries(monkeypatch, tmp_path):
    (tmp_path / "libnvrtc-builtins.so.13.0").write_text("no library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvrtc, "_candidates", lambda: ["libnowhere.so.1"])
    nvrtc.library.cache_clear()
    try:
        assert nvrtc.library() is None
    finally:
        nvrtc.library.cache_clear()
