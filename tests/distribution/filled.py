"""A model all of whose variables hold one number: what is mixed is seen."""

import numpy as np

import toolkit as tk


def make():
    """One with the slots of Adam."""
    model = tk.Sequential([tk.Input((300,)), tk.layers.Dense(400), tk.layers.Dense(9)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def _variables(model):
    return [*model.variables, *model.optimizer.variables]


def fill(model, number):
    """Set all variables."""
    for v in _variables(model):
        v.assign(np.full(v.shape, number, v.dtype))


def number_in(model):
    """The number; raises if there are several."""
    found = {x for v in _variables(model) for x in np.unique(v.numpy()).tolist()}
    assert len(found) == 1, f"mixed: {found}"
    return int(found.pop())
