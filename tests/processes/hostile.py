"""A folder with files that must not run, and programs that start children in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = (
    *("struct", "json", "pickle", "runpy", "random", "socket", "sitecustomize"),
    *("usercustomize", "toolkit", "numpy", "h5py", "mpi4py", "ziglang", "cudnn"),
    *("ml_dtypes", "llvmlite", "multiprocessing", "cloudpickle"),
)
PROGRAMS = (
    *("cc", "gcc", "clang", "ld", "ld.lld", "wasm-ld", "as", "collect2", "zig"),
    *("mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"),
    *("prted", "prterun", "ssh", "nvidia-smi", "uname", "python", "python3", "sh"),
)
MARK = "ran-"  # the prefix of the names of files that hostile files write


@pytest.fixture
def hostile(tmp_path):
    """Return a folder whose modules and programs leave a file when they run."""
    folder = tmp_path / "hostile"
    for path in (folder, folder / "relative"):
        path.mkdir()
        for name in MODULES:
            (path / f"{name}.py").write_text(
                f"open({str(folder / MARK)!r} + {name!r}, 'w').close()\n"
                f"raise SystemExit('{name} of the current folder was imported')\n"
            )
        for name in PROGRAMS:
            program = path / name
            program.write_text(f"#!/bin/sh\n: > '{folder}/{MARK}{name}'\nexit 9\n")
            program.chmod(0o755)
    return folder


def what_ran(folder):
    """Return the names of the hostile files that ran."""
    return sorted(p.name.removeprefix(MARK) for p in folder.glob(f"{MARK}*"))


def variables():
    """Return search paths that contain the current folder in all spellings."""
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": os.pathsep.join(["", ".", "relative", path]),
        "LD_LIBRARY_PATH": os.pathsep.join(["", "."]),
        "LIBRARY_PATH": os.pathsep.join(["", "."]),
    }


def start(command, folder, timeout=240, **options):
    """Run a command in a folder with these search paths."""
    environment = {**os.environ, "TOOLKIT_NUM_THREADS": "1", **variables(), **options}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def run_program(source, folder, clean, **options):
    """Run a program of another folder, which enters the hostile one.

    PYTHONPATH contains the hostile folder, too, and its children inherit it.
    """
    clean.mkdir(exist_ok=True)
    program = clean / "program.py"
    program.write_text(
        "import os, sys\n"
        "import toolkit\n"
        "os.environ['PYTHONPATH'] = os.pathsep.join(['', '.', 'relative'])\n"
        f"os.chdir({str(folder)!r})\n" + source
    )
    return start([sys.executable, str(program)], clean, **options)


def console():
    """Return the command `toolkit` of this environment."""
    return str(Path(sys.executable).with_name("toolkit"))
