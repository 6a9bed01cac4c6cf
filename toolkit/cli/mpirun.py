"""The command that starts the processes of a job on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import LaunchError

# Without these it looks for networks for a second, and binds two ranks to two cores.
_OPEN_MPI = (
    *("--oversubscribe", "--bind-to", "none"),
    *("--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp", "--mca", "osc", "^ucx"),
)


def command_of(processes: int, script: Sequence[str]) -> list[str]:
    """The command that runs a script in so many processes of this machine.

    Raises:
        LaunchError: without an `mpirun`.
    """
    found = _mpirun()
    options = _OPEN_MPI if _is_open_mpi(found) else ()
    launch = [sys.executable, "-m", "toolkit.launch", *script]
    return [found, "-n", str(processes), *options, *launch]


def environment_of(processes: int, timeout: float | None = None) -> dict[str, str]:
    """The environment of that command."""
    found = {**os.environ, "TOOLKIT_PROCESSES": str(processes)}
    if timeout is not None:
        found["TOOLKIT_TIMEOUT"] = str(timeout)
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # else Open MPI refuses root
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found


def _mpirun() -> str:
    """That of this environment's MPI, or else the one on the path."""
    own = Path(sys.executable).parent / "mpirun"
    found = str(own) if own.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchError(
            "run: --processes needs MPI, and there is no mpirun: "
            "pip install 'toolkit[mpi]'"
        )
    return found


def _is_open_mpi(path: str) -> bool:
    told = subprocess.run([path, "--version"], capture_output=True, text=True)
    return "Open MPI" in told.stdout or "PRRTE" in told.stdout
