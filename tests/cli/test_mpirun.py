"""Tests of the launcher and the options that start a job."""

import os
import subprocess
import sys

import pytest

from tests.comm import ranks
from toolkit.cli import mpirun
from toolkit.comm.launchers import launch_environment, rank_command
from toolkit.errors import LaunchError

OPEN_MPI = mpirun.Launcher("/env/mpirun", "openmpi", 5, True)
DEBIAN = mpirun.Launcher("/usr/bin/mpirun", "openmpi", 4, False)
MPICH = mpirun.Launcher("/usr/bin/mpirun.mpich", "mpich", 4, False)


@pytest.fixture
def install_launchers(monkeypatch):
    def install(*launchers):
        monkeypatch.setattr(mpirun, "_list_launchers", lambda: launchers)

    return install


def test_options_of_each_library(install_launchers):
    launch = rank_command(["train.py", "--x"])
    assert launch[0] == sys.executable and launch[-2:] == ["train.py", "--x"]
    install_launchers(OPEN_MPI)
    command = mpirun.launch_command(2, ["train.py", "--x"])
    assert (
        command[:3] == ["/env/mpirun", "-n", "2"] and command[-len(launch) :] == launch
    )
    assert "ob1" in command and "ulfm" not in command
    assert "ulfm" in mpirun.launch_command(2, [], elastic=True)
    install_launchers(DEBIAN)
    command = mpirun.launch_command(2, [])
    assert "--tag-output" in command and "ob1" not in command
    install_launchers(MPICH)
    command = mpirun.launch_command(4, ["train.py", "--x"])
    assert command == [MPICH.path, "-n", "4", "-prepend-rank", *launch]


def test_windows_launchers_have_other_names(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(mpirun, "find_program", lambda name: f"C:/{name}.exe")
    process = subprocess.CompletedProcess([], 1, stdout="")
    monkeypatch.setattr(mpirun.subprocess, "run", lambda *a, **k: process)
    monkeypatch.setattr(sys, "executable", "C:/python/python.exe")
    command = mpirun.launch_command(2, ["train.py"])
    assert command[:4] == ["C:/mpiexec.exe", "-n", "2", sys.executable]


def test_requested_library_is_used(install_launchers):
    install_launchers(OPEN_MPI, MPICH)
    assert mpirun.find_launcher() == OPEN_MPI
    assert mpirun.find_launcher("mpich") == MPICH
    install_launchers(DEBIAN, OPEN_MPI)
    assert mpirun.find_launcher(elastic=True) == OPEN_MPI


@pytest.mark.parametrize(
    "launchers, requested, words",
    [
        ((), {}, r"--mpi auto needs MPI, and there is no mpirun.*\[mpi\]"),
        ((OPEN_MPI,), {"library": "mpich"}, r"only /env/mpirun \(openmpi 5\)"),
        ((DEBIAN,), {"elastic": True}, "--elastic needs Open MPI 5.*openmpi 4"),
        ((MPICH,), {"elastic": True, "library": "mpich"}, "with MPICH a job ends"),
    ],
)
def test_missing_launcher_is_named(install_launchers, launchers, requested, words):
    install_launchers(*launchers)
    with pytest.raises(LaunchError, match=words):
        mpirun.find_launcher(**requested)


@pytest.mark.parametrize(
    "output, library, version",
    [
        ("mpirun (Open MPI) 5.0.11\n", "openmpi", 5),
        ("HYDRA build details:\n    Version:      4.0.2\n", "mpich", 4),
        ("srun 1", "", 0),
    ],
)
def test_launcher_is_identified_by_its_version(monkeypatch, output, library, version):
    process = subprocess.CompletedProcess([], 0, stdout=output)
    monkeypatch.setattr(mpirun.subprocess, "run", lambda *a, **k: process)
    assert mpirun._identify_launcher("/x", False) == ("/x", library, version, False)


def test_the_environment_of_a_job(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    variables = launch_environment(3, 2.5, elastic=True)
    assert variables["TOOLKIT_PROCESSES"] == "3"
    assert (variables["TOOLKIT_TIMEOUT"], variables["TOOLKIT_ELASTIC"]) == ("2.5", "1")
    assert variables["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


@pytest.mark.parametrize(
    "options", [["--elastic"], ["--timeout", "3"], ["--mpi", "openmpi"]]
)
def test_job_options_need_processes(options, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    command = [sys.executable, "-m", "toolkit", "run", *options, str(script)]
    process = ranks.start(command)
    assert process.code == 1
    assert f"{options[0]} needs --processes" in process.errors
