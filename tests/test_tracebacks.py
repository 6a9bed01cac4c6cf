"""Tracebacks of errors in layers and models: the user's own frames."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops

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
    """(frames, how many of them are the package's) of the error of a call."""
    try:
        function()
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return frames, [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    raise AssertionError("expected an error")


def test_calls_of_layers_and_models(filtering):
    frames, own = frames_of(lambda: Wrong()(ops.ones((2, 3))))
    assert [f.name for f in frames][-2:] == ["call", "multiply"] and not own
    frames, own = frames_of(lambda: toolkit.Sequential([Wrong()])(np.ones((2, 3))))
    assert frames[-1].name == "multiply" and not own
    frames, own = frames_of(
        lambda: toolkit.Sequential([toolkit.Input((2,))])(ops.ones((1, 3)))
    )
    assert frames[-1].name == "<lambda>" and not own


def test_fit(filtering):
    model = toolkit.Sequential([layers.Dense(3), Wrong()])
    model.compile("sgd", "mse")
    frames, own = frames_of(lambda: model.fit(np.ones((2, 3)), np.ones(2), verbose=0))
    assert len(own) <= 1
    assert frames[-1].name == "multiply"


def test_whole_tracebacks(filtering):
    toolkit.config.disable_traceback_filtering()
    _, own = frames_of(lambda: Wrong()(ops.ones((2, 3))))
    assert len(own) > 3
