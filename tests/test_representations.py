"""Printed forms of objects, and the names that public modules list."""

import types

import numpy as np
import pytest

import toolkit
from toolkit.optimizers.schedules import CosineDecay


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: toolkit.optimizers.Adam(), "Adam(learning_rate=0.001)"),
        (
            lambda: toolkit.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0),
            "SGD(learning_rate=0.1, momentum=0.9, clipnorm=1)",
        ),
        (
            lambda: toolkit.optimizers.Adam(CosineDecay(0.1, 9)),
            "Adam(learning_rate=CosineDecay(...))",
        ),
        (
            lambda: CosineDecay(0.1, 100),
            "CosineDecay(initial_learning_rate=0.1, decay_steps=100)",
        ),
        (lambda: toolkit.regularizers.L1L2(0.5), "L1L2(l1=0.5)"),
        (lambda: toolkit.constraints.MaxNorm(3), "MaxNorm(max_value=3)"),
        (lambda: toolkit.initializers.GlorotUniform(), "GlorotUniform()"),
        (lambda: toolkit.initializers.Constant(2.0), "Constant(value=2)"),
        (lambda: toolkit.callbacks.EarlyStopping(), "<EarlyStopping>"),
        (
            lambda: toolkit.random.SeedGenerator(1, name="seeds"),
            "<SeedGenerator name=seeds, seed=1>",
        ),
    ],
)
def test_repr_shows_the_arguments_that_are_no_defaults(make, text):
    assert repr(make()) == text


def test_repr_shows_the_current_learning_rate():
    optimizer = toolkit.optimizers.Adam(0.1)
    optimizer.learning_rate = 0.25
    assert repr(optimizer) == "Adam(learning_rate=0.25)"


def test_repr_of_an_object_whose_config_fails():
    class Broken(toolkit.regularizers.Regularizer):
        def get_config(self):
            raise ValueError("no config")

    assert repr(Broken()) == "<Broken>"


def test_repr_of_history_shows_the_last_epoch():
    model = toolkit.Sequential([toolkit.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, verbose=0)
    loss = history.history["loss"][-1]
    assert repr(history) == f"<History epochs=2, loss={loss:.4g}>"


def public_modules():
    found = [getattr(toolkit, name) for name in dir(toolkit) if name[0] != "_"]
    return [toolkit, *(m for m in found if isinstance(m, types.ModuleType))]


@pytest.mark.parametrize("module", public_modules(), ids=lambda m: m.__name__)
def test_public_modules_list_no_foreign_names(module):
    assert module.__name__.startswith("toolkit")
    for name in dir(module):
        value = getattr(module, name)
        is_module = isinstance(value, types.ModuleType)
        home = value.__name__ if is_module else getattr(value, "__module__", None)
        if name[0] != "_" and home is not None:
            assert home.startswith("toolkit"), f"{module.__name__}.{name}"
