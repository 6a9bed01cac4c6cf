"""Tests of the job of a process, as its launcher describes it."""

import pytest

from toolkit.comm import jobs
from toolkit.errors import ArgumentError, LaunchError

VARIABLES = ("TOOLKIT_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
VARIABLES += ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "TOOLKIT_TIMEOUT")


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, None),
        ({"TOOLKIT_PROCESSES": "4"}, ("TOOLKIT_PROCESSES", 4)),
        ({"PMI_SIZE": "2"}, ("PMI_SIZE", 2)),
        # A script in the shell of an allocation is a single process.
        ({"SLURM_STEP_NUM_TASKS": "4"}, None),
        (
            {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"},
            ("SLURM_STEP_NUM_TASKS", 4),
        ),
        # Below mpirun the step has one task for each machine.
        (
            {
                "SLURM_STEP_NUM_TASKS": "1",
                "SLURM_PROCID": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
            },
            ("OMPI_COMM_WORLD_SIZE", 8),
        ),
    ],
)
def test_launchers_declare_the_world_size(monkeypatch, variables, expected):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert jobs.launcher_variable() == expected


def test_invalid_world_size_is_refused(monkeypatch):
    monkeypatch.setenv("TOOLKIT_PROCESSES", "many")
    with pytest.raises(LaunchError, match="TOOLKIT_PROCESSES.*'many'"):
        jobs.launcher_variable()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan"])
def test_a_timeout_must_be_seconds(monkeypatch, value):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", value)
    with pytest.raises(ArgumentError, match="TOOLKIT_TIMEOUT"):
        jobs.timeout()


def test_timeouts(monkeypatch):
    monkeypatch.delenv("TOOLKIT_TIMEOUT", raising=False)
    assert jobs.timeout() == jobs.TIMEOUT
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "inf")
    assert jobs.timeout() == float("inf")
