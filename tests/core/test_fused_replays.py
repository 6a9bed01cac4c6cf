"""Test that one loop for frequent elementwise calls has the bits of single kernels."""

import numpy as np
import pytest

import toolkit as tk
from toolkit import ops
from toolkit.backends.numpy import fused_steps
from toolkit.core import operation_replays
from toolkit.plans.rules import rules

# Calls of this size are fused after 16 calls.
SHAPE = (512, 513)
CALLS = 20


@pytest.fixture
def loops():
    """Return a function that counts the new loops, which replace single kernels."""
    operation_replays.clear()
    before = fused_steps.count()
    yield lambda: fused_steps.count() - before
    operation_replays.clear()


def tensor(*shape, dtype="float32", seed=0):
    array = np.random.default_rng(seed).normal(size=shape)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1.0, -1.0]
    array.reshape(-1)[: len(special)] = special[: array.size]
    return ops.cast(ops.convert_to_tensor(array), dtype)


def bits(y):
    return [np.asarray(leaf).tobytes() for leaf in tk.tree.flatten(y)]


UNARY = (
    *("soft_shrink", "nan_to_num", "leaky_relu", "hard_silu", "elu", "selu", "gelu"),
    *("silu", "squareplus", "sinc", "hard_sigmoid", "celu", "log_sigmoid"),
)
BINARY = ("hypot", "logaddexp", "fmax", "fmin", "logaddexp2")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(name, dtype, loops):
    function = getattr(ops, name)
    xs = [tensor(*SHAPE, dtype=dtype, seed=seed) for seed in range(2)]
    first = [bits(function(x)) for x in xs]
    for step in range(CALLS):
        assert bits(function(xs[step % 2])) == first[step % 2]
    assert loops() or name in ("gelu", "log_sigmoid", "sinc")


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(name, loops):
    function = getattr(ops, name)
    x, y = tensor(*SHAPE), tensor(*SHAPE, seed=1)
    columns = ops.transpose(tensor(*SHAPE[::-1], seed=2))
    pairs = [(x, y), (x, tensor(513, seed=3)), (x, columns), (columns, tensor(512, 1))]
    for a, b in pairs:
        first = bits(function(a, b))
        for _ in range(CALLS):
            assert bits(function(a, b)) == first
    assert loops()


def test_narrow_floats_stay_single(loops):
    x = tensor(*SHAPE, dtype="float16")
    first = bits(ops.soft_shrink(x))
    for _ in range(CALLS):
        assert bits(ops.soft_shrink(x)) == first
    assert not loops()


def test_loops_between_reductions(loops):
    x = tensor(*SHAPE)

    def gradient():
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.layer_normalization(x)
        return bits([y, tape.gradient(y, x, ops.ones_like(x))])

    first = gradient()
    for _ in range(3 * CALLS):
        assert gradient() == first
    assert loops() >= 3


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "moments", "norm", "nansum"])
def test_functions_with_reductions(name, loops):
    function = getattr(ops, name)
    x = tensor(*SHAPE)
    arguments = [[1]] if name == "moments" else []
    first = bits(function(x, *arguments))
    for _ in range(CALLS):
        assert bits(function(x, *arguments)) == first


def test_gradients(loops):
    x = tensor(*SHAPE)

    def gradient():
        with tk.GradientTape() as tape:
            tape.watch(x)
            y = ops.hard_silu(x)
        return bits(tape.gradient(y, [x], ops.ones_like(x)))

    first = gradient()
    for _ in range(CALLS):
        assert gradient() == first
    assert loops()


def test_changed_rules_run_single_kernels(loops):
    x = tensor(*SHAPE)
    first = bits(ops.soft_shrink(x))
    for _ in range(CALLS):
        assert bits(ops.soft_shrink(x)) == first
    with rules.override(array_kernels_only=True):
        np.testing.assert_allclose(
            ops.soft_shrink(x).numpy(), np.frombuffer(first[0], "f4").reshape(SHAPE)
        )
