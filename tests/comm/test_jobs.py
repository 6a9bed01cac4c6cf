"""Tests of jobs of several processes, as `toolkit run --processes` starts them."""

import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.comm import ranks
from toolkit.cli import mpirun
from toolkit.comm import local
from toolkit.comm.watchdog import Watchdog
from toolkit.errors import LaunchError

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 3  # seconds that a rank waits for another rank

BEGIN = """
import hashlib, json, os, signal, sys, time
import numpy as np
import toolkit as tk
from toolkit import comm, distribution, layers

rank = comm.world().rank

def train(model, rows=48, batch=16):
    random = np.random.default_rng(0)
    x, y = random.random((rows, 20), "float32"), random.integers(0, 4, rows)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=batch, epochs=2, verbose=0).history
    values = [*model.variables, *model.optimizer.variables, model.predict(x, verbose=0)]
    joined = b"".join(np.asarray(value).tobytes() for value in values)
    held = sum(v._tensor._array.nbytes for v in model.variables)
    told = [rank, history["loss"], hashlib.sha256(joined).hexdigest(), held]
    print("result", json.dumps(told), flush=True)

def network():
    tk.utils.set_random_seed(0)
    return tk.Sequential([
        layers.Dense(32, activation="relu"), layers.BatchNormalization(),
        layers.Dropout(0.2), layers.Dense(4, activation="softmax"),
    ])
"""


@pytest.fixture
def job(tmp_path):
    def run(processes, text, seconds=60, engine="sockets"):
        script = tmp_path / "train.py"
        script.write_text(BEGIN + dedent(text))
        command = [sys.executable, "-m", "toolkit", "run", "--processes"]
        command += [str(processes), "--timeout", str(TIMEOUT)]
        command += [*ranks.FLAGS[engine], str(script)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, text=True, timeout=seconds,
            capture_output=True,
        )  # fmt: skip

    return run


def results(process):
    """Return the reports of the ranks, by rank."""
    assert process.returncode == 0, process.stderr
    lines = [line for line in process.stdout.splitlines() if "result " in line]
    return sorted(json.loads(line.partition("result ")[2]) for line in lines)


@ranks.for_engines
@ranks.for_sizes
def test_training_has_the_same_bits_on_any_number_of_processes(job, engine, sizes):
    text = """
    distribution.set_distribution(distribution.DataParallel(shards=4))
    train(network(), rows=47, batch=15)  # the last batch has two rows
    """
    jobs = [results(job(count, text, engine=engine)) for count in sizes]
    assert tuple(len(reports) for reports in jobs) == sizes
    assert len({digest for reports in jobs for _, _, digest, _ in reports}) == 1


def test_weights_are_sharded(job):
    text = """
    mesh = distribution.DeviceMesh((1, 2), ["batch", "model"])
    layouts = distribution.LayoutMap(mesh)
    layouts[".*dense/kernel"] = (None, "model")
    layouts[".*dense/bias"] = ("model",)
    distribution.set_distribution(distribution.ModelParallel(layout_map=layouts))
    train(network())
    """
    plain = "train(network())"
    (_, losses, _, total_nbytes), *_ = results(job(1, plain))
    for _, shard_losses, _, nbytes in results(job(2, text)):
        assert shard_losses == pytest.approx(losses, rel=1e-5)
        assert nbytes == total_nbytes - 4 * (20 * 16 + 16)
    digests = {digest for _, _, digest, _ in results(job(2, text))}
    assert len(digests) == 1


