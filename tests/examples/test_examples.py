"""Test that every example runs in a short form and reaches its quality in full.

The last printed line of an example is "test", the name of the measure, and its value.
"""

import ast
import hashlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import toolkit

FOLDER = Path(__file__).resolve().parents[2] / "examples"
TEN_LINES = sorted(path.stem for path in FOLDER.glob("ten_lines/*.py"))
DIGEST = """
import hashlib, os, runpy, sys
import toolkit
toolkit.config.set_dtype_policy(os.environ.get("POLICY"))
model = runpy.run_path(sys.argv[1])["main"](sys.argv[2:])
weights = b"".join(array.tobytes() for array in model.get_weights())
print(hashlib.sha256(weights).hexdigest())
"""


class Trial(NamedTuple):
    """The arguments of an example, short and in full, and the expected results.

    Attributes:
        limits: a minimum for an accuracy, a maximum for an error.
    """

    short: str
    full: str
    limits: tuple[float, float]


TRIALS = {
    "autoencoder": Trial("--epochs 4", "", (0.22, 0.11)),
    "char_lm": Trial("--epochs 1 --steps 20", "", (3.2, 1.75)),
    "char_lm lstm": Trial("--epochs 1 --steps 20", "", (3.4, 1.95)),
    "cifar10_cnn": Trial("--epochs 1", "--epochs 10", (0.75, 0.97)),
    "cifar10_resnet20": Trial("--epochs 6", "--epochs 12", (0.80, 0.97)),
    "custom_loop": Trial("--epochs 2", "", (0.85, 0.96)),
    "digits_cnn": Trial("--epochs 2", "", (0.75, 0.985)),
    "digits_mlp": Trial("--epochs 2", "", (0.85, 0.965)),
    "distributed": Trial("--epochs 4", "", (0.85, 0.96)),
    "forecast": Trial("--epochs 2", "", (1.3, 0.75)),
    "gpt": Trial("--epochs 1 --steps 20", "", (3.3, 1.6)),
    "input_pipeline": Trial("--epochs 2", "", (0.80, 0.98)),
    "logistic_regression": Trial("--epochs 2", "", (0.85, 0.95)),
    "mixed_precision": Trial("--epochs 2", "", (0.80, 0.98)),
    "mixed_precision mixed_float16": Trial("--epochs 2", "", (0.80, 0.98)),
}
CHOICES = {
    "char_lm lstm": "--network lstm",
    "cifar10_cnn": "--data digits",
    "cifar10_resnet20": "--data digits",
    "mixed_precision mixed_float16": "--policy mixed_float16",
}
MIXED = ("mixed_precision",)  # it chooses the policy itself
MAGIC = {".svg": b"<svg ", ".png": b"\x89PNG"}
KINDS = {"accuracy": max, "error": min, "loss": min}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the examples are in checkouts only"
)


def arguments(name, of_form, folder):
    """Return the command line for a trial in `folder`."""
    choice = CHOICES.get(name, "")
    return [*of_form.split(), *choice.split(), "--output", str(folder)]


def check(line, limit):
    """Check the name of the measure in the last line, and its value."""
    match = re.match(r"test (accuracy|error|loss) (\d+\.\d{4})\b", line)
    assert match, line
    kind, value = match[1], float(match[2])
    assert value == KINDS[kind](value, limit), line


def digest(model):
    weights = b"".join(array.tobytes() for array in model.get_weights())
    return hashlib.sha256(weights).hexdigest()


