"""Tests of the launcher and the options that start a job."""

import subprocess
import sys

import pytest

from tests.comm import ranks
from toolkit.cli import mpirun
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
    launch = mpirun.launch_command(1, ["train.py", "--x"])
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


def test_one_process_needs_no_mpi(install_launchers):
    install_launchers()
    assert mpirun.launch_command(1, ["a.py"])[0] == sys.executable


def test_requested_library_is_used(install_launchers):
    install_launchers(OPEN_MPI, MPICH)
    assert mpirun.find_launcher() == OPEN_MPI
    assert mpirun.find_launcher("mpich") == MPICH
    install_launchers(DEBIAN, OPEN_MPI)
    assert mpirun.find_launcher(elastic=True) == OPEN_MPI


@pytest.mark.parametrize(
    "launchers, requested, words",
    [
        ((), {}, r"--processes needs MPI, and there is no mpirun.*\[mpi\]"),
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
    monkeypatch.setattr(mpirun.os, "geteuid", lambda: 0)
    variables = mpirun.launch_environment(3, 2.5, elastic=True)
    assert variables["TOOLKIT_PROCESSES"] == "3"
    assert (variables["TOOLKIT_TIMEOUT"], variables["TOOLKIT_ELASTIC"]) == ("2.5", "1")
    assert variables["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


RECOVERING = """
import os, signal, sys, time
import numpy as np
from toolkit import comm

world = comm.world()
how, victim = sys.argv[1], int(sys.argv[2])
comm.exchange(world, "all are here")
print("begins", world.rank, flush=True)
if world.rank == victim:
    os.kill(os.getpid(), getattr(signal, how))
began = time.monotonic()
try:
    for _ in range(1000):
        world.barrier()
        time.sleep(0.01)
except comm.RankLostError:
    world = comm.recover()
left = comm.exchange(world, os.environ["OMPI_COMM_WORLD_RANK"])
out = np.empty(3)
leaves = comm.Leaves.of_rows(world.size, world.size)
comm.all_reduce(world, [[np.ones(3)]], leaves, [out])
print("goes on", world.rank, world.size, left, out[0], time.monotonic() - began)
"""


@ranks.needs_mpi
@pytest.mark.parametrize(
    "how, victim", [("SIGKILL", 0), ("SIGKILL", 2), ("SIGSTOP", 1)]
)
def test_elastic_job_continues_without_a_rank(tmp_path, how, victim):
    script = tmp_path / "train.py"
    script.write_text(RECOVERING)
    command = [sys.executable, "-m", "toolkit", "run", "--processes", "3"]
    command += ["--elastic", "--timeout", "2", str(script), how, str(victim)]
    process = ranks.start(command)
    assert process.code == 0, process.errors
    survivors = [str(rank) for rank in range(3) if rank != victim]
    lines = [
        line.split(": ", 1) for line in process.out.splitlines() if "goes on" in line
    ]
    assert sorted(rank for rank, _ in lines) == survivors
    assert all(f" 2 {survivors} 2.0 " in line for _, line in lines)
    if how == "SIGSTOP":
        assert f"rank {victim} does not respond" in process.errors


WAITING = """
import os, signal, threading, time
import numpy as np
from toolkit import comm

world = comm.world()
inner = world.duplicate().split(0, world.rank)


def wait():
    try:
        inner.receive(np.empty(1), source=1)  # which is alive, but does not send
    except comm.RankLostError:
        print("left", flush=True)


thread = threading.Thread(target=wait)
if world.rank == 0:
    thread.start()
comm.exchange(world, "all are here")
if world.rank == 2:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    world.barrier()
except comm.RankLostError:
    comm.recover()
if world.rank == 0:
    thread.join()
"""


@ranks.needs_mpi
def test_threads_leave_groups_of_the_former_world(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(WAITING)
    command = [sys.executable, "-m", "toolkit", "run", "--processes", "3"]
    process = ranks.start([*command, "--elastic", "--timeout", "5", str(script)])
    assert (process.code, process.out.count("left")) == (0, 1), process.errors


@ranks.needs_mpi
def test_a_job_that_is_not_elastic_cannot_recover(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from toolkit import comm; comm.recover()")
    command = [sys.executable, "-m", "toolkit", "run", "--processes", "2", str(script)]
    process = ranks.start(command)
    assert process.code == 1
    assert "--elastic" in process.errors and process.errors.count("Traceback") == 1
    assert "MPI_ABORT" not in process.errors


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
