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
