"""Tests of the memory of models, saves and loads, and of deferred initial values."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref
import zipfile

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.errors import ModelFileError, ToolkitError

# Prints the peak memory of a call in megabytes, above the memory before it.
_MEASUREMENT = """
import sys
import toolkit

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) >> 10

path, action, ending = sys.argv[1:]
small = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(2)])
small.save(path + ".small" + ending)
toolkit.saving.load_model(path + ".small" + ending)
if action == "load":
    before = peak()
    toolkit.saving.load_model(path)
else:
    model = toolkit.saving.load_model(path)
    before = peak()
    model.save(path + ".copy" + ending)
print(peak() - before)
"""
UNITS, MEGABYTES = 2048, 64


# Prints the resident memory of a process with a model in megabytes, above the memory of
# an equal process with a small model.
_RESIDENT = """
import sys
import numpy as np
import toolkit

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

def use(units):
    model = toolkit.Sequential([toolkit.Input((units,)), toolkit.layers.Dense(units)])
    model.add(toolkit.layers.Dense(units))
    if mode != "float32":
        model.quantize(mode)
    for rows in map(int, sys.argv[2:]):
        x = np.ones((rows, units), "float32")
        model.predict(x, batch_size=rows, verbose=0)
    return model

mode = sys.argv[1]
small = use(128)
before = resident()
large = use(4096)
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("mode", "rows", "limit"),
    [
        ("float32", (1, 64), 128 + 24),
        ("int8", (1, 128), 64 + 24),
        ("int4", (1, 64), 40),
    ],
)
def test_resident_memory_is_little_more_than_the_weights(mode, rows, limit):
    command = [sys.executable, "-c", _RESIDENT, mode, *map(str, rows)]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(output.stdout) <= limit


@pytest.fixture
def no_garbage_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_quantize_releases_the_floating_weights(no_garbage_collection):
    model = toolkit.Sequential([toolkit.Input((8,)), layers.Dense(8)])
    model.add(layers.Dense(8, activation="relu"))
    kernels = [weakref.ref(layer.kernel) for layer in model.layers]
    model.quantize("int8")
    assert [kernel() for kernel in kernels] == [None, None]


def test_quantize_releases_the_weights_of_a_used_and_saved_model(
    no_garbage_collection, tmp_path
):
    block = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(3)])
    model = toolkit.Sequential([toolkit.Input((2,)), block, layers.Dense(1)])
    kernels = [weakref.ref(weight) for weight in model.weights if weight.ndim == 2]
    model(np.ones((1, 2), "float32"))
    model.predict(np.ones((1, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    model.quantize("int8")
    assert [kernel() for kernel in kernels] == [None, None]


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantize_makes_at_most_one_copy_of_a_weight(mode):
    layer = layers.Dense(8192, use_bias=False)
    layer.build((None, 1024))
    nbytes = layer.kernel.value.numpy().nbytes
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        layer.quantize(mode)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 1.7 * nbytes


def test_switch_releases_its_operands(no_garbage_collection):
    x = toolkit.ops.convert_to_tensor(np.ones(3))
    reference = weakref.ref(x)
    y = toolkit.ops.switch(1, [lambda x: x, lambda x: x + 1, lambda x: x * 2], x)
    del x
    assert reference() is None
    np.testing.assert_array_equal(y, [2, 2, 2])


@pytest.fixture(scope="module")
def large_model():
    model = toolkit.Sequential([toolkit.Input((UNITS,))])
    for _ in range(4):
        model.add(layers.Dense(UNITS))
    return model


@pytest.fixture(scope="module")
def large_file(large_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "model.keras"
    large_model.save(path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("action", "limit"), [("load", 1.3), ("save", 0.4)])
@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_memory_above_the_weights_is_small(
    large_model, tmp_path, action, limit, ending
):
    path = tmp_path / f"model{ending}"
    large_model.save(path)
    command = [sys.executable, "-c", _MEASUREMENT, str(path), action, ending]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(output.stdout) <= limit * MEGABYTES


def test_loaded_weights_equal_the_saved_ones(large_file):
    model = toolkit.saving.load_model(large_file)
    x = np.random.default_rng(0).normal(size=(3, UNITS)).astype("float32")
    before = [weight.numpy() for weight in model.weights]
    assert all(w.std() > 0 for w in before[::2])
    again = toolkit.saving.load_model(large_file)
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x))


@toolkit.saving.register_keras_serializable("test")
class Forgetful(layers.Dense):
    """A layer that does not load its kernel."""

    def load_own_variables(self, store):
        self.bias.assign(store["1"])


def test_values_that_a_file_does_not_replace_are_initialized(tmp_path):
    model = toolkit.Sequential([toolkit.Input((512,))])
    model.add(Forgetful(512, kernel_initializer=toolkit.initializers.HeNormal(seed=3)))
    model.save(tmp_path / "model.keras")
    expected = model.layers[0].kernel.numpy()
    model.layers[0].kernel.assign(np.zeros((512, 512)))
    model.save(tmp_path / "zeros.keras")
    loaded = toolkit.saving.load_model(tmp_path / "zeros.keras")
    np.testing.assert_array_equal(loaded.layers[0].kernel.numpy(), expected)


def test_models_after_a_failed_load_have_initial_values(large_file, tmp_path):
    with zipfile.ZipFile(large_file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["config.json"] = contents["config.json"].replace(
        b'"units": 2048', b'"units": 2049', 1
    )
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(ToolkitError):
        toolkit.saving.load_model(tmp_path / "model.keras")
    model = toolkit.Sequential([toolkit.Input((512,)), layers.Dense(512)])
    assert model.layers[0].kernel.numpy().std() > 0


@pytest.mark.parametrize("offset", [0.2, 0.5, 0.9])
def test_damaged_uncompressed_weights_are_refused(large_file, tmp_path, offset):
    content = bytearray(large_file.read_bytes())
    content[int(offset * len(content))] ^= 1
    path = tmp_path / "damaged.keras"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        toolkit.saving.load_model(path)
