"""Test the example of Keras's guide to distributed training with 1, 2 and 4 processes.

The names of the program are those of the guide. The data are smaller, and `shards` is
added: it makes the sums independent of the number of processes.
"""

import pytest

from tests.distribution.jobs import run

SLOW = {"timeout": 100, "seconds": 300}  # limits for a busy machine

MODEL = """
    import toolkit as keras
    devices = keras.distribution.list_devices()
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 28, 28, 1)).astype("float32")
    y = rng.normal(size=(60, 10)).astype("float32")
    dataset = keras.data.Dataset.from_tensor_slices((x, y)).batch(16)

    def build():
        inputs = layers.Input(shape=(28, 28, 1))
        y = layers.Flatten()(inputs)
        y = layers.Dense(units=200, activation="relu", name="d1")(y)
        y = layers.Dropout(0.4)(y)
        y = layers.Dense(units=10, activation="softmax", name="d2")(y)
        return keras.Model(inputs=inputs, outputs=y)

    def train():
        model = build()
        model.compile(loss="mse")
        history = model.fit(dataset, epochs=3, verbose=0).history
        score = model.evaluate(dataset, verbose=0)
        tell([state_of(model), history, score])
"""

DATA_PARALLEL = """
    mesh_1d = keras.distribution.DeviceMesh(
        shape=(len(devices),), axis_names=["data"], devices=devices
    )
    data_parallel = keras.distribution.DataParallel(device_mesh=mesh_1d, shards=4)
    keras.distribution.set_distribution(data_parallel)
    train()
"""

MODEL_PARALLEL = """
    shape = (len(devices), 1) if "data" in sys.argv else (1, len(devices))
    mesh_2d = keras.distribution.DeviceMesh(
        shape=shape, axis_names=["data", "model"], devices=devices
    )
    layout_map = keras.distribution.LayoutMap(mesh_2d)
    layout_map["d1/kernel"] = (None, "model")
    layout_map["d1/bias"] = ("model",)
    layout_map["d2/output"] = ("data", None)
    model_parallel = keras.distribution.ModelParallel(
        layout_map=layout_map, batch_dim_name="data", shards={"data": 4, "model": 4}
    )
    keras.distribution.set_distribution(model_parallel)
    train()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "arguments"),
    [(DATA_PARALLEL, ()), (MODEL_PARALLEL, ("data",)), (MODEL_PARALLEL, ())],
    ids=["data", "rows of a model", "columns of a model"],
)
def test_one_hash_for_1_2_and_4_processes(tmp_path, text, arguments):
    (single,) = run(tmp_path, 1, MODEL + text, *arguments, **SLOW)
    for processes in (2, 4):
        reports = run(tmp_path, processes, MODEL + text, *arguments, **SLOW)
        assert reports == [single] * processes
