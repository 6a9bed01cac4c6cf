"""The benchmark scripts run, leave out what is not there, and write their numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="the benchmarks are in checkouts only"
)


def run(script, *arguments):
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_candidates_take_turns_and_are_compared(tmp_path):
    path = tmp_path / "numbers.json"
    output = run(
        "eager_overhead.py", "--only", "add 4x4", "--runs", "2", "--json", str(path)
    )
    record = json.loads(Path(path).read_text("utf-8"))
    assert record["script"] == "eager_overhead.py"
    assert record["machine"]["cores"] > 0
    assert "numpy" in record["candidates"]["toolkit"]["packages"]
    plain, recorded = record["rows"]
    assert plain["case"] == "add 4x4"
    assert len(plain["runs"]["numpy"]) == len(plain["runs"]["toolkit"]) == 2
    assert plain["median"]["toolkit"] > plain["median"]["numpy"] > 0
    assert "numpy" in recorded["skipped"]
    assert "1.00 x" in output


def test_what_is_not_installed_is_left_out():
    output = run("mlp_forward.py", "--runs", "1", "--peer-python", sys.executable)
    if "keras on torch" in output and "not installed" not in output:
        pytest.skip("the peers are installed")
    assert "left out: not installed" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("digits_step.py", ["--runs", "1", "--only", "mlp"], "kernel calls"),
        ("import_time.py", ["--runs", "1"], "import toolkit"),
        ("step_memory.py", ["--only", "digits_mlp"], "1.000"),
    ],
)
def test_script_runs(script, arguments, words):
    assert words in run(script, *arguments)
