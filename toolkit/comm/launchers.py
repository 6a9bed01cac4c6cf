"""Launchers of jobs, as their environment variables tell."""

from __future__ import annotations

import os

from toolkit.errors import LaunchError


def launcher_variable() -> tuple[str, int] | None:
    """Return the launcher's variable for the number of ranks, and its value.

    Return None without a launcher. Under `mpirun` in a Slurm allocation, the `srun`
    step is the step of mpirun's daemons, so it has the lowest priority.
    """
    for name in ("TOOLKIT_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if name in os.environ:
            return name, _read_count(name)
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return "SLURM_STEP_NUM_TASKS", _read_count("SLURM_STEP_NUM_TASKS")
    return None


def _read_count(name: str) -> int:
    value = os.environ[name]
    if not (value.isdecimal() and int(value) > 0):
        raise LaunchError(f"{name}: expected a number of processes; received {value!r}")
    return int(value)
