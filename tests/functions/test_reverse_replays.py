"""Test replays of reverse passes against passes in Python, bit for bit."""

import subprocess
import sys

import numpy as np
import pytest

import toolkit as tk
from tests.functions.tapes import PythonTape
from toolkit import layers, ops
from toolkit.core.slices import slices_of
from toolkit.functions import reverse_replays


@pytest.fixture(autouse=True)
def no_replays():
    reverse_replays.clear()
    yield
    reverse_replays.clear()


def tensor(*shape, seed=0, dtype="float32"):
    array = np.random.default_rng(seed).normal(size=shape)
    return ops.cast(ops.convert_to_tensor(array), dtype)


def gradients(kind, function, xs, weights=None, **options):
    with kind() as tape:
        tape.watch([x for x in xs if "float" in x.dtype])
        y = function(*xs)
    return tape.gradient(y, xs, weights, **options)


def bits(g):
    return None if g is None else (g.dtype, g.shape, np.asarray(g).tobytes())


CASES = {
    "one operation": (ops.exp, (4, 8)),
    "a composite": (ops.softplus, (4, 8)),
    "two operands": (ops.matmul, (3, 4), (4, 5)),
    "broadcast": (lambda x, y: x * y + x, (3, 4), (4,)),
    "views": (lambda x: ops.transpose(x)[1:, ::2] * 2.0, (4, 5)),
    "no axes": (lambda x, y: ops.sum(x) * y, (3,), ()),
    "an operand twice": (lambda x: x * x * x, (5,)),
    "softmax": (lambda x: ops.log_softmax(x, axis=0), (4, 6)),
    "convolution": (lambda x, k: ops.conv(x, k), (1, 6, 5, 2), (3, 3, 2, 4)),
    "linear algebra": (lambda x: ops.inv(x @ ops.transpose(x)), (3, 3)),
    "a constant": (lambda x: ops.where(x > 0.0, x, 0.5) / 3.0, (4, 4)),
    "indices": (lambda x: ops.take(x, [2, 0, 2], axis=1), (3, 4)),
    "sort": (lambda x: ops.sort(x, axis=0), (7, 3)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_weights", [True, False])
def test_equal_bits(name, has_weights):
    function, *shapes = CASES[name]
    for step in range(6):
        xs = [tensor(*shape, seed=step) for shape in shapes]
        y = function(*xs)
        weights = tensor(*y.shape, seed=9 + step) if has_weights else None
        actual = gradients(tk.GradientTape, function, xs, weights)
        expected = gradients(PythonTape, function, xs, weights)
        assert [*map(bits, actual)] == [*map(bits, expected)]
    assert reverse_replays.count() >= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_equal_bits_in_other_dtypes(dtype):
    for step in range(4):
        xs = [tensor(4, 4, seed=step, dtype=dtype)]
        pair = [
            gradients(kind, lambda x: ops.tanh(x @ x), xs)
            for kind in (tk.GradientTape, PythonTape)
        ]
        assert bits(pair[0][0]) == bits(pair[1][0])
    assert reverse_replays.count() == 1


def test_gradients_that_need_no_kernel():
    x, y, z, weights = (tensor(3, seed=seed) for seed in range(4))
    for _ in range(4):
        gx, gy, gz = gradients(
            tk.GradientTape, lambda x, y, z: x + y, [x, y, z], weights
        )
        assert gx is weights and gy is weights and gz is None
    zeros = gradients(
        tk.GradientTape,
        lambda x, y, z: x + y,
        [x, y, z],
        weights,
        unconnected_gradients="zero",
    )
    assert not np.any(zeros[2].numpy())


def test_several_targets_and_nests():
    for step in range(4):
        x, y = tensor(3, seed=step), tensor(3, seed=step + 1)
        with tk.GradientTape() as tape:
            tape.watch({"x": x, "y": y})
            targets = {"a": x * y, "b": [ops.sum(x)]}
        weights = {"a": tensor(3, seed=7), "b": [tensor(seed=8)]}
        g = tape.gradient(targets, {"x": x, "y": (y,)}, weights)
        w = weights["a"].numpy()
        expected = w * y.numpy() + weights["b"][0].numpy()
        np.testing.assert_allclose(g["x"].numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(g["y"][0].numpy(), w * x.numpy(), rtol=1e-6)
    assert reverse_replays.count() == 1


def test_the_same_tensor_and_an_equal_tensor_have_other_replays():
    x = tensor(3)
    for _ in range(4):
        (g,) = gradients(tk.GradientTape, lambda x: x * x, [x])
        np.testing.assert_allclose(g.numpy(), 2 * x.numpy(), rtol=1e-6)
    for _ in range(4):
        y = tensor(3)
        g, h = gradients(tk.GradientTape, lambda x, y: x * y, [x, y])
        np.testing.assert_array_equal(g.numpy(), y.numpy())
        np.testing.assert_array_equal(h.numpy(), x.numpy())


def test_unwatched_tensors_have_other_replays():
    x, y = tensor(3), tensor(3, seed=1)
    for watched in ([x, y], [x], [y], [x, y]) * 3:
        with tk.GradientTape() as tape:
            tape.watch(watched)
            z = ops.exp(x * y) + y
        found = [g is not None for g in tape.gradient(z, [x, y])]
        assert found == [any(t is w for w in watched) for t in (x, y)]


def test_variables_with_weights():
    v, weights = tk.Variable(tensor(3, 4)), tensor(2, 4)
    layer = layers.Dense(4, activation="tanh")
    for step in range(5):
        x = tensor(2, 3, seed=step)
        results = []
        for kind in (tk.GradientTape, PythonTape):
            with kind() as tape:
                y = layer(x) + x @ v
            sources = [v, *layer.trainable_variables]
            results.append(tape.gradient(y, sources, weights))
        assert [*map(bits, results[0])] == [*map(bits, results[1])]
        v.assign_add(ops.ones((3, 4)))
    assert reverse_replays.count() == 1


def test_second_order():
    x = tensor(4)
    for _ in range(5):
        with tk.GradientTape() as outer:
            outer.watch(x)
            with tk.GradientTape() as inner:
                inner.watch(x)
                y = ops.sum(x**3)
            first = inner.gradient(y, x)
        second = outer.gradient(first, x, ops.ones_like(x))
        np.testing.assert_allclose(first.numpy(), 3 * x.numpy() ** 2, rtol=1e-5)
        np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-5)


def test_jacobian():
    for step in range(3):
        x = tensor(3, seed=step)
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.stack([x[0] * x[1], ops.exp(x[2])])
        a, b, c = x.numpy()
        expected = [[b, a, 0], [0, 0, np.exp(c)]]
        np.testing.assert_allclose(tape.jacobian(y, x).numpy(), expected, rtol=1e-6)


def test_code_of_a_user_runs_in_each_pass():
    calls = []

    @tk.ops.custom_gradient
    def scaled(x):
        def grad(*args, upstream=None):
            calls.append(1)
            return 7 * (args[0] if upstream is None else upstream)

        return x, grad

    for _ in range(5):
        (g,) = gradients(tk.GradientTape, lambda x: scaled(x * 1.0), [tensor(3)])
        np.testing.assert_allclose(g.numpy(), 7)
    assert len(calls) == 5 and reverse_replays.count() == 0


@pytest.mark.parametrize("extent", [20, 5000])
def test_rows_of_a_table_stay_sparse(extent):
    table = tk.Variable(tensor(extent, 8))
    for step in range(5):
        weights = tensor(3, 8, seed=step)
        with tk.GradientTape() as tape:
            rows = ops.take(table, [1, 4, 4], axis=0)
        g = tape.gradient(rows, table, weights)
        (slices,) = slices_of(g)
        assert slices.indices.numpy().tolist() == [1, 4, 4]
        np.testing.assert_array_equal(slices.values.numpy(), weights.numpy())
        expected = np.zeros((extent, 8), "float32")
        np.add.at(expected, [1, 4, 4], weights.numpy())
        np.testing.assert_allclose(g.numpy(), expected, rtol=1e-6)
    assert reverse_replays.count() == (extent == 20)


def test_sums_of_slices():
    table = tk.Variable(tensor(20, 2))
    for _ in range(5):
        with tk.GradientTape() as tape:
            rows = ops.take(table, [1, 2], axis=0) * ops.take(table, [2, 3], axis=0)
        g = tape.gradient(rows, table, ops.ones((2, 2)))
        assert len(slices_of(g)) == 2
        t, expected = table.numpy(), np.zeros((20, 2), "float32")
        np.add.at(expected, [1, 2], t[[2, 3]])
        np.add.at(expected, [2, 3], t[[1, 2]])
        np.testing.assert_allclose(g.numpy(), expected, rtol=1e-6)
    assert reverse_replays.count() == 1


def test_results_can_be_changed():
    x = tensor(3)
    for _ in range(4):
        (g,) = gradients(tk.GradientTape, lambda x: ops.sum(x * 3.0), [x])
        np.testing.assert_array_equal(g.numpy(), 3)
        np.asarray(g)[...] = 5


def test_weights_are_checked_after_replays():
    x = tensor(3)
    for _ in range(4):
        gradients(tk.GradientTape, ops.exp, [x], tensor(3))
    assert gradients(tk.GradientTape, ops.exp, [x], 2.0)[0].shape == (3,)
    with pytest.raises(tk.errors.ToolkitError):
        gradients(tk.GradientTape, ops.exp, [x], tensor(4))


def test_changed_setting_removes_replays():
    x = tensor(3)
    for _ in range(3):
        gradients(tk.GradientTape, ops.exp, [x])
    assert reverse_replays.count() == 1
    previous = tk.config.epsilon()
    try:
        tk.config.set_epsilon(1e-3)
        assert reverse_replays.count() == 0
    finally:
        tk.config.set_epsilon(previous)


def test_subclass_that_records_receives_all_operations():
    class Recorder(tk.GradientTape):
        def record(self, op, inputs, attrs, outputs):
            names.append(op.name)
            super().record(op, inputs, attrs, outputs)

    seen = []
    x = tensor(3)
    for _ in range(4):
        names = []
        with Recorder() as tape:
            tape.watch(x)
            y = ops.silu(x) * 2.0
        np.testing.assert_equal(tape.gradient(y, x).shape, (3,))
        seen.append(names)
    assert seen[0] and all(names == seen[0] for names in seen)


def test_plain_loop_compiles_its_reverse_pass():
    """The loop of a user imports neither `function` nor `compile`."""
    code = """
import sys, toolkit
v = toolkit.Variable([1.0, 2.0])
for _ in range(2):
    with toolkit.GradientTape() as tape:
        loss = toolkit.ops.sum(v * v)
    tape.gradient(loss, v)
print(sys.modules["toolkit.functions.reverse_programs"].count())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout.split() == [b"1"]


def test_equal_numbers_in_one_pass_and_others_in_the_next():
    """Equal numbers share a tensor, and the replay must not depend on that."""
    for alpha in (0.5, 0.5, 0.5, 1.0, 2.0, 0.5):
        x = tensor(3, 4)
        pair = [
            gradients(kind, lambda x, a=alpha: ops.exp(x * a) * 0.5, [x])
            for kind in (tk.GradientTape, PythonTape)
        ]
        assert bits(pair[0][0]) == bits(pair[1][0])
    assert reverse_replays.count() == 1
