"""Tests of the memory of a call: it allocates only its results."""

from __future__ import annotations

import gc

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.helpers import allocated_by
from toolkit import layers, ops
from toolkit.core.variable import Variable

SIZE = 512  # a matrix takes a megabyte
SMALL = 100_000  # bytes of small Python objects


def peak_of(call):
    """Return the peak of the bytes that a call allocates, after warm-up calls.

    Other threads of the process may allocate during a call: return the minimum of ten.
    """
    for _ in range(3):
        call()
    gc.collect()
    return min(allocated_by(call)[1] for _ in range(10))


def matrices(count):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((SIZE, SIZE)).astype("float32") for _ in range(count)]


def chain(x, y):
    h = ops.tanh(ops.matmul(x, y) + 1.0)
    h = ops.matmul(h, ops.transpose(h)) / ops.sum(ops.abs(h), axis=-1, keepdims=True)
    return ops.softmax(ops.matmul(h, x))


def test_call_allocates_only_its_results():
    x, y = map(ops.convert_to_tensor, matrices(2))
    compiled = toolkit.function(chain)
    assert compiled.get_concrete_function(x, y).program.code is not None
    assert peak_of(lambda: compiled(x, y)) < 4 * SIZE * SIZE + SMALL
    total = toolkit.function(lambda x, y: ops.sum(chain(x, y)))
    assert peak_of(lambda: total(x, y)) < SMALL


def test_input_that_is_not_row_major_is_copied():
    x, y = matrices(2)
    total = toolkit.function(lambda x, y: ops.sum(chain(x, y)))
    assert peak_of(lambda: total(x.T, y)) > 4 * SIZE * SIZE


def test_generated_step_updates_variables_in_place():
    x = ops.convert_to_tensor(matrices(1)[0])
    variable = Variable(x * 0.5)

    @toolkit.function
    def step(x):
        variable.assign(variable.value * 0.9 + ops.matmul(x, x) * 0.001)

    step(x)
    step(x)
    assert step.get_concrete_function(x).program.in_place
    address = variable.exclusive_buffer().ctypes.data
    assert peak_of(lambda: step(x)) < SMALL
    assert variable.exclusive_buffer().ctypes.data == address


def test_kernels_may_run_before_in_place_updates():
    x = ops.convert_to_tensor(matrices(1)[0])
    variable = Variable(x * 0.5)

    @toolkit.function
    def step(x):
        size = ops.abs(ops.cast(x, "complex64"))  # no generated code
        variable.assign(variable.value * 0.5 + ops.sort(size, axis=0))

    expected, order = np.array(variable), np.sort(np.abs(np.asarray(x)), axis=0)
    for _ in range(3):
        step(x)
        expected = expected * np.float32(0.5) + order
        np.testing.assert_allclose(np.asarray(variable), expected, rtol=1e-5)
    assert step.get_concrete_function(x).program.in_place
    address = variable.exclusive_buffer().ctypes.data
    step(x)
    assert variable.exclusive_buffer().ctypes.data == address


def test_failed_kernel_changes_no_variable():
    variable = Variable(np.eye(3, dtype="float32"))

    @toolkit.function
    def step(x):
        variable.assign(variable.value + ops.linalg.cholesky(x))

    step(np.eye(3, dtype="float32"))
    before = np.array(variable)
    with pytest.raises(Exception):  # noqa: B017  whatever the kernel raises
        step(-np.eye(3, dtype="float32"))
    assert np.array_equal(np.asarray(variable), before)


def test_other_steps_swap_two_buffers():
    x = ops.convert_to_tensor(np.eye(SIZE, dtype="float32"))
    variable = Variable(x * 0.5)

    @toolkit.function
    def step(x):
        variable.assign(ops.linalg.svd(x)[0])

    addresses = []
    for _ in range(8):
        step(x)
        addresses.append(variable.exclusive_buffer().ctypes.data)
    assert not step.get_concrete_function(x).program.in_place
    assert len(set(addresses[2:])) == 2
    assert all(a != b for a, b in zip(addresses[2:], addresses[3:], strict=False))


def test_training_step_allocates_a_constant_amount():
    model = toolkit.Sequential(
        [toolkit.Input((SIZE,)), layers.Dense(SIZE, "relu"), layers.Dense(10)]
    )
    model.compile("adam", "mse")
    x, y = matrices(1)[0], np.zeros((SIZE, 10), "float32")
    assert peak_of(lambda: model.train_on_batch(x, y)) < 4 * SIZE * SIZE
