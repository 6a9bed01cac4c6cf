"""Launcher command for the processes of a job on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.comm.loopback import NETWORK
from toolkit.errors import LaunchError
from toolkit.processes import clean_environment, find_program, python_command

LIBRARIES = ("openmpi", "mpich")
# Names of the launchers; distributions with several libraries use suffixes.
_NAMES = ("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")
_OF_WINDOWS = ("mpiexec",)  # Microsoft's and Intel's
# Without these, Open MPI's wheel searches for networks for a second.
_ONE_MACHINE = ("--mca", "osc", "^ucx", "--mca", "btl")
# Transports between ranks of one machine. Processes that start later need TCP.
_SHARED_MEMORY, _AND_TCP = "self,sm", "self,sm,tcp"
_LOOPBACK = ("--mca", "btl_tcp_if_include", NETWORK)
# The only protocol that survives the loss of a process.
_OB1 = ("--mca", "pml", "ob1")


class Mpirun(NamedTuple):
    """MPI launcher.

    Attributes:
        path: the path of the program.
        library: "openmpi", "mpich", or "" for another library.
        version: the major version of the library; 0 if unknown.
        is_own: whether it is from a package of this environment.
    """

    path: str
    library: str
    version: int
    is_own: bool


def command_of(
    processes: int,
    script: Sequence[str],
    library: str | None = None,
    elastic: bool = False,
    replace: bool = False,
) -> list[str]:
    """Return the command that runs a script in several processes of this machine.

    Args:
        processes: the number of processes; one needs no MPI, unless the job is elastic.
        script: its path and arguments.
        library: "openmpi" or "mpich"; None uses the first available one.
        elastic: whether the job continues after the loss of a process.
        replace: whether lost processes are replaced.

    Raises:
        LaunchError: no suitable `mpirun` is available.
    """
    launch = python_command(
        "toolkit.launch:main", *script, runs_user_code=True, has_script=True
    )
    if processes == 1 and not elastic:
        return launch
    found = find(library, elastic)
    count = ["-n", str(processes)]
    if found.library == "openmpi":
        options = _open_mpi_options(found, elastic, replace)
        return [found.path, *count, *options, *launch]
    options = ["-prepend-rank"] if found.library == "mpich" else []
    return [found.path, *count, *options, *launch]


def _open_mpi_options(found: Mpirun, elastic: bool, replace: bool) -> list[str]:
    # By default it binds each of two ranks to one core, and refuses more ranks than
    # cores.
    options = ["--oversubscribe", "--bind-to", "none"]
    options += ["--output", "tag"] if found.version >= 5 else ["--tag-output"]
    if found.is_own or elastic:
        options += _OB1
    if found.is_own:
        options += [*_ONE_MACHINE, _AND_TCP if replace else _SHARED_MEMORY]
    if "OMPI_MCA_btl_tcp_if_exclude" not in os.environ:  # a conflict
        options += _LOOPBACK
    return [*options, "--with-ft", "ulfm"] if elastic else options


def environment_of(
    processes: int,
    timeout: float | None = None,
    elastic: bool = False,
    replace: bool = False,
) -> dict[str, str]:
    """Return the environment of that command."""
    found = clean_environment(TOOLKIT_PROCESSES=str(processes))
    if timeout is not None:
        found["TOOLKIT_TIMEOUT"] = str(timeout)
    if elastic:
        found["TOOLKIT_ELASTIC"] = "1"
    if replace:
        found["TOOLKIT_REPLACE"] = "1"
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Open MPI otherwise refuses root
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found


def find(library: str | None = None, elastic: bool = False) -> Mpirun:
    """Return the launcher of this environment's MPI, or else the first on the path.

    Args:
        library: the required library, if any.
        elastic: whether it must support the loss of a process.

    Raises:
        LaunchError: no launcher is available.
    """
    if library == "mpich" and elastic:
        raise LaunchError(
            "run: --elastic needs Open MPI 5; under MPICH a job ends with any process, "
            "and --restarts starts it again"
        )
    every = list(_found())
    for mpirun in every:
        is_asked = library in (None, mpirun.library)
        if is_asked and (not elastic or _can_lose(mpirun)):
            return mpirun
    what = f"--mpi {library}" if library else "--elastic" if elastic else "--processes"
    needs = "Open MPI 5" if elastic else {"mpich": "MPICH"}.get(str(library), "MPI")
    there = ", ".join(f"{m.path} ({m.library} {m.version})" for m in every)
    raise LaunchError(
        f"run: {what} needs {needs}, and there is "
        f"{f'only {there}' if there else 'no mpirun'}: pip install "
        f"{'mpi4py mpich' if library == 'mpich' else repr('toolkit[mpi]')}"
    )


def _can_lose(mpirun: Mpirun) -> bool:
    return mpirun.library == "openmpi" and mpirun.version >= 5


def _found() -> Sequence[Mpirun]:
    own = Path(sys.executable).parent / "mpirun"
    paths = [str(own)] if own.exists() else []
    names = _OF_WINDOWS if sys.platform == "win32" else _NAMES
    paths += [path for name in names if (path := find_program(name))]
    return [_described(path, path == str(own)) for path in dict.fromkeys(paths)]


def _described(path: str, is_own: bool) -> Mpirun:
    command = [path, "--version"]
    told = subprocess.run(
        command,
        env=clean_environment(),
        capture_output=True,
        text=True,
        errors="replace",
    ).stdout
    if "Open MPI" in told or "PRRTE" in told:
        number = re.search(r"\(Open MPI\) (\d+)", told)
        return Mpirun(path, "openmpi", int(number[1]) if number else 0, is_own)
    if "HYDRA" in told.upper():
        number = re.search(r"Version:\s+(\d+)", told)
        return Mpirun(path, "mpich", int(number[1]) if number else 0, is_own)
    return Mpirun(path, "", 0, is_own)