@pytest.mark.slow
def test_a_pipeline_has_the_same_bits_on_any_number_of_processes(job):
    begin = """
    stages = ["first", "middle", "last"]
    distribution.set_distribution(distribution.PipelineParallel(stages, 4))
    """
    text = """
    tk.utils.set_random_seed(0)
    train(tk.Sequential([
        layers.Dense(32, activation="relu", name="first"), layers.Dropout(0.2),
        layers.Dense(16, activation="relu", name="middle"),
        layers.Dense(4, activation="softmax", name="last"),
    ]), rows=47, batch=15)  # the last batch has two rows, fewer than micro-batches
    """
    one, two, three = (results(job(n, begin + text)) for n in (1, 2, 3))
    ((_, losses, digest, total_nbytes),) = one
    for reports in (two, three):
        assert [(rank_losses, bits) for _, rank_losses, bits, _ in reports] == (
            [(losses, digest)] * len(reports)
        )
        seeds = (len(reports) - 1) * 8
        assert sum(nbytes for *_, nbytes in reports) == total_nbytes + seeds
    ((_, plain, _, _),) = results(job(1, text))
    assert losses == pytest.approx(plain, rel=1e-5)


@ranks.for_engines
def test_exception_in_one_process_ends_all_with_one_traceback(job, engine):
    text = "if rank == 1: raise RuntimeError('boom')\ncomm.world().barrier()"
    process = job(3, text, engine=engine)
    assert process.returncode == 1
    assert process.stderr.count("Traceback") == 1 and "boom" in process.stderr
    assert "rank 1 has failed" in process.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_process_that_exits_early_ends_the_job(job, code):
    process = job(2, f"if rank == 1: sys.exit({code})\ncomm.world().barrier()")
    assert process.returncode == (code or 124)
    if not code:
        assert "rank 1 is missing: its script has ended" in process.stderr


def test_different_programs_are_reported_before_the_first_step(job):
    text = """
    distribution.set_distribution(distribution.DataParallel())
    train(tk.Sequential([layers.Dense(4 if rank else 5, activation="softmax")]))
    """
    process = job(2, text)
    assert process.returncode == 1
    assert "program of train_step differs between ranks" in process.stderr


@ranks.for_engines
def test_a_stopped_process_is_named(job, engine):
    text = """
    if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
    with comm.named("the loss"): comm.world().barrier()
    """
    process = job(2, text, engine=engine)
    assert process.returncode == 124
    assert "rank 1 does not respond" in process.stderr and "the loss" in process.stderr


def test_mesh_larger_than_the_job_is_refused(job):
    text = (
        "distribution.set_distribution(distribution.DataParallel(devices=list('abc')))"
    )
    process = job(2, text)
    assert process.returncode == 1
    assert "`toolkit run --processes 3`" in process.stderr


def test_without_mpi(monkeypatch):
    monkeypatch.setattr(mpirun.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match=r"\[mpi\]"):
        mpirun.launch_command(2, ["train.py"])


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "validation"])
@pytest.mark.one_in(2)
def test_data_of_different_lengths_is_refused_before_a_step(job, method):
    text = f"""
    method = {method!r}
    distribution.set_distribution(distribution.DataParallel())
    model = network()
    model.compile("adam", "sparse_categorical_crossentropy")
    x, y = np.ones((32, 20), "float32"), np.zeros(32, int)
    rows = 32 if rank == 0 else 31
    options = dict(batch_size=16, verbose=0)
    if method == "validation":
        model.fit(x, y, validation_data=(x[:rows], y[:rows]), **options)
    elif method == "predict":
        model.predict(x[:rows], **options)
    else:
        getattr(model, method)(x[:rows], y[:rows], **options)
    """
    process = job(2, text)
    assert process.returncode != 0
    name = "fit: validation_data" if method == "validation" else method
    assert f"{name}: expected data of the same length and shapes" in process.stderr
    assert "32 samples" in process.stderr
    assert "on rank 0; 31 samples" in process.stderr


def test_an_error_of_the_watchdog_ends_the_job(capsys):
    """Without the watchdog, a stalled call would wait forever."""
    ends = queue.SimpleQueue()
    group = local.single()
    watchdog = Watchdog(group, 600, lambda *arguments: ends.put(arguments))
    record = watchdog.watch(group, "world", members=[7]).record  # not this rank
    with record.record_call("barrier", 0):
        reason, code = ends.get(timeout=60)
    watchdog.close()
    assert code == 1 and "watchdog of rank 0 has failed" in reason
    assert "in _reason_of_deadlock" in capsys.readouterr().err
