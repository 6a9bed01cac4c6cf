"""Values that pass between the processor and a GPU, by scopes alone."""

import json

import numpy as np
import pytest

import toolkit
from tests.backends.cupy.host import DeviceArray
from toolkit import ops
from toolkit.errors import UnsupportedError

A = np.arange(6, dtype="float32").reshape(2, 3)


def branches(a, b):
    with toolkit.device("gpu:0"):
        first = ops.exp(a)
    second = ops.tanh(b)  # here
    with toolkit.device("gpu:0"):
        product = first * second
    with toolkit.device("cpu:0"):
        return product + b, first


def test_nodes_run_on_the_devices_of_their_scopes(gpu):
    step = toolkit.function(branches)
    actual = step(A, A + 1)
    partitions = step.get_concrete_function(A, A + 1).program.partitions
    assert [partition.program.backend.name for partition in partitions] == [
        "numpy",
        "cupy",
        "numpy",
    ]
    expected = np.exp(A) * np.tanh(A + 1) + A + 1, np.exp(A)
    for y, e in zip(actual, expected, strict=True):
        assert y.device == "cpu:0"
        np.testing.assert_allclose(y.numpy(), e, rtol=1e-6)


def test_inspection_shows_the_segment_of_each_device(on_host, tmp_path):
    inspection = toolkit.function(branches).inspect(A, A + 1)
    assert [partition.device for partition in inspection.partitions] == [
        "cpu:0",
        "gpu:0",
        "cpu:0",
    ]
    passed = [(t.source, t.target, t.label) for t in inspection.transfers]
    assert passed == [
        ("cpu:0", "gpu:0", "input 0: float32[2, 3]"),
        ("cpu:0", "gpu:0", "tanh: float32[2, 3]"),
        ("gpu:0", "cpu:0", "multiply: float32[2, 3]"),
        ("gpu:0", "cpu:0", "exp: float32[2, 3]"),
    ]
    text = str(inspection)
    for line in ("on gpu:0: exp, multiply", "24 bytes  gpu:0 to cpu:0  exp"):
        assert line in text, text
    assert [k.name for k in inspection.kernels] == ["tanh", "exp, multiply", "add"]
    assert [k.moments for k in inspection.kernels] == [(0,), (1,), (2,)]
    assert "__global__" in inspection.source(1)
    assert all(kernel.seconds is not None for kernel in inspection.measure(repeats=1))
    assert inspection.peak_bytes == sum(
        partition.peak_bytes for partition in inspection.partitions
    )
    inspection.trace(tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert [event["pid"] for event in events] == [0, 1, 2]
    with pytest.raises(UnsupportedError, match=r"3 parts.*partitions\[i\]\.plot"):
        inspection.plot()
    assert inspection.partitions[1].plot("graph").title


def test_gradients_and_variables_are_transferred(gpu):
    v = toolkit.Variable(A)

    @toolkit.function
    def step(x):
        with toolkit.GradientTape() as tape:
            with toolkit.device("gpu:0"):
                y = ops.square(v * x)
            total = ops.sum(y)
        v.assign_sub(tape.gradient(total, v))
        return total

    total = step(A + 1)
    np.testing.assert_allclose(float(total), ((A * (A + 1)) ** 2).sum(), rtol=1e-6)
    np.testing.assert_allclose(v.numpy(), A - 2 * A * (A + 1) ** 2, rtol=1e-6)


def test_eager_operations_use_the_device_of_the_scope(gpu):
    x = ops.convert_to_tensor(A)
    with toolkit.device("gpu:0"):
        y = x + 1.0
    z = y * 2.0  # stays with its operand
    with toolkit.device("cpu:0"):
        back = z + 0.0
    assert [t.device for t in (x, y, z, back)] == ["cpu:0", "gpu:0", "gpu:0", "cpu:0"]
    np.testing.assert_array_equal(back.numpy(), (A + 1) * 2)


@pytest.mark.parametrize("on_host", [{"count": 2}], indirect=True)
def test_values_are_transferred_between_gpus(on_host):
    assert toolkit.config.list_devices() == ("cpu:0", "gpu:0", "gpu:1")

    @toolkit.function
    def step(x):
        with toolkit.device("gpu:0"):
            first = ops.exp(x)
        with toolkit.device("gpu:1"):
            second = ops.tanh(first) + x
        with toolkit.device("gpu:0"):
            return first * second

    expected = np.exp(A) * (np.tanh(np.exp(A)) + A)
    np.testing.assert_allclose(step(A).numpy(), expected, rtol=1e-6)
    transfers = [(t.source, t.target) for t in step.inspect(A).transfers]
    assert transfers == [
        ("cpu:0", "gpu:0"),
        ("gpu:0", "gpu:1"),
        ("cpu:0", "gpu:1"),
        ("gpu:1", "gpu:0"),
        ("gpu:0", "cpu:0"),
    ]
    with toolkit.device("gpu:0"):
        x = ops.convert_to_tensor(A) + 0.0
        v = toolkit.Variable(A)
    with toolkit.device("gpu:1"):
        y = x * 2.0 + v
        z = toolkit.function(lambda x: x * 2.0 + v)(x)
    for t in (y, z):
        assert t.device == "gpu:1"
        np.testing.assert_allclose(t.numpy(), 3 * A)
    foreign = Foreign(y)
    Foreign.__dlpack_device__ = lambda self: (2, 1)
    assert ops.convert_to_tensor(foreign).device == "gpu:1"
    del Foreign.__dlpack_device__


def test_a_function_is_compiled_for_each_device_and_precision(gpu):
    @toolkit.function
    def product(x):
        return ops.matmul(x, ops.transpose(x))

    product(A)
    with toolkit.device("gpu:0"):
        product(A)
        toolkit.config.set_matmul_precision("tf32")
        try:
            actual = product(A)
        finally:
            toolkit.config.set_matmul_precision("strict")
    assert product.trace_count == 3
    np.testing.assert_allclose(actual.numpy(), A @ A.T, rtol=1e-2)


class Foreign:
    """Another library's array on a GPU."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self.tensor = tensor


def test_arrays_of_other_libraries_stay_on_the_device(gpu):
    x = ops.convert_to_tensor(A)
    assert not hasattr(x, "__cuda_array_interface__")
    with toolkit.device("gpu:0"):
        y = x + 0.0
    actual = ops.convert_to_tensor(Foreign(y))
    assert actual.device == "gpu:0"
    assert gpu.device.address(actual._array) != gpu.device.address(y._array)
    np.testing.assert_array_equal(actual.numpy(), A)


def test_exported_arrays_name_their_stream(on_host, monkeypatch):
    depths = []

    def export(array, **_):
        depths.append(on_host.device.depth)

    monkeypatch.setattr(DeviceArray, "__cuda_array_interface__", property(export))
    monkeypatch.setattr(DeviceArray, "__dlpack__", export, raising=False)
    with toolkit.device("gpu:0"):
        y = ops.convert_to_tensor(A) + 0.0
    y.__dlpack__(), y.__cuda_array_interface__  # outside of any scope
    assert depths == [1, 1]


def test_view_is_copied_to_a_variable_on_the_stream(on_host, monkeypatch):
    def copy(array, *_):
        raise AssertionError("copied on no stream that anything waits for")

    monkeypatch.setattr(DeviceArray, "copy", copy)
    with toolkit.device("gpu:0"):
        v = toolkit.Variable(ops.transpose(ops.convert_to_tensor(A) + 0.0))
    assert v.value._array.flags.c_contiguous
    np.testing.assert_array_equal(v.numpy(), A.T)
