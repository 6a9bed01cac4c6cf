"""Test repeated calls of layers that write Variables: statistics, and random states."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import count_functions
from toolkit import layers, ops, random, settings


def value(*shape, seed=0):
    array = np.random.default_rng(seed).normal(size=shape)
    return ops.convert_to_tensor(array.astype("float32"))


def normalized():
    return layers.BatchNormalization(), layers.Dense(6), layers.BatchNormalization()


def dropped():
    return layers.Dropout(0.5, seed=1), layers.Dense(6), layers.Dropout(0.3, seed=2)


def shared_generator():
    first, second = layers.GaussianNoise(0.1, seed=3), layers.Dropout(0.5)
    second.seed_generator = first.seed_generator
    return first, second


CASES = {
    "statistics": normalized,
    "masks": dropped,
    "one generator of two layers": shared_generator,
    "renormalization": lambda: [layers.BatchNormalization(renorm=True)],
    "float16": lambda: [layers.BatchNormalization(dtype="mixed_float16")],
    "noise": lambda: [layers.GaussianDropout(0.4, seed=5), layers.Dense(2)],
}


def make(name):
    tk.random.set_random_seed(0)
    model = tk.Sequential([tk.Input((6,)), *CASES[name]()])
    model(value(3, 6))
    return model


def bits(tensors):
    return [np.asarray(x).tobytes() for x in tensors]


def in_python(call):
    """Call without a replay: a changed setting removes all of them."""
    settings.report_change()
    return call()


@pytest.mark.parametrize("name", CASES)
def test_equal_bits(name):
    model, expected = make(name), make(name)
    for step in range(6):
        x = value(3, 6, seed=step)
        y = model(x, training=True)
        z = in_python(lambda x=x: expected(x, training=True))
        assert bits([y, *model.variables]) == bits([z, *expected.variables])
    for _ in range(3):
        model(x, training=True)
    assert count_functions(lambda: model(x, training=True)) < 130


@pytest.mark.parametrize("name", CASES)
def test_equal_gradients(name):
    model, expected = make(name), make(name)

    def step(model, x):
        with tk.GradientTape() as tape:
            tape.watch(x)
            loss = ops.mean(ops.square(model(x, training=True)))
        return tape.gradient(loss, [x, *model.trainable_variables])

    for seed in range(5):
        x = value(3, 6, seed=seed)
        actual = step(model, x)
        wanted = in_python(lambda x=x: step(expected, x))
        for g, h in zip(actual, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(h), 1e-5, 1e-6)
        assert bits(model.variables) == bits(expected.variables)


def test_training_and_inference_alternate():
    model, expected = make("statistics"), make("statistics")
    for step in range(8):
        x, training = value(3, 6, seed=step), step % 3 != 0
        y = model(x, training=training)
        z = in_python(lambda x=x, t=training: expected(x, training=t))
        assert bits([y, *model.variables]) == bits([z, *expected.variables])


def test_assigned_states_are_used():
    layer, x = layers.BatchNormalization(momentum=0.5), value(3, 6)
    for _ in range(4):
        layer(x, training=True)
    layer.moving_mean.assign(np.full(6, 8, "float32"))
    layer(x, training=True)
    expected = 4 + x.numpy().mean(0) / 2
    np.testing.assert_allclose(layer.moving_mean.numpy(), expected, rtol=1e-5)


def test_replaced_generators_and_states_are_used():
    layer, x = layers.Dropout(0.5, seed=1), ops.ones((8, 8))
    first = [bits([layer(x, training=True)]) for _ in range(5)]
    layer.seed_generator.state = random.SeedGenerator(1).state
    assert [bits([layer(x, training=True)]) for _ in range(5)] == first
    layer.seed_generator = random.SeedGenerator(1)
    assert [bits([layer(x, training=True)]) for _ in range(5)] == first


def test_frozen_layers_keep_their_statistics():
    layer, x = layers.BatchNormalization(), value(3, 6)
    for _ in range(4):
        layer(x, training=True)
    layer.trainable = False
    before = layer.moving_mean.numpy().copy()
    for _ in range(4):
        layer(x, training=True)
    np.testing.assert_array_equal(layer.moving_mean.numpy(), before)


def test_seed_by_position():
    x, first, second = ops.ones((4, 5)), *map(random.SeedGenerator, (7, 7))
    for _ in range(5):
        y = random.dropout(x, 0.5, None, first)
        assert bits([y]) == bits([random.dropout(x, 0.5, seed=second)])
        y = random.uniform((3,), 0.0, 1.0, "float32", first)
        assert bits([y]) == bits([random.uniform((3,), seed=second)])
    assert bits([first.state]) == bits([second.state])
    assert bits([random.uniform((3,), 0.0, 1.0, None, 5)]) == bits(
        [random.uniform((3,), seed=5)]
    )
