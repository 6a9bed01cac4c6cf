"""Test meshes, layouts and distributions with the one device of this process."""

import numpy as np
import pytest

from toolkit import Input, Sequential, Variable, config, distribution, layers
from toolkit.distribution import (
    DataParallel,
    DeviceMesh,
    LayoutMap,
    ModelParallel,
    TensorLayout,
)

NAMES = [f"cpu:{i}" for i in range(8)]
MESH = DeviceMesh((4, 2), ["batch", "model"], NAMES)
ONE = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])


@pytest.fixture(autouse=True)
def no_distribution():
    yield
    distribution.set_distribution(None)


def test_devices():
    assert distribution.list_devices() == distribution.list_devices("CPU") == ["cpu:0"]
    assert distribution.get_device_count("tpu") == 0
    config.set_logical_devices("cpu", 3)
    try:
        assert distribution.get_device_count() == 3
    finally:
        config.set_logical_devices("cpu", 1)
    with pytest.raises(ValueError, match="device_type"):
        distribution.list_devices("npu")


def test_initialize(monkeypatch):
    distribution.initialize()
    distribution.initialize("10.0.0.1:1234", 1, 0)
    with pytest.raises(ValueError, match="run --processes 2"):
        distribution.initialize("10.0.0.1:1,10.0.0.2:1", 2, 0)
    with pytest.raises(ValueError, match="process_id=0"):
        distribution.initialize(process_id=1)
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "4")
    with pytest.raises(ValueError, match="run --processes 4"):
        distribution.initialize()
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "four")
    with pytest.raises(ValueError, match="must be an integer"):
        distribution.initialize()


def test_mesh():
    assert (MESH.shape, MESH.axis_names) == ((4, 2), ["batch", "model"])
    assert MESH.devices[3].tolist() == ["cpu:6", "cpu:7"]
    assert DeviceMesh((1,), ["batch"]).devices.tolist() == ["cpu:0"]
    assert "shape=(4, 2)" in repr(MESH)


@pytest.mark.parametrize(
    "match, shape, names",
    [
        ("Shape and axis_names cannot be empty", (4,), ""),
        ("Shape and axis_names should have same size", (4, 2), ["batch"]),
        ("Shape does not match the number of devices", (4, 1), ["batch", "model"]),
        ("must be unique", (4, 2), ["batch", "batch"]),
    ],
)
def test_refused_meshes(match, shape, names):
    with pytest.raises(ValueError, match=match):
        DeviceMesh(shape, names, NAMES)


def test_layouts():
    layout = TensorLayout(["batch", None])
    assert layout.device_mesh is None
    layout.device_mesh = MESH
    assert (layout.axes, layout.device_mesh) == (("batch", None), MESH)
    with pytest.raises(ValueError, match="Cannot override"):
        layout.device_mesh = ONE
    with pytest.raises(ValueError, match="Invalid axis names for Layout"):
        TensorLayout(["rows"], MESH)
    late = TensorLayout(["rows"])
    with pytest.raises(ValueError, match="Invalid axis names for Layout"):
        late.device_mesh = MESH


def test_layout_map():
    layouts = LayoutMap(MESH)
    layouts["dense/kernel"] = (None, "model")
    layouts[".*bias"] = TensorLayout(["model"])
    assert layouts["dense/kernel"].device_mesh is MESH
    assert layouts["x/bias"].axes == ("model",)
    assert layouts["x/kernel"] is None and layouts.get("x/kernel") is None
    assert list(layouts) == ["dense/kernel", ".*bias"] and len(layouts) == 2
    assert "x/bias" not in layouts and ".*bias" in layouts
    layouts["x/.*"] = (None,)
    with pytest.raises(ValueError, match="matches multiple"):
        layouts["x/bias"]
    with pytest.raises(ValueError, match="already exist"):
        layouts["x/.*"] = (None,)
    with pytest.raises(ValueError, match="should be a TensorLayout"):
        layouts["y"] = 1
    del layouts["x/.*"]
    with pytest.raises(KeyError):
        del layouts["x/.*"]


