"""Every example runs in a short form, prints its result and returns its model."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import toolkit

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SHORT = {
    "char_lm": ["--epochs", "1", "--steps", "1"],
    "cifar10_cnn": ["--synthetic", "--epochs", "1", "--steps", "1"],
}
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SLOW = {"char_lm", "cifar10_cnn"}
# Test accuracy after the full training.
ACCURACY = {
    "custom_loop": 0.96,
    "digits_cnn": 0.985,
    "digits_mlp": 0.965,
    "logistic_regression": 0.95,
}

pytestmark = pytest.mark.skipif(not NAMES, reason="the examples are in checkouts only")


def train(name, arguments, capsys):
    """(model, last printed line)."""
    model = runpy.run_path(str(FOLDER / f"{name}.py"))["main"](arguments)
    return model, capsys.readouterr().out.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in NAMES],
)
def test_example_runs(name, capsys):
    model, result = train(name, SHORT.get(name, ["--epochs", "1"]), capsys)
    assert isinstance(model, toolkit.Model)
    assert model.count_params() > 0
    assert re.search(
        r"test (accuracy [01]\.\d{4}|loss \d+\.\d{4} per character)$", result
    )


@pytest.mark.parametrize("name", NAMES)
def test_example_is_short_and_explained(name):
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 105
    explanation = ast.get_docstring(ast.parse(text))
    assert f"python examples/{name}.py" in explanation
    assert '"--epochs"' in text
    assert '"--seed"' in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCURACY)
def test_example_reaches_its_accuracy(name, capsys):
    _, result = train(name, [], capsys)
    assert float(result.split()[-1]) >= ACCURACY[name]
