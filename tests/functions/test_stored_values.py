"""Test that tapes of frequent calls store the values that reverse passes read."""

import gc

import numpy as np
import pytest

import toolkit as tk
from tests.functions.tapes import PythonTape
from toolkit import layers, ops
from toolkit.core import operation_replays
from toolkit.functions import reverse_replays

# Calls of small and of large operations after which tapes store fewer values.
SMALL, LARGE = 140, 50


@pytest.fixture(autouse=True)
def no_replays():
    operation_replays.clear()
    reverse_replays.clear()
    yield
    reverse_replays.clear()


def tensor(*shape, seed=0):
    array = np.random.default_rng(seed).normal(size=shape)
    return ops.convert_to_tensor(array.astype("float32"))


def gradients(function, *xs, kind=tk.GradientTape):
    with kind() as tape:
        tape.watch(xs)
        y = function(*xs)
    return tape.gradient(y, list(xs))


def bits(gs):
    return [None if g is None else np.asarray(g).tobytes() for g in gs]


def normalize(x, scale):
    return ops.layer_normalization(x, scale, axis=-1)


CASES = {
    "soft_shrink": (ops.soft_shrink, (4, 8)),
    "selu": (ops.selu, (4, 8)),
    "gelu": (ops.gelu, (4, 8)),
    "several calls": (lambda x: ops.softplus(ops.selu(x)) * ops.hard_silu(x), (4, 8)),
    "normalization": (normalize, (4, 8), (8,)),
    "cross entropy": (
        lambda x, y: ops.categorical_crossentropy(ops.softmax(y), x, from_logits=True),
        (4, 8),
        (4, 8),
    ),
    "convolution": (lambda x, k: ops.relu6(ops.conv(x, k)), (1, 6, 5, 2), (3, 3, 2, 4)),
    "views": (lambda x: ops.split(ops.transpose(x), 2)[1] * 2.0, (4, 8)),
    "large": (ops.hard_silu, (300, 400)),
    "large, several calls": (lambda x: ops.celu(ops.soft_shrink(x)), (300, 400)),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_bits(name):
    function, *shapes = CASES[name]
    xs = [tensor(*shape, seed=i) for i, shape in enumerate(shapes)]
    for _ in range(LARGE if "large" in name else SMALL):
        gradients(function, *xs)
    for step in range(3):
        xs = [tensor(*shape, seed=10 * step + i) for i, shape in enumerate(shapes)]
        expected = bits(gradients(function, *xs, kind=PythonTape))
        assert bits(gradients(function, *xs)) == expected


@pytest.mark.parametrize(("shape", "calls"), [((8,), SMALL), ((300, 400), LARGE)])
@pytest.mark.parametrize("is_nested_first", [False, True])
def test_second_derivatives(shape, calls, is_nested_first):
    """Both tapes watch the values from which the gradient is computed."""

    def function(x):
        return ops.log_sigmoid(ops.selu(ops.square(ops.elu(x))))

    def second(x, kind=tk.GradientTape):
        with kind() as outer:
            outer.watch(x)
            with tk.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            g = tape.gradient(y, x)
        return bits([g, outer.gradient(g, x)])

    x = tensor(*shape)
    first = second(x)  # no replay has been created yet
    for _ in range(calls):
        if not is_nested_first:
            gradients(function, x)
    for _ in range(calls):
        assert second(x) == first
    assert second(x, PythonTape) == first
    assert bits(gradients(function, x)) == first[:1]


def test_another_source_and_target():
    """A pass that was never seen needs values that no other pass reads."""
    xs = tensor(6, 3), tensor(3, seed=1)

    def gradient(target, sources, kind=tk.GradientTape):
        with kind(persistent=True) as tape:
            tape.watch(xs)
            y = normalize(*xs)
            z = ops.soft_shrink(y) * 2.0
        return [tape.gradient((y, z)[target], [xs[i] for i in sources])] * 2

    for _ in range(SMALL):
        gradient(0, [1])
    for target, sources in ((1, [0]), (1, [1]), (0, [0, 1]), (0, [0])):
        expected = gradient(target, sources, PythonTape)
        for _ in range(5):
            actual = gradient(target, sources)
            assert [*map(bits, actual)] == [*map(bits, expected)]


def test_training_repeats_its_gradients():
    tk.utils.set_random_seed(0)
    model = tk.Sequential(
        [layers.Dense(8, "gelu"), layers.LayerNormalization(), layers.Dense(2)]
    )
    x, y = tensor(4, 6), tensor(4, 2, seed=1)
    model(x)

    def gradient():
        with tk.GradientTape() as tape:
            loss = ops.mean(ops.square(model(x, training=True) - y))
        return bits(tape.gradient(loss, model.trainable_variables))

    gradient()
    first = gradient()
    assert all(gradient() == first for _ in range(SMALL))


def test_two_tapes_of_one_call():
    x = tensor(4, 8)

    def both(kind=tk.GradientTape):
        with kind() as one, kind() as other:
            one.watch(x)
            other.watch(x)
            y = ops.selu(ops.soft_shrink(x))
        return bits([one.gradient(y, x), other.gradient(y, x)])

    expected = both()  # no replay has been created yet
    assert all(both() == expected for _ in range(SMALL))
    assert both(PythonTape) == expected


@pytest.mark.parametrize("is_variable", [False, True])
def test_tape_from_before_a_new_pass(is_variable):
    """A tape can lack values that a pass reads which runs before its own pass."""
    tk.utils.set_random_seed(0)
    x, y = ops.sigmoid(tensor(9, 3)), ops.sigmoid(tensor(9, 3, seed=1))
    few, many = x, y
    model = tk.Sequential([layers.Dense(8, "gelu"), layers.Dense(2)])
    if is_variable:
        model(x)
        few, many = model.trainable_variables[-1], model.trainable_variables[0]

    def record():
        with tk.GradientTape(persistent=True) as tape:
            tape.watch([x, y])
            z = model(x) if is_variable else ops.binary_crossentropy(x, y)
        return tape, z

    first, second = [], []
    for _ in range(SMALL):
        tape, z = record()
        first = bits([tape.gradient(z, few)])
    old_tape, old_z = record()
    for _ in range(4):
        tape, z = record()
        second = bits([tape.gradient(z, many)])
    assert bits([old_tape.gradient(old_z, many)]) == second
    assert bits([old_tape.gradient(old_z, few)]) == first


def test_fewer_tensors_are_stored():
    x = tensor(5, 7)  # the first calls of this signature

    def count():
        return sum(type(entry) is tk.Tensor for entry in gc.get_objects())

    def stored():
        gc.collect()
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.soft_shrink(x)
        on_tape = count()
        tape.gradient(y, x)
        return on_tape - count()

    for _ in range(5):
        before = stored()
    for _ in range(SMALL):
        gradients(ops.soft_shrink, x)
    assert 0 < stored() <= before - 3
