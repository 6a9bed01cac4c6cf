"""Test that an interrupt at any function call leaves complete steps."""

import os
import sys

import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, layers

PACKAGE = os.path.dirname(toolkit.__file__) + os.sep
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 5)).astype("float32")
Y = RANDOM.standard_normal((8, 3)).astype("float32")


class Calls:
    """A tracer that counts calls of the package's functions, and interrupts one."""

    def __init__(self, interrupt_at=None):
        self.interrupt_at = interrupt_at
        self.names = []

    def __call__(self, frame, event, arg):
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE) or path.endswith("contextlib.py"):
            if len(self.names) == self.interrupt_at:
                sys.settrace(None)
                raise KeyboardInterrupt
            self.names.append(frame.f_code.co_name)


def traced_fit(model, interrupt_at=None):
    calls = Calls(interrupt_at)
    sys.settrace(calls)
    try:
        model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    finally:
        sys.settrace(None)
    return calls.names


def make_fit(run_eagerly):
    toolkit.random.set_random_seed(9)
    model = Sequential([Input((5,)), layers.Dense(4, activation="relu")])
    for layer in (layers.Dropout(0.5), layers.BatchNormalization(), layers.Dense(3)):
        model.add(layer)
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=run_eagerly)
    return model


def state_of(model):
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


class References:
    """The states of a model after some steps, and after one more `fit`."""

    def __init__(self, run_eagerly):
        self.run_eagerly = run_eagerly
        self.references = {}

    def after(self, steps):
        if steps not in self.references:
            model = make_fit(self.run_eagerly)
            batches = [(X[:4], Y[:4]), (X[4:], Y[4:])] * 2
            for x, y in batches[:steps]:
                model.fit(x, y, shuffle=False, verbose=0)
            model_state = state_of(model) if steps else None
            model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
            self.references[steps] = model_state, state_of(model)
        return self.references[steps]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.one_in(4)
def test_interrupt_at_any_call_leaves_complete_steps(run_eagerly, seed):
    traced_fit(make_fit(run_eagerly))  # the calls exclude one-time work
    names = traced_fit(make_fit(run_eagerly))
    boundaries = [
        i for i, name in enumerate(names) if name in ("__enter__", "__exit__")
    ]
    random = np.random.default_rng(seed)
    calls = {
        *random.choice(boundaries, 25, False),
        *random.choice(len(names), 15, False),
    }
    references = References(run_eagerly)
    interrupted = 0
    for call in sorted(calls):
        model = make_fit(run_eagerly)
        try:
            traced_fit(model, call)
        except KeyboardInterrupt:
            interrupted += 1
        steps = int(model.optimizer.iterations)
        before, after = references.after(steps)
        if steps:
            assert_same(state_of(model), before, names[call], call)
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        assert_same(state_of(model), after, names[call], call)
    assert interrupted > 30


def assert_same(actual, expected, *details):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b, f"interrupted at {details}")