def test_data_parallel():
    for parallel in (
        DataParallel(devices=NAMES),
        DataParallel(DeviceMesh((8,), ["b"], NAMES)),
    ):
        assert parallel.num_model_replicas == 8
        assert (parallel.num_processes, parallel.data_shard_id) == (1, 0)
        name = parallel.batch_dim_name
        assert parallel.get_data_layout((4, 2, 2)).axes == (name, None, None)
        assert parallel.get_variable_layout(Variable([1.0])).axes == (None,)
        assert parallel.get_tensor_layout("x") is None
        assert parallel.distribute_dataset(NAMES) is NAMES
    assert DataParallel().device_mesh.devices.tolist() == ["cpu:0"]
    with pytest.warns(UserWarning, match="one axis"):
        DataParallel(MESH)
    with pytest.raises(ValueError, match="needs GPUs; received the devices cpu:0"):
        DataParallel(devices=["cpu:0"], reduction="nccl")
    with pytest.raises(ValueError, match="reduction.*received 'sum'"):
        DataParallel(devices=["cpu:0"], reduction="sum")
    with pytest.raises(ValueError, match="received both"):
        DataParallel(MESH, NAMES)
    with pytest.raises(ValueError, match="instance of `DeviceMesh`"):
        DataParallel("mesh")


def test_model_parallel():
    layouts = LayoutMap(MESH)
    layouts[".*kernel"] = (None, "model")
    parallel = ModelParallel(layout_map=layouts)
    assert (parallel.batch_dim_name, parallel.num_model_replicas) == ("batch", 4)
    kernel, seed = Variable(np.zeros((2, 2)), name="kernel"), Variable([1], name="seed")
    assert parallel.get_variable_layout(kernel).axes == (None, "model")
    assert parallel.get_variable_layout(seed).axes == (None,)
    assert parallel.get_tensor_layout("a/kernel").axes == (None, "model")
    other = ModelParallel(layout_map=layouts, batch_dim_name="model")
    assert other.num_model_replicas == 2
    for options in ({}, {"layout_map": {}}):
        with pytest.raises(ValueError, match="layout_map"):
            ModelParallel(**options)
    with pytest.raises(ValueError, match="batch_dim_name must be"):
        ModelParallel(layout_map=layouts, batch_dim_name="rows")
    with pytest.raises(ValueError, match="received device_mesh"):
        ModelParallel(layout_map=layouts, device_mesh=ONE)


def test_scopes():
    outer, inner = DataParallel(), ModelParallel(layout_map=LayoutMap(ONE))
    assert distribution.distribution() is None
    with outer.scope():
        with inner.scope():
            assert distribution.distribution() is inner
        assert distribution.distribution() is outer
        model = Sequential([Input((2,)), layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    assert distribution.distribution() is None
    with pytest.raises(ValueError, match="each of the 1 processes"):
        distribution.set_distribution(DataParallel(devices=NAMES))
    with pytest.raises(ValueError, match="expected a distribution"):
        distribution.set_distribution("all")


def test_distribute_tensor():
    layout = TensorLayout(["batch", None], ONE)
    x = np.ones((4, 2), "float32")
    np.testing.assert_array_equal(distribution.distribute_tensor(x, layout), x)
    symbol = Input((2,))
    assert distribution.distribute_tensor(symbol, layout) is symbol
    with pytest.raises(ValueError, match="has 2 axes"):
        distribution.distribute_tensor(x[0], layout)
    with pytest.raises(ValueError, match="with a device_mesh"):
        distribution.distribute_tensor(x, TensorLayout([None, None]))
    with pytest.raises(ValueError, match="one device for each"):
        distribution.distribute_tensor(x, TensorLayout([None, None], MESH))


def test_missing_devices_and_axes_are_refused():
    with pytest.raises(ValueError, match="shards of at least 1"):
        DataParallel(shards=0)
    assert distribution.distribution() is None
