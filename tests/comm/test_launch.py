"""Tests of jobs in which a rank fails, stops or exits: all end, and one reports why."""

import pytest

from tests.comm import ranks
from toolkit import launch

SCRIPT = """
import os, signal, sys, time
import numpy as np
from toolkit import comm

group = comm.world()
comm.exchange(group, "all are here")
is_last = group.rank == group.size - 1


def how_it_ends(how):
    if how == "all raise":
        raise KeyError("each of us")
    if how == "differ":
        comm.compare_programs(group, ["one", "two" if is_last else "three"])
    if how == "late" and is_last:
        time.sleep(1)
    if how == "other, one late" and group.rank == 1:
        time.sleep(0.3)
    if not is_last:
        return
    if how == "raise":
        raise KeyError("mine alone")
    if how.startswith("exit"):
        sys.exit(int(how.removeprefix("exit ")))
    if how == "message":
        sys.exit("this is why")
    if how == "_exit":
        os._exit(5)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
    if how == "sleep":
        time.sleep(100)
    if how.startswith("other"):
        with comm.named("another"):
            group.broadcast(np.zeros(3))


how_it_ends(sys.argv[1])
if sys.argv[1] != "late":
    with comm.named("gradients of dense_1"):
        group.barrier()
print("end of", group.rank, flush=True)
"""


def run(engine, folder, how, **variables):
    return ranks.run_ranks(
        folder, 3, SCRIPT, how, engine=engine, timeout=40, **variables
    )


@ranks.for_engines_each_day
@pytest.mark.parametrize("how", ["well", "late"])
def test_normal_exit_waits_for_all_ranks(engine, tmp_path, how):
    process = run(engine, tmp_path, how)
    assert (process.code, process.out.count("end of")) == (0, 3), process.errors


@ranks.for_engines_each_day
@pytest.mark.parametrize(
    "how, code, words",
    [
        ("raise", 1, "KeyError: 'mine alone'"),
        ("all raise", 1, "KeyError: 'each of us'"),
        ("differ", 1, "first in line 2: ranks 0, 1: 'three'; rank 2: 'two'"),
    ],
)
def test_exception_ends_all_ranks_with_one_traceback(
    engine, tmp_path, how, code, words
):
    process = run(engine, tmp_path, how)
    assert process.code == code
    assert process.errors.count("Traceback") == 1
    assert words in process.errors
    assert "toolkit/launch.py" not in process.errors  # the script's frames only
    assert "end of" not in process.out


@ranks.for_engines_each_day
@pytest.mark.parametrize(
    "how, code, words",
    [
        ("exit 3", 3, "rank 2 has failed, exit code 3"),
        ("message", 1, "this is why"),
        ("_exit", 5, ""),
        ("SIGKILL", 128 + 9, ""),
        ("SIGTERM", 128 + 15, ""),
        ("SIGSEGV", 128 + 11, ""),
    ],
)
@pytest.mark.one_in(2)
def test_exit_codes_and_signals_end_all_ranks(engine, tmp_path, how, code, words):
    process = run(engine, tmp_path, how)
    assert process.code == code
    assert words in process.errors
    assert "Traceback" not in process.errors
    assert "end of" not in process.out


@ranks.for_engines_each_day
@pytest.mark.parametrize(
    "how, words",
    [
        ("SIGSTOP", "rank 2 does not respond: it is stopped"),
        ("sleep", "rank 2 is missing: it left collective 2"),
    ],
)
@pytest.mark.one_in(2)
def test_collective_timeout_names_the_collective(engine, tmp_path, how, words):
    process = run(engine, tmp_path, how, TOOLKIT_TIMEOUT="2")
    assert process.code == 124
    assert words in process.errors, process.errors
    assert (
        "collective 3 (barrier of 0 bytes, for gradients of dense_1)" in process.errors
    )
    # On a busy machine a rank may not receive the report of another rank in time.
    assert process.errors.count("has waited for 2.") in (1, 2)  # one rank reports
    if how == "sleep":
        assert "time.sleep(100)" in process.errors


@ranks.needs_mpi
def test_collective_timeout_names_the_other_collective(tmp_path):
    process = run("mpi", tmp_path, "other", TOOLKIT_TIMEOUT="2")
    assert process.code == 124
    assert "is in another operation" in process.errors


@pytest.mark.parametrize("how", ["other", "other, one late"])
def test_different_collectives_in_shared_memory_are_an_error(tmp_path, how):
    process = run("sockets", tmp_path, how)
    assert process.code == 1
    assert "rank 1 runs barrier; rank 2 runs all_gather of 24 bytes" in process.errors
    assert process.errors.count("Traceback") == 1


@ranks.for_engines_each_day
def test_a_job_ends_at_once_if_a_script_ends_before_a_collective(engine, tmp_path):
    process = run(engine, tmp_path, "exit 0")  # no collective has a timeout
    assert process.code == 124
    assert "rank 2 is missing: its script has ended" in process.errors
    assert "all ranks must make this call; rank" in process.errors
    assert "barrier()" in process.errors  # the line of the script that waits


def test_missing_script_is_reported(tmp_path):
    process = ranks.start([ranks.sys.executable, "-m", "toolkit.launch", "none.py"])
    assert process.code == launch.WRONG_USAGE
    assert "there is no file 'none.py'" in process.errors


def test_one_rank_needs_no_mpi(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], __name__); sys.exit(4)")
    command = [ranks.sys.executable, "-m", "toolkit.launch", str(script), "--x", "1"]
    process = ranks.start(command)
    assert (process.code, process.out) == (4, "['--x', '1'] __main__\n")


def test_a_traceback_without_a_job(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def f():\n    raise ValueError('here')\nf()\n")
    process = ranks.start([ranks.sys.executable, "-m", "toolkit.launch", str(script)])
    assert process.code == 1
    assert process.errors.startswith("Traceback")
    assert "launch.py" not in process.errors and "ValueError: here" in process.errors


@pytest.mark.parametrize(
    "status, code", [(None, 0), (0, 0), (3, 3), (256, 1), (-1, 255), ("why", 1)]
)
def test_exit_codes(status, code):
    assert launch.exit_code(status) == code


@pytest.mark.parametrize("variables, ranks_here", [("4", 4), ("2(x3)", 2), ("x", 1)])
def test_threads_are_divided_between_local_ranks(monkeypatch, variables, ranks_here):
    for name in launch._LOCAL_RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launch.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", variables)
    assert launch.threads_of_rank() == 8 // ranks_here


def test_bound_rank_uses_its_cores(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    cores = {0: set(range(2))}
    monkeypatch.setattr(
        launch.os, "sched_getaffinity", lambda pid: cores.get(pid, set(range(8)))
    )
    assert launch.threads_of_rank() == 2
