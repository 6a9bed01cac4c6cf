"""Shared checks: tolerances by dtype, differences, memory, calls, and locks."""

import sys
import threading
import tracemalloc
from contextlib import contextmanager

import numpy as np

from toolkit import dtypes, ops, tree
from toolkit.autodiff.tape import GradientTape
from toolkit.core.tensor import Tensor

# The relative and absolute tolerance of an operation for each dtype.
TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


def assert_close(actual, expected, dtype=None, factor=1.0):
    """Compare shape and values; the tolerance follows the dtype of `actual`.

    Args:
        actual: a tensor or array.
        expected: the result of NumPy; its dtype does not matter.
        dtype: the dtype that selects the tolerance, if it is not the dtype of `actual`.
        factor: the multiple of the usual tolerance that is allowed.
    """
    array, expected = to_numpy(actual), np.asarray(expected)
    assert array.shape == expected.shape
    limit = TOLERANCES.get(dtype or dtypes.name_of(array.dtype), 0.0) * factor
    np.testing.assert_allclose(
        array.astype(np.float64) if limit else array,
        expected,
        rtol=limit,
        atol=limit,
        equal_nan=True,
    )


def to_numpy(x):
    """Convert a tensor, a Variable or an array to an array."""
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def allocated_by(call):
    """Return the result of a call and the peak of the bytes that it allocates."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def count_functions(call):
    """Return the number of Python functions that a call runs."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def check_grads(f, inputs, order=1, step=1e-5, tolerance=1e-6, seed=0):
    """Compare the tape's gradients with central differences in one random direction.

    Args:
        f: a function of tensors that returns a tensor or a structure of tensors.
        inputs: float64 arrays, more than `step` away from kinks of f.
        order: the highest derivative to check.
        step: the distance of the central difference.
        tolerance: the allowed error, relative to the larger of 1 and the derivative.
        seed: the seed of the direction.
    """
    rng = np.random.default_rng(seed)
    inputs = [np.asarray(x, np.float64) for x in inputs]
    directions = [rng.uniform(0.5, 1.5, x.shape) for x in inputs]
    weights = {}

    def projected(*xs):
        """Apply a nonlinear function to f's outputs: gradients depend on values."""
        total = 0.0
        for i, y in enumerate(tree.flatten(f(*xs))):
            if dtypes.is_float(y.dtype):
                if i not in weights:
                    weights[i] = rng.uniform(0.5, 1.5, y.shape)
                total = ops.sum(y * (weights[i] + 0.5 * y)) + total
        return total

    def derivative(*xs):
        """Return the derivative of `projected` in the direction, by the tape."""
        with GradientTape() as tape:
            tape.watch(xs)
            y = projected(*xs)
        gradients = tape.gradient(y, xs, unconnected_gradients="zero")
        for g, x in zip(gradients, xs, strict=True):
            assert (g.shape, g.dtype) == (x.shape, x.dtype)
        return sum(ops.sum(g * d) for g, d in zip(gradients, directions, strict=True))

    def shifted(distance):
        moved = (x + distance * d for x, d in zip(inputs, directions, strict=True))
        return float(projected(*map(tensor, moved)))

    actual = float(derivative(*map(tensor, inputs)))
    expected = (shifted(step) - shifted(-step)) / (2 * step)
    assert abs(actual - expected) <= tolerance * max(1.0, abs(expected)), (
        f"the tape says {actual}, central differences say {expected}"
    )
    if order > 1:
        check_grads(derivative, inputs, order - 1, step, tolerance, seed + 1)


def tensor(x):
    """Convert an array to a Tensor of the same dtype."""
    return x if isinstance(x, Tensor) else ops.convert_to_tensor(np.asarray(x))


def public_subclasses(namespace, base):
    """Return the classes of a namespace that derive from `base`, without it."""
    names = [name for name in dir(namespace) if not name.startswith("_")]
    objects = [getattr(namespace, name) for name in names]
    classes = {item for item in objects if isinstance(item, type)}
    return {cls for cls in classes if issubclass(cls, base)} - {base}


def concrete_function(step, batch):
    """Return the concrete function of a step for a batch, and its arrays."""
    function, leaves = step._function_for(batch)
    return function.get_concrete_function(*leaves), [np.asarray(x) for x in leaves]


def is_free(variable):
    """Return whether another thread can take the lock of a Variable now."""
    return can_be_taken(variable.lock)


@contextmanager
def threads_running(function, count=3):
    """Run a function in several threads during the context, and raise its error."""
    errors = []

    def run():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def can_be_taken(lock):
    """Return whether another thread can take a lock now."""
    inputs = []

    def take():
        inputs.append(lock.acquire(blocking=False))
        if inputs[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return inputs[0]
