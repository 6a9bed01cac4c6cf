"""Models and one server that several test files share."""

import pytest

import toolkit
from tests.serving.serve import mlp, serving, two_of_each
from toolkit import layers
from toolkit.serving import Limits


@pytest.fixture(scope="session")
def model():
    return mlp()


@pytest.fixture(scope="session")
def pair():
    return two_of_each()


@pytest.fixture(scope="session")
def server(model, pair):
    words = toolkit.Sequential(
        [
            toolkit.Input((), dtype="string", name="word"),
            layers.StringLookup(vocabulary=["red", "green"], name="code"),
        ]
    )
    models = {"mlp": model, "two words": pair, "words": words}
    with serving(models, limits=Limits(body=2**22)) as server:
        yield server
