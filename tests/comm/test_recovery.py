"""Tests of jobs whose remaining ranks continue after the loss of a rank."""

import pytest

from tests.comm import ranks


def run(folder, engine, source, *arguments, timeout):
    """Run Python source as an elastic job of three ranks."""
    flags = [*ranks.FLAGS[engine], "--elastic", "--timeout", str(timeout)]
    command = ranks.toolkit_command(folder, 3, source, *arguments, flags=flags)
    return ranks.start(command)


RECOVERING = """
import os, signal, sys, time
import numpy as np
from toolkit import comm

world = comm.world()
first_rank = str(world.rank)
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
left = comm.exchange(world, first_rank)
out = np.empty(3)
leaves = comm.Leaves.of_rows(world.size, world.size)
comm.all_reduce(world, [[np.ones(3)]], leaves, [out])
print("goes on", world.rank, world.size, left, out[0], time.monotonic() - began)
"""


@ranks.for_engines
@pytest.mark.parametrize(
    "how, victim", [("SIGKILL", 0), ("SIGKILL", 2), ("SIGSTOP", 1)]
)
def test_elastic_job_continues_without_a_rank(tmp_path, engine, how, victim):
    process = run(tmp_path, engine, RECOVERING, how, str(victim), timeout=2)
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


@ranks.for_engines
def test_threads_leave_groups_of_the_former_world(tmp_path, engine):
    process = run(tmp_path, engine, WAITING, timeout=5)
    assert (process.code, process.out.count("left")) == (0, 1), process.errors


@ranks.for_engines
def test_a_job_that_is_not_elastic_cannot_recover(tmp_path, engine):
    source = "from toolkit import comm; comm.recover()"
    flags = ranks.FLAGS[engine]
    process = ranks.start(ranks.toolkit_command(tmp_path, 2, source, flags=flags))
    assert process.code == 1
    assert "--elastic" in process.errors and process.errors.count("Traceback") == 1
    assert "MPI_ABORT" not in process.errors
