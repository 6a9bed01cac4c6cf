"""Tests that errors and warnings in layers and models name the user's lines."""

import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.console.frames import warn, warn_once
from toolkit.data import Dataset

PACKAGE = Path(toolkit.__file__).parent


class Wrong(layers.Layer):
    def call(self, x):
        return self.multiply(x)

    def multiply(self, x):
        return ops.matmul(x, x)


@pytest.fixture
def filtering():
    enabled = toolkit.config.is_traceback_filtering_enabled()
    toolkit.config.enable_traceback_filtering()
    yield
    if not enabled:
        toolkit.config.disable_traceback_filtering()


def frames_of(function):
    """Return (frames, the number of the package's frames) of the error of a call."""
    try:
        function()
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return frames, [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    raise AssertionError("expected an error")


def test_calls_of_layers_and_models(filtering):
    frames, own_frames = frames_of(lambda: Wrong()(ops.ones((2, 3))))
    assert [f.name for f in frames][-2:] == ["call", "multiply"] and not own_frames
    frames, own_frames = frames_of(
        lambda: toolkit.Sequential([Wrong()])(np.ones((2, 3)))
    )
    assert frames[-1].name == "multiply" and not own_frames
    frames, own_frames = frames_of(
        lambda: toolkit.Sequential([toolkit.Input((2,))])(ops.ones((1, 3)))
    )
    assert frames[-1].name == "<lambda>" and not own_frames


def test_fit(filtering):
    model = toolkit.Sequential([layers.Dense(3), Wrong()])
    model.compile("sgd", "mse")
    frames, own_frames = frames_of(
        lambda: model.fit(np.ones((2, 3)), np.ones(2), verbose=0)
    )
    assert len(own_frames) <= 1
    assert frames[-1].name == "multiply"


def test_full_tracebacks(filtering):
    toolkit.config.disable_traceback_filtering()
    _, own_frames = frames_of(lambda: Wrong()(ops.ones((2, 3))))
    assert len(own_frames) > 3


# --- warnings -------------------------------------------------------------------------


def fitted(**options):
    model = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.full((4, 2), options.pop("value", 1.0), "float32")
    model.fit(x, np.ones((4, 1)), verbose=0, **options)


class Inner(layers.Layer):
    """A user's layer whose call causes a warning."""

    def call(self, x):
        return toolkit.losses.categorical_crossentropy(x, x)


def limited():
    before = toolkit.config.max_epochs()
    toolkit.config.set_max_epochs(1)
    try:
        fitted(epochs=2)
    finally:
        toolkit.config.set_max_epochs(before)


WARNINGS = {
    "input_shape": lambda: layers.RepeatVector(3, input_shape=(2,)),
    "limits epochs": limited,
    "no epoch runs": lambda: fitted(epochs=1, initial_epoch=2),
    "loss is nan": lambda: fitted(value=np.nan),
    "ran out": lambda: fitted(steps_per_epoch=3, batch_size=2),
    "single class": lambda: toolkit.Sequential([Inner()])(ops.ones((2, 1))),
    "ignore_errors": lambda: list(
        Dataset.range(2).map(lambda x: 1 // int(x)).ignore_errors()
    ),
    "check_types": lambda: toolkit.tree.assert_same_structure(1, 2, check_types=True),
}


@pytest.mark.parametrize("words", WARNINGS)
def test_warnings_name_the_users_line(words):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNINGS[words]()
    where = {w.filename for w in caught if words in str(w.message)}
    assert where == {__file__}


def test_warning_is_shown_once_per_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn("twice the same")
        warn("twice the same", DeprecationWarning)
    assert [w.category for w in caught] == [UserWarning, DeprecationWarning]


class Owner:
    """An object whose class forbids new attributes by assignment, and a hash."""

    __hash__ = None

    def __eq__(self, other):
        return True

    def __setattr__(self, name, value):
        raise AttributeError(name)


def messages_of(function):
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        function()
    return [str(warning.message) for warning in issued]


@pytest.mark.parametrize("owner", [Owner(), type("Owned", (), {})])
def test_each_owner_warns_once(owner):
    assert messages_of(lambda: warn_once(owner, "a")) == ["a"]
    assert messages_of(lambda: warn_once(owner, "a")) == []
    assert messages_of(lambda: warn_once(owner, "b", topic="t")) == ["b"]
    assert messages_of(lambda: warn_once(owner, "c", topic="t")) == []
    other = type("Other", (owner,), {}) if isinstance(owner, type) else Owner()
    assert messages_of(lambda: warn_once(other, "a")) == ["a"]
    assert messages_of(lambda: warn_once(None, "a")) == ["a"]


def test_a_warning_that_is_an_error_counts_as_issued():
    owner = Owner()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            warn_once(owner, "a")
    assert messages_of(lambda: warn_once(owner, "a")) == []
