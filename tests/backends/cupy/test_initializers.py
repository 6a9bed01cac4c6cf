"""First values of weights: drawn on the device, by few kernels."""

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.initializers import GlorotUniform, HeNormal, Orthogonal


@pytest.mark.parametrize("initializer", [GlorotUniform, HeNormal])
def test_initial_values_of_all_sizes_share_kernels(on_host, initializer):
    """Each layer can have another size, and each new kernel needs a compilation."""

    def draw(*shapes):
        with toolkit.device("gpu:0"):
            values = [initializer(seed=i)(s) for i, s in enumerate(shapes)]
        for actual, (i, shape) in zip(values, enumerate(shapes), strict=True):
            expected = initializer(seed=i)(shape).numpy()
            np.testing.assert_allclose(actual.numpy(), expected, 1e-6)
        return set(on_host.device.log)

    few = draw((8, 16), (3, 5))
    assert draw((16, 16), (2, 8, 4), (7, 3), (4, 8)) == few


def test_initializer_kernels_are_precompiled_with_the_device(on_host, monkeypatch):
    device, started, loaded = on_host.device, set(), set()
    load = device.load
    monkeypatch.setattr(device, "load", lambda ks: loaded.update(ks) or load(ks))
    steps = "precompile", lambda steps: started.update(step.kernel for step in steps)
    monkeypatch.setattr(device, *steps)
    on_host.precompile_initializers()
    assert len(started) == 4
    with toolkit.device("gpu:0"):
        layers.Dense(32).build((None, 16))
        toolkit.Variable(np.broadcast_to(np.float32(1), (64,)), name="scale")
        layers.Conv2D(8, 3, bias_initializer="ones").build((None, 8, 8, 3))
    assert loaded
    assert loaded <= started


def test_orthogonal_initializer_reads_only_its_key_from_the_device(on_host):
    with toolkit.device("gpu:0"):
        toolkit.random.SeedGenerator(0).next()
        used = {*on_host.device.log, "fetch", "download"}
        seeds = toolkit.random.SeedGenerator(0)
        values = [Orthogonal(seed=seeds)(shape) for shape in ((6, 6), (8, 3), (3, 5))]
    assert used >= set(on_host.device.log)
    seeds = toolkit.random.SeedGenerator(0)
    expected = [Orthogonal(seed=seeds)(shape) for shape in ((6, 6), (8, 3), (3, 5))]
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_all_kernels_of_a_step_are_compiled_together(on_host, monkeypatch):
    """Those that start several small updates at once among them."""
    model = toolkit.Sequential([toolkit.Input((5,)), layers.Dense(4), layers.Dense(3)])
    model.compile("adam", "mse")
    x, y = np.ones((2, 5), "float32"), np.ones((2, 3), "float32")
    with toolkit.device("gpu:0"):
        model.predict_on_batch(x)
        model.optimizer.build(model.trainable_variables)
        device, built_kernels = on_host.device, []
        build = device._build
        monkeypatch.setattr(device, "built", {})  # without the kernels of earlier tests
        monkeypatch.setattr(
            device, "_build", lambda ks: built_kernels.append(ks) or build(ks)
        )
        model.train_on_batch(x, y)
    families = [{kernel.name.split("_")[0] for kernel in ks} for ks in built_kernels]
    assert sum("many" in names for names in families) == 1
    assert len(max(built_kernels, key=len)) == sum(map(len, built_kernels)) > 3
