"""Tests of trainings on a local cluster of Ray."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.comm import ranks

pytest.importorskip("ray.train")
SCRIPT = Path(__file__).with_name("job.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder with the results of all trainings."""
    path = tmp_path_factory.mktemp("ray")
    process = subprocess.run(
        [sys.executable, str(SCRIPT), str(path)],
        env=ranks.environment_of(RAY_TRAIN_ENABLE_STATE_TRACKING="0"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr[-5000:]
    return path


def results(folder, name):
    return [
        json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(2)
    ]


@pytest.fixture(scope="module")
def expected_hash(tmp_path_factory):
    """Return the hash of the weights of `toolkit run`."""
    path = tmp_path_factory.mktemp("run")
    source = SCRIPT.read_text("utf-8")
    process = ranks.run_ranks(path, 2, source)
    assert process.code == 0, process.errors
    (digest,) = set(process.out.split())
    return digest


def test_workers_get_the_bits_of_toolkit_run(folder, expected_hash):
    for result in results(folder, "arrays"):
        assert (result["hash"], result["size"]) == (expected_hash, 2)
        assert result["epochs"] == [0, 1, 2, 3]
        # As Ray assigns CPUs; the secret is not in the environment of children.
        assert (result["threads"], result["secrets"]) == ("1", [])


def test_killed_worker_resumes_from_the_checkpoint(folder, expected_hash):
    for result in results(folder, "killed"):
        assert (result["hash"], result["size"]) == (expected_hash, 2)
        assert result["epochs"] == [2, 3]
    assert (folder / "kill").exists()


def test_metrics_and_checkpoints_are_reported(folder):
    metrics = json.loads((folder / "shards-metrics.json").read_text())
    losses = results(folder, "shards")[0]["losses"]
    assert metrics == {"loss": pytest.approx(losses[-1])}
    assert losses[-1] < losses[0]
    checkpoints = list((folder / "storage" / "arrays").glob("checkpoint_2*"))
    assert len(checkpoints) == 4
    assert all((path / "latest.weights.h5").exists() for path in checkpoints)


def test_shards_of_ray_data(folder):
    first, second = results(folder, "shards")
    assert (first["rows"], second["rows"]) == (65, 65)
    assert first["hash"] == second["hash"]


def test_distribution_that_divides_shards_again_is_refused(folder):
    text = (folder / "divided-error").read_text()
    assert "expected a distribution with auto_shard_dataset=False" in text
