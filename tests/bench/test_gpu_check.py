"""The check on a GPU, as far as it goes without one."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.conftest import why_no_gpu

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def module(name):
    """A script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def test_the_table_judges_against_the_best_peer():
    row = {"case": "mnist_mlp", "precision": "float32", "bar": 0.5}
    row |= {"toolkit": {"step": 1e-3, "first": 1.0}, "torch/compile": "broke"}
    row |= {"torch": {"step": 2e-3, "first": 4.0}}
    row |= {"keras/jax": {"step": 4e-3, "first": 2.0}}
    lines = module("gpu_speed").table([row]).splitlines()
    assert "1.000     1.00  0.50, 0.5 (first 0.50, 0.3)" in lines[1]
    assert lines[3].endswith("torch/compile  broke")


def test_stages_run_files_that_are_there():
    for stage in module("gpu_check").stages().values():
        files = [
            p for p in stage.command if p.endswith(".py") or p.startswith("tests/")
        ]
        assert all((BENCHMARKS.parent / path).exists() for path in files), stage


def test_without_a_gpu_a_stage_fails_and_says_why(tmp_path):
    reason = why_no_gpu()
    if not reason:
        pytest.skip("there is a GPU: scripts/gpu_check runs all of it")
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--out", str(tmp_path)]
    command += ["--only", "facts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    record = json.loads((tmp_path / "gpu_check.json").read_text())
    assert record["facts"]["passed"] is False
    assert "BackendUnavailable: gpu" in record["facts"]["words"]
    assert "facts        FAILED" in (tmp_path / "gpu_check.txt").read_text()


def test_all_stages_fit_into_the_minutes_and_a_late_one_ends(tmp_path):
    check = module("gpu_check")
    program = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "time.sleep(60)"
    )
    found = check.run("late", check.Stage(check.python("-c", program), 1), tmp_path, 6)
    assert found["passed"] is False
    assert found["seconds"] < 20
    assert "took longer than 6 s" in found["words"]
    found = check.run("none", check.Stage(check.python("-c", ""), 1), tmp_path, 1)
    assert found == {"passed": None, "seconds": 0.0, "words": "no time was left"}


def test_what_is_not_there_or_has_no_time_is_said_in_each_row(monkeypatch):
    speed, saved = module("gpu_speed"), []
    monkeypatch.setattr(speed, "find_spec", lambda name: None if "jax" in name else 1)
    monkeypatch.setattr(speed, "_ask", lambda *about: {"step": 1.0, "first": 1.0})
    rows = speed.measure(save=lambda rows: saved.append(len(rows)))
    assert len(saved) == len(speed.RUNS) * len(speed.LIBRARIES)
    assert rows[0]["jax"] == "not installed: jax"
    assert rows[0]["torch"] == {"step": 1.0, "first": 1.0}
    late = speed.measure(seconds=0)
    assert late[-1]["torch"] == "not begun: no time was left"
    assert "failed" in late[-1] and "not begun" in speed.table(late)
