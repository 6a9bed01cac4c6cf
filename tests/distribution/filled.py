"""Build a model whose variables all contain one number, to detect mixed states."""

import numpy as np

import toolkit as tk


def make():
    """Return a small compiled model with the slot variables of Adam."""
    model = tk.Sequential([tk.Input((300,)), tk.layers.Dense(400), tk.layers.Dense(9)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _variables(model):
    return [*model.variables, *model.optimizer.variables]


def fill(model, number):
    """Assign one number to all variables."""
    for v in _variables(model):
        v.assign(np.full(v.shape, number, v.dtype))


def number_in(model):
    """Return the number of all variables; raise if they differ."""
    numbers = {x for v in _variables(model) for x in np.unique(v.numpy()).tolist()}
    assert len(numbers) == 1, f"mixed: {numbers}"
    return int(numbers.pop())
