"""Launcher command for the processes of a job on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.comm.launchers import rank_command
from toolkit.comm.loopback import LOOPBACK_NETWORK
from toolkit.errors import LaunchError
from toolkit.processes import clean_environment, find_program
from toolkit.release import install_command

LIBRARIES = ("auto", "openmpi", "mpich")
# Names of the launchers; distributions with several libraries use suffixes.
_LAUNCHER_NAMES = ("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")
_WINDOWS_LAUNCHER_NAMES = ("mpiexec",)  # Microsoft's and Intel's
# Without these, Open MPI's wheel searches for networks for a second.
_ONE_MACHINE_OPTIONS = ("--mca", "osc", "^ucx", "--mca", "btl")
# Transports between ranks of one machine. Processes that start later need TCP.
_SHARED_MEMORY_TRANSPORTS, _TCP_TRANSPORTS = "self,sm", "self,sm,tcp"
_LOOPBACK_OPTIONS = ("--mca", "btl_tcp_if_include", LOOPBACK_NETWORK)
# The only protocol that survives the loss of a process.
_OB1_OPTIONS = ("--mca", "pml", "ob1")


class Launcher(NamedTuple):
    """MPI launcher.

    Attributes:
        path: the path of the program.
        library: "openmpi", "mpich", or "" for another library.
        version: the major version of the library; 0 if unknown.
        is_in_environment: whether it is from a package of this environment.
    """

    path: str
    library: str
    version: int
    is_in_environment: bool


def launch_command(
    processes: int,
    script: Sequence[str],
    library: str = "auto",
    elastic: bool = False,
    replace: bool = False,
) -> list[str]:
    """Return the MPI command that runs a script in several processes of this machine.

    Args:
        processes: the number of processes.
        script: its path and arguments.
        library: "openmpi" or "mpich"; "auto" uses the first available one.
        elastic: whether the job continues after the loss of a process.
        replace: whether lost processes are replaced.

    Raises:
        LaunchError: no suitable `mpirun` is available.
    """
    python = rank_command(script)
    launcher = find_launcher(library, elastic)
    count = ["-n", str(processes)]
    if launcher.library == "openmpi":
        options = _open_mpi_options(launcher, elastic, replace)
        return [launcher.path, *count, *options, *python]
    options = ["-prepend-rank"] if launcher.library == "mpich" else []
    return [launcher.path, *count, *options, *python]


def _open_mpi_options(launcher: Launcher, elastic: bool, replace: bool) -> list[str]:
    # By default it binds each of two ranks to one core, and refuses more ranks than
    # cores.
    options = ["--oversubscribe", "--bind-to", "none"]
    options += ["--output", "tag"] if launcher.version >= 5 else ["--tag-output"]
    if launcher.is_in_environment or elastic:
        options += _OB1_OPTIONS
    if launcher.is_in_environment:
        options += [
            *_ONE_MACHINE_OPTIONS,
            _TCP_TRANSPORTS if replace else _SHARED_MEMORY_TRANSPORTS,
        ]
    if "OMPI_MCA_btl_tcp_if_exclude" not in os.environ:  # a conflict
        options += _LOOPBACK_OPTIONS
    return [*options, "--with-ft", "ulfm"] if elastic else options


def find_launcher(library: str = "auto", elastic: bool = False) -> Launcher:
    """Return the launcher of this environment's MPI, or else the first on the path.

    Args:
        library: the required library, or "auto".
        elastic: whether it must support the loss of a process.

    Raises:
        LaunchError: no launcher is available.
    """
    if library == "mpich" and elastic:
        raise LaunchError(
            "run: --elastic needs Open MPI 5; with MPICH a job ends if any process "
            "ends; use --restarts to start it again"
        )
    launchers = list(_list_launchers())
    for launcher in launchers:
        is_requested = library in ("auto", launcher.library)
        if is_requested and (not elastic or _can_lose_process(launcher)):
            return launcher
    option = "--elastic" if elastic and library == "auto" else f"--mpi {library}"
    requirement = "Open MPI 5" if elastic else {"mpich": "MPICH"}.get(library, "MPI")
    available = ", ".join(f"{m.path} ({m.library} {m.version})" for m in launchers)
    raise LaunchError(
        f"run: {option} needs {requirement}, and there is "
        f"{f'only {available}' if available else 'no mpirun'}: "
        f"{_install_command(library)}"
    )


def _install_command(library: str) -> str:
    mpich = library == "mpich"
    return "pip install mpi4py mpich" if mpich else install_command("mpi")


def _can_lose_process(launcher: Launcher) -> bool:
    return launcher.library == "openmpi" and launcher.version >= 5


def _list_launchers() -> Sequence[Launcher]:
    environment_path = Path(sys.executable).parent / "mpirun"
    paths = [str(environment_path)] if environment_path.exists() else []
    names = _WINDOWS_LAUNCHER_NAMES if sys.platform == "win32" else _LAUNCHER_NAMES
    paths += [path for name in names if (path := find_program(name))]
    return [
        _identify_launcher(path, path == str(environment_path))
        for path in dict.fromkeys(paths)
    ]


def _identify_launcher(path: str, is_in_environment: bool) -> Launcher:
    command = [path, "--version"]
    output = subprocess.run(
        command,
        env=clean_environment(),
        capture_output=True,
        text=True,
        errors="replace",
    ).stdout
    if "Open MPI" in output or "PRRTE" in output:
        number = re.search(r"\(Open MPI\) (\d+)", output)
        return Launcher(
            path, "openmpi", int(number[1]) if number else 0, is_in_environment
        )
    if "HYDRA" in output.upper():
        number = re.search(r"Version:\s+(\d+)", output)
        return Launcher(
            path, "mpich", int(number[1]) if number else 0, is_in_environment
        )
    return Launcher(path, "", 0, is_in_environment)
