"""Tests that benchmark scripts run, skip missing peers, and write their figures."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.comm.ranks import needs_mpi
from toolkit.bench import suite
from toolkit.bench.workloads import STACKS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="the benchmarks are in checkouts only"
)


def start(script, *arguments):
    """Run a script to its end and return its process."""
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def run(script, *arguments):
    """Return the output of a script."""
    process = start(script, *arguments)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture
def folder_on_the_path(monkeypatch):
    """Make the modules of the benchmarks importable."""
    for folder in (FOLDER, FOLDER / "data", FOLDER / "peers"):
        monkeypatch.syspath_prepend(str(folder))


def row(case, *names):
    """Return a row of a record in which every candidate takes two seconds."""
    median = dict.fromkeys(names, 2.0)
    samples = {name: [1.0, 2.0, 3.0] for name in names}
    outcome = {"skipped": {}, "failed": {}}
    return {"case": case, "median": median, "samples": samples, **outcome}


def test_candidates_alternate_and_are_compared(tmp_path):
    path = tmp_path / "numbers.json"
    output = run(
        "cpu/eager_overhead.py", "--only", "add 4x4", "--runs", "2", "--json", str(path)
    )
    record = json.loads(Path(path).read_text("utf-8"))
    assert record["script"] == "cpu/eager_overhead.py"
    assert record["machine"]["cores"] > 0
    assert "numpy" in record["candidates"]["toolkit"]["packages"]
    plain, recorded = record["rows"]
    assert plain["case"] == "add 4x4"
    assert len(plain["samples"]["numpy"]) == len(plain["samples"]["toolkit"]) == 2
    assert plain["median"]["toolkit"] > plain["median"]["numpy"] > 0
    assert "numpy" in recorded["skipped"]
    assert "1.00 x" in output


def test_another_checkout_alternates(tmp_path):
    arguments = "cpu/eager_overhead.py", "--only", "add 4x4", "--runs", "2", "--before"
    output = run(*arguments, str(FOLDER.parent))
    assert re.search(r"toolkit / before: \d\.\d+, half of them", output)
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit/__init__.py").write_text("raise ImportError('the other one')")
    process = start(*arguments, str(tmp_path))
    assert "the other one" in process.stdout + process.stderr


def test_missing_peers_are_skipped():
    output = run("cpu/eager_overhead.py", "--only", "add 4x4", "--runs", "1")
    if "torch " in output and "left out: not installed" not in output:
        pytest.skip("torch is installed")
    assert "left out: not installed (No module named 'torch')" in output


def test_peers_run_toolkit_alone_in_the_quick_mode():
    output = run("peers/peers.py", "--quick", "--only", "tiny_mlp")
    assert "tiny_mlp/fit, ms a step\n  toolkit" in output


def test_embedding_tables_are_compared_with_peers(tmp_path):
    path = tmp_path / "numbers.json"
    arguments = ["--rows", "2000", "--runs", "1", "--only", "sgd", "--json", str(path)]
    assert "sgd memory, as multiples of" in run("cpu/embeddings.py", *arguments)
    step, memory = json.loads(Path(path).read_text("utf-8"))["rows"]
    assert step["median"]["toolkit"] > 0
    assert memory["median"]["toolkit"] > 1
    assert not step["failed"]


def test_training_is_compared_with_peers(tmp_path):
    path = tmp_path / "numbers.json"
    arguments = ["--quick", "--only", "seq2seq", "--json", str(path)]
    assert "2,327,504 weights" in run("peers/fits.py", *arguments)
    (network,) = json.loads(Path(path).read_text("utf-8"))["rows"]
    assert network["median"]["toolkit"] > 0
    assert 0 < network["loss"]["toolkit"] < 1.1


def test_steps_are_compared_with_their_arithmetic(tmp_path, folder_on_the_path):
    path = tmp_path / "numbers.json"
    arguments = ["--quick", "--only", "tiny_mlp", "--json", str(path)]
    assert run("peers/limits.py", *arguments).startswith("tiny_mlp: toolkit ")
    record = json.loads(path.read_text("utf-8"))
    (medians,) = [row["median"] for row in record["rows"]]
    assert (
        0 < medians["arithmetic"] < medians["arithmetic or memory"] < medians["toolkit"]
    )
    table = import_module("page").table(record)
    assert "| case | toolkit | arithmetic | arithmetic or memory | ratio |" in table


def test_pipeline_compares_installed_peers(tmp_path):
    path = tmp_path / "numbers.json"
    arguments = ["--only", "position", "--rounds", "1", "--json", str(path)]
    output = run("data/pipeline.py", *arguments)
    for job in ("save_position", "restore_position"):
        assert f"{job}: toolkit " in output
    assert output.count("bar 0.001: ") == 2
    assert len(json.loads(path.read_text("utf-8"))["rows"]["save_position"]) == 1


def test_every_job_of_pipeline_has_a_worker(folder_on_the_path):
    import pipeline
    from pipeline_worker import figure

    assert figure("toolkit", "naive") > 0.2
    for job, bars in pipeline.JOBS.items():
        times = dict.fromkeys(("toolkit", *pipeline.PEERS_OF_JOB.get(job, ())), 1.0)
        assert all(bar.figure(times) > 0 and bar.limit > 0 for bar in bars), job


@pytest.mark.slow
def test_pipeline_runs_all_jobs():
    from_jobs = run("data/pipeline.py", "--rounds", "1", "--only", "e")
    assert "python_bound" not in from_jobs  # without an exponent
    assert "prefetch: toolkit " in from_jobs
    assert "not judged" in from_jobs  # without peers


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected --peers DIR"),
        (["--quick", "--write", "page.md"], "--write needs the whole run"),
        (["--peers", "nowhere"], "Keras/TensorFlow: nowhere/tensorflow/bin/python"),
        (["--only", "zebra"], "received 'zebra'"),
    ],
)
def test_peers_refuses_bad_options(arguments, words):
    process = start("peers/peers.py", *arguments)
    assert process.returncode != 0
    assert words in process.stderr


def test_page_lists_every_peer(folder_on_the_path):
    from peers_table import COLUMNS, render
    from peers_worker import PEERS

    rows = [row(case, "toolkit", *PEERS) for case in suite.WORKLOADS]
    rows += [row("growth", *STACKS), row("speed_up", "1", "2")]
    about = {"python": "3.11", "packages": {"torch": "2.13"}}
    page = render(
        {
            "toolkit": "0.1.0",
            "machine": suite.describe_machine(),
            "threads": 2,
            "rounds": 3,
            "candidates": dict.fromkeys(["toolkit", *PEERS], about),
            "rows": rows,
        },
        "Quiet.",
    )
    assert page.count("| missed |") == len(suite.WORKLOADS)
    assert "tf.function 2,000,000 ±25%, jax.jit 2,000,000 ±25%" in page
    assert "Quiet." in page and "toolkit 0.1.0, torch 2.13" in page
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert all(name in page for name in COLUMNS)
    assert len({line.count("|") for line in lines if "`fit`" in line}) == 1


def test_network_step_is_listed_for_a_gpu():
    """Check that the list has products, gradients and updates, without copies."""
    first, second, *lines = run("gpu/gpu_programs.py", "mnist_mlp").splitlines()
    assert first.startswith("mnist_mlp float32:")
    assert second.endswith("in place: True")
    assert int(second.partition("joining: ")[2].partition(",")[0]) <= 16
    assert not any("NOT LOWERED" in line or "stop_gradient" in line for line in lines)
    assert sum("cublaslt 1x512x128x784" in line for line in lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("cpu/digits_step.py", ["--runs", "1", "--only", "mlp"], "kernel calls"),
        ("cpu/quantized.py", ["--runs", "1", "--only", "1x1024"], "int4"),
        ("cpu/half_precision.py", ["--runs", "1", "--only", "mlp"], "toolkit bfloat16"),
        ("cpu/import_time.py", ["--runs", "1"], "toolkit  median"),
        ("cpu/notebook.py", ["--runs", "1"], "toolkit function"),
        ("cpu/step_memory.py", ["--only", "digits_mlp"], "1.00"),
        ("cpu/progress_cost.py", ["--rounds", "1", "--steps", "20"], "over nothing"),
    ],
)
def test_script_runs(script, arguments, words):
    assert words in run(script, *arguments)


@needs_mpi
def test_sums_between_ranks(tmp_path):
    path = tmp_path / "rows.json"
    table = run(
        "distributed/distribution.py", "--quick", "--ranks", "2", "--json", str(path)
    )
    assert "ordered over Allreduce" in table
    rows = json.loads(path.read_text())
    assert [row["bytes"] for row in rows] == [1 << 10, 1 << 16]
    assert all(row["ordered"] > 0 and row["Allreduce"] > 0 for row in rows)


@pytest.mark.slow
@needs_mpi
def test_steps_of_ranks(tmp_path):
    path = tmp_path / "rows.json"
    short = ["--rounds", "1", "--steps", "1", "--batch", "8"]
    options = ["--networks", "mnist_mlp", *short, "--json", str(path)]
    assert "link/bound" in run("distributed/distributed_steps.py", *options)
    (row,) = json.loads(path.read_text())
    assert row["link"] > 0.02 and row["sums"] == 2 and row["sent"] > 0.02


@needs_mpi
def test_checkpoints_of_ranks(tmp_path):
    path = tmp_path / "rows.json"
    table = run(
        "distributed/checkpoints.py", "--quick", "--ranks", "3", "--json", str(path)
    )
    assert "split slots" in table
    rows = json.loads(path.read_text())
    assert all(row["largest share"] <= 1 / 3 + 0.01 for row in rows)
    assert [row["bytes"] > 12e6 for row in rows] == [True, True]


@pytest.mark.slow
@needs_mpi
def test_jobs_that_lose_ranks_recover():
    output = run("distributed/lost_ranks.py", "--kills", "3", "--epochs", "250")
    assert "3 of 3 jobs have the bits of one without a loss" in output
    assert "step: median " in output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_serving_compares_answers_and_counts_losses(tmp_path):
    path = tmp_path / "numbers.json"
    output = run("serving/serving.py", "--quick", "--json", str(path))
    report = json.loads(path.read_text("utf-8"))
    assert (
        "toolkit serve   1 connections" in output and "http.server" in report["speed"]
    )
    assert report["answers"]["wrong"] == 0 and "lost" not in report["reload"]
    assert report["malformed"]["alive"] and report["malformed"]["right"]
