"""Launchers of jobs, as their environment variables tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

from toolkit.errors import LaunchError
from toolkit.processes import clean_environment, python_command

# Variables with the private folder of a job on one machine, or with the address of
# rank 0 of a job of several hosts. A launcher of toolkit has started these jobs.
PRIVATE_JOB_VARIABLES = ("TOOLKIT_JOB", "TOOLKIT_JOB_ADDRESS")
# Variables of a rank of these jobs; a script that a rank starts is no rank.
JOB_VARIABLES = (
    *PRIVATE_JOB_VARIABLES,
    *("TOOLKIT_RANK", "TOOLKIT_PROCESSES"),
    *("TOOLKIT_LOCAL_RANK", "TOOLKIT_LOCAL_PROCESSES"),
    *("TOOLKIT_LAUNCHER", "TOOLKIT_REPLACEMENT"),
)

# Variables of process managers that start the ranks of an MPI library.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_SLURM_MPI_VARIABLES = ("PMIX_RANK", "PMI_FD")
# Variables of torchrun and similar launchers, and of an indexed job of Kubernetes.
_RANK_VARIABLES = ("RANK", "JOB_COMPLETION_INDEX")
# The variable of the job that this process has joined. An engine may remove variables
# from the environment, so that children of the process are no ranks of the job.
_joined: list[tuple[str, int]] = []


def rank_command(script: Sequence[str], on_other_host: bool = False) -> list[str]:
    """Return the command of one rank, which runs a script with its arguments.

    Args:
        script: the path of the script and its arguments.
        on_other_host: whether the rank is on another host.
    """
    return python_command(
        "toolkit.launch:main",
        *script,
        runs_user_code=True,
        has_script=True,
        on_other_host=on_other_host,
    )


def launch_environment(
    processes: int,
    timeout: float | None = None,
    elastic: bool = False,
    replace: bool = False,
) -> dict[str, str]:
    """Return the environment of all processes of a job."""
    environment = clean_environment()
    for name in JOB_VARIABLES:
        environment.pop(name, None)
    environment["TOOLKIT_PROCESSES"] = str(processes)
    if timeout is not None:
        environment["TOOLKIT_TIMEOUT"] = str(timeout)
    if elastic:
        environment["TOOLKIT_ELASTIC"] = "1"
    if replace:
        environment["TOOLKIT_REPLACE"] = "1"
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Open MPI otherwise refuses root
        environment |= {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
    return environment


def remember_launcher(variable: str, size: int) -> None:
    """Record that this process has joined the job of a launcher."""
    _joined[:] = [(variable, size)]


def launcher_variable() -> tuple[str, int] | None:
    """Return the launcher's variable for the number of ranks, and its value.

    Return None without a launcher. Under `mpirun` in a Slurm allocation, the `srun`
    step is the step of mpirun's daemons, so it has a low priority.
    """
    if _joined:
        return _joined[0]
    for name in ("TOOLKIT_PROCESSES", *_MPI_VARIABLES):
        if name in os.environ:
            return name, _read_count(name)
    has_rank = any(name in os.environ for name in _RANK_VARIABLES)
    if has_rank and {"MASTER_ADDR", "WORLD_SIZE"} <= os.environ.keys():
        return "WORLD_SIZE", _read_count("WORLD_SIZE")
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return "SLURM_STEP_NUM_TASKS", _read_count("SLURM_STEP_NUM_TASKS")
    return None


def uses_mpi() -> bool:
    """Return whether MPI has started the ranks of this job."""
    if any(name in os.environ for name in PRIVATE_JOB_VARIABLES):
        return False
    if any(name in os.environ for name in _MPI_VARIABLES):
        return True
    has_manager = any(name in os.environ for name in _SLURM_MPI_VARIABLES)
    return has_manager and find_spec("mpi4py") is not None


def _read_count(name: str) -> int:
    value = os.environ[name]
    if not (value.isdecimal() and int(value) > 0):
        raise LaunchError(f"{name}: expected a number of processes; received {value!r}")
    return int(value)
