"""Test remat and RematScope: equal gradients with less stored for them."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.layers.remat import remat


def gradients(make, compiled, x, scope="full", **options):
    toolkit.utils.set_random_seed(3)
    with toolkit.RematScope(scope, **options):
        layer = make()
    layer.build(x.shape)

    def run(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = ops.sum(y * y) + sum(layer.losses)
        return loss, *tape.gradient(loss, [x, *layer.trainable_variables])

    run = toolkit.function(run) if compiled else run
    values = [np.array(g) for _ in range(2) for g in run(x)]
    return values, [np.array(v) for v in layer.variables]


class Block(layers.Layer):
    """A layer with dropout, moving averages and losses, which must run only once."""

    def __init__(self):
        super().__init__()
        self.first = layers.Dense(5, "tanh", activity_regularizer="l2")
        self.norm = layers.BatchNormalization()
        self.drop = layers.Dropout(0.4, seed=1)
        self.last = layers.Dense(3, kernel_regularizer="l2")

    def call(self, x, training=False):
        x = self.norm(self.first(x), training=training)
        return self.last(self.drop(x, training=training))


MAKERS = [
    Block,
    lambda: layers.Dense(4, activation="gelu"),
    lambda: layers.LSTM(3, dropout=0.3, return_sequences=True, seed=1),
]
CHOICES = [
    {"scope": "full"},
    {"scope": "activations"},
    {"scope": "larger_than", "output_size_threshold": 2},
    {"scope": "list_of_layers", "layer_names": ["block", "dense", "lstm"]},
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.one_in(6)
def test_gradients_are_equal(make, compiled, options):
    x = ops.convert_to_tensor(
        np.random.default_rng(0).normal(size=(4, 6, 3)), "float32"
    )
    with toolkit.RematScope(None):
        expected = gradients(make, False, x, None)
    toolkit.utils.clear_session()
    for actual, reference in zip(
        gradients(make, compiled, x, **options), expected, strict=True
    ):
        for a, b in zip(actual, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_forward_pass_is_recomputed():
    calls = []

    def f(x):
        calls.append(1)
        return {"y": ops.exp(x), "n": 3}

    x = toolkit.Variable(2.0)
    with toolkit.GradientTape() as outer:
        with toolkit.GradientTape() as tape:
            y = remat(f)(x)["y"]
        (gradient,) = tape.gradient(y, [x])
    assert len(calls) == 2
    np.testing.assert_allclose(outer.gradient(gradient, x), np.exp(2.0), rtol=1e-6)
    assert remat(f)(1.0)["n"] == 3 and len(calls) == 3


def test_larger_than_skips_small_layers():
    policies = []

    class Counted(layers.Layer):
        def call(self, x):
            policies.append(1)
            return x * x

    for threshold, expected in ((10, 3), (5, 4)):  # one call infers the shape
        policies.clear()
        with toolkit.RematScope("larger_than", threshold):
            layer = Counted()
        x = ops.ones((2, 3))
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        tape.gradient(y, x)
        assert len(policies) >= expected - 1
    assert layer.rematerialized_call(layer.call, x)(x).shape == (2, 3)


def test_compiled_gradient_needs_less_memory():
    def run(remats):
        weights = [toolkit.Variable(ops.ones((64, 64)) / 64) for _ in range(6)]

        def block(x, v):
            for _ in range(4):
                x = ops.tanh(ops.matmul(x, v))
            return x

        step = remat(block) if remats else block

        @toolkit.function
        def program(x):
            with toolkit.GradientTape() as tape:
                for v in weights:
                    x = step(x, v.value)
                loss = ops.sum(x)
            return tape.gradient(loss, weights)

        x = ops.ones((512, 64))
        return program(x), program.inspect(x).peak_bytes

    (actual, reduced_size), (expected, full_size) = run(True), run(False)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    # The saving is larger if the forward pass is not one loop over blocks of rows.
    assert reduced_size < 0.75 * full_size


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="Invalid mode"):
        toolkit.RematScope("most")
