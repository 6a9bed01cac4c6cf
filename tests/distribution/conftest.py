"""Fixtures of jobs on simulated GPUs."""

import json

import pytest

from tests.comm.nccl_ranks import build
from tests.distribution.gpu_scripts import TRAINING
from tests.distribution.jobs import run


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Return the folder of kernels, and the stand-in for NCCL."""
    return tmp_path_factory.mktemp("kernels"), build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def train_on_gpus(tmp_path, folders, monkeypatch):
    """Return a function that trains a model on some ranks, and returns the reports."""
    kernels, nccl = map(str, folders)

    def start(model, ranks, **options):
        device = "gpu" if options.get("gpu", True) else "cpu"
        monkeypatch.setenv("TOOLKIT_DEVICE", device)
        flags = options.pop("flags", ())
        options = {"model": model, "kernels": kernels, "nccl": nccl, **options}
        limits = {"timeout": 100, "seconds": 300}  # for a busy machine
        arguments = TRAINING, json.dumps(options)
        return run(tmp_path, ranks, *arguments, flags=flags, **limits)

    return start


@pytest.fixture
def run_on_gpus(tmp_path, folders, monkeypatch):
    """Return a function that runs a script on ranks with GPUs."""
    monkeypatch.setenv("TOOLKIT_DEVICE", "gpu")

    def run_script(script, ranks=2, **options):
        options = {"timeout": 60, "seconds": 200, **options}
        return run(tmp_path, ranks, script, *map(str, folders), **options)

    return run_script