def train_elsewhere(name, form, folder, hash_seed, policy="float32"):
    """Train in a new process; return its last line but one and the weights' hash."""
    path = str(FOLDER / f"{name.split()[0]}.py")
    changes = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(FOLDER.parent)}
    changes["POLICY"] = policy
    process = subprocess.run(
        [sys.executable, "-c", DIGEST, path, *arguments(name, form, folder)],
        env=os.environ | changes,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip().splitlines()[-2:]


@pytest.mark.parametrize("name", TRIALS)
def test_short_form(name, tmp_path, capsys):
    main = runpy.run_path(str(FOLDER / f"{name.split()[0]}.py"))["main"]
    model = main(arguments(name, TRIALS[name].short, tmp_path / "new"))
    assert isinstance(model, toolkit.Model)
    check(capsys.readouterr().out.strip().splitlines()[-1], TRIALS[name].limits[0])
    (picture,) = [p for p in (tmp_path / "new").iterdir() if p.suffix in MAGIC]
    assert picture.read_bytes().startswith(MAGIC[picture.suffix])
    (saved,) = (tmp_path / "new").glob("*.keras")
    restored = toolkit.models.load_model(saved, custom_objects=custom_objects(main))
    assert digest(restored) == digest(model)


def custom_objects(main):
    """Return the layers that an example defines."""
    return {
        name: value
        for name, value in main.__globals__.items()
        if isinstance(value, type) and issubclass(value, toolkit.layers.Layer)
    }


def test_distributed_example_on_two_processes(tmp_path):
    script = [str(FOLDER / "distributed.py"), "--epochs", "4", "--output"]
    one_process, run = [sys.executable], [sys.executable, "-m", "toolkit", "run"]
    outputs = {}
    for count, command in ((1, one_process), (2, [*run, "--processes", "2"])):
        process = subprocess.run(
            [*command, *script, str(tmp_path / str(count))],
            env=os.environ | {"PYTHONPATH": str(FOLDER.parent)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == 0, process.stderr
        # The launcher prefixes each line with its rank.
        (line,) = re.findall(r"test accuracy .*", process.stdout)
        check(line, TRIALS["distributed"].limits[0])
        saved = tmp_path / str(count) / "distributed.keras"
        outputs[count] = digest(toolkit.models.load_model(saved))
    assert outputs[1] == outputs[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_full_form(name, tmp_path):
    line, _ = train_elsewhere(name, TRIALS[name].full, tmp_path, "0")
    check(line, TRIALS[name].limits[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [x for x in TRIALS if x.partition(" ")[0] not in MIXED]
)
def test_full_form_in_bfloat16(name, tmp_path):
    """Test that products in bfloat16 reach the quality of float32, too."""
    form = TRIALS[name].full
    line, _ = train_elsewhere(name, form, tmp_path, "0", "mixed_bfloat16")
    check(line, TRIALS[name].limits[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_same_seed_gives_the_same_bits(name, tmp_path):
    form = TRIALS[name].short
    first, second = (train_elsewhere(name, form, tmp_path, s) for s in ("0", "1"))
    assert first == second


# --- style ----------------------------------------------------------------------------


def test_every_example_has_a_trial():
    tried = {name.split()[0] for name in TRIALS}
    assert tried == {path.stem for path in FOLDER.glob("*.py")}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.stem)
def test_example_is_short_and_explained(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 145
    explanation = ast.get_docstring(ast.parse(text))
    assert f"python examples/{path.name}" in explanation
    for option in ("epochs", "seed", "output"):
        assert f'"--{option}"' in text


# --- examples of ten lines ------------------------------------------------------------


def check_digits(variables):
    _, accuracy = variables["model"].evaluate(
        variables["x_test"], variables["y_test"], verbose=0
    )
    assert accuracy > 0.95


def check_forecast(variables):
    assert variables["error"] < 0.9 * np.std(variables["future"][1500:])


def check_gradient(variables):
    np.testing.assert_allclose(variables["circle"].numpy(), [1, -2, 3], atol=1e-3)


def check_text(variables):
    loss = variables["model"].history.history["val_loss"][-1]
    assert loss < 2.5  # less than half of the loss of a uniform guess, log(128)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n == "text" else ()) for n in TEN_LINES],
)
def test_ten_lines(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = FOLDER / "ten_lines" / f"{name}.py"
    tree = ast.parse(path.read_text("utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    imports = [n for n in statements if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert len(statements) - len(imports) - 1 <= 10  # nor does the docstring count
    globals()[f"check_{name}"](runpy.run_path(str(path)))
