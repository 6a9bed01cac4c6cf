"""Test that a killed save or a full disk leaves a complete old or new checkpoint."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.comm import ranks
from tests.distribution.filled import fill, make, number_in
from toolkit.comm import local
from toolkit.distribution import Checkpoint, DataParallel, shard_files

SAVING = """
from tests.distribution.filled import fill, make, number_in
import os, sys
from pathlib import Path
from toolkit import comm
from toolkit.distribution import Checkpoint, DataParallel, set_distribution

folder = Path(sys.argv[1])
set_distribution(DataParallel(shard_optimizer=True))
model = make()
checkpoint = Checkpoint(model)
Path(f"{folder}.pid-{comm.world().rank}").write_text(str(os.getpid()))
for number in range(10_000):
    fill(model, number)
    checkpoint.save(folder / str(number), position=number, wait=number % 3 == 0)
"""


def names(folder):
    """Return the numbers of the checkpoints, and all other names."""
    entries = os.listdir(folder)
    numbers = sorted(int(name) for name in entries if name.isdecimal())
    return numbers, sorted(name for name in entries if not name.isdecimal())


def saved_until_killed(folder, seed, count=3):
    """Kill one rank, or all, during a save; return the names before the kill."""
    draw = random.Random(seed)
    script = folder.parent
    process = subprocess.Popen(
        ranks.toolkit_command(script, count, SAVING, str(folder)),
        env=ranks.environment_of(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 40
        while not (folder / "0").exists():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.5))
        pids = [int((script / f"x.pid-{r}").read_text()) for r in range(count)]
        before = names(folder)[0]
        for pid in pids if draw.random() < 0.4 else [draw.choice(pids)]:
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode != 0, out
    return before


def check(folder, before):
    """Check that all checkpoints are complete, and that a save removes the remains."""
    after, unnumbered = names(folder)
    assert set(before) <= set(after) and after == list(range(len(after)))
    model = make()
    checkpoint = Checkpoint(model, local.single())
    for number in after:
        assert shard_files.is_complete(folder / str(number))
        assert checkpoint.restore(folder / str(number)) == number
        assert number_in(model) == number
    fill(model, len(after))
    checkpoint.save(folder / str(len(after)))
    assert names(folder) == ([*after, len(after)], ["mine"])
    return unnumbered != ["mine"]


def kill_and_check(folder, seed):
    path = folder / "x"
    path.mkdir()
    (path / "mine").write_text("mine")
    before = saved_until_killed(path, seed)
    with DataParallel(
        shards=3
    ).scope():  # otherwise the message says that the bits differ
        was_saving = check(path, before)
    assert (path / "mine").read_text() == "mine"
    return was_saving


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.one_in(2)
def test_kill_leaves_complete_checkpoints(tmp_path, seed):
    kill_and_check(tmp_path, seed)


@pytest.mark.slow
def test_thirty_kills_leave_complete_checkpoints(tmp_path):
    were_saving = 0
    for seed in range(100, 130):
        folder = tmp_path / str(seed)
        folder.mkdir()
        were_saving += kill_and_check(folder, seed)
        shutil.rmtree(folder)
    assert were_saving >= 10  # otherwise the kills missed the critical moments


FULL = """
from tests.distribution.filled import fill, make, number_in
import os, resource, signal, sys
from pathlib import Path
from toolkit import comm
from toolkit.distribution import Checkpoint, DataParallel, set_distribution
from toolkit.errors import UnwritableFileError

folder, wait = Path(sys.argv[1]), sys.argv[2] == "wait"
set_distribution(DataParallel(shard_optimizer=True))
model = make()
checkpoint = Checkpoint(model)
fill(model, 1)
checkpoint.save(folder / "old")
if comm.world().rank == 1:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
fill(model, 2)
try:
    checkpoint.save(folder / "new", wait=wait)
    checkpoint.wait()
except UnwritableFileError as error:
    print(f"{comm.world().rank}: {error}", flush=True)
found = sorted(os.listdir(folder))
assert found == ["old"], found
if comm.world().rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
checkpoint.restore(folder / "old")
assert number_in(model) == 1
fill(model, 3)
checkpoint.save(folder / "new")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files")
@pytest.mark.parametrize("wait", ["wait", "no"])
@pytest.mark.one_in(2)
def test_full_disk_of_one_rank_is_reported_by_all(tmp_path, wait):
    (tmp_path / "x").mkdir()
    process = ranks.run_ranks(tmp_path, 3, FULL, str(tmp_path / "x"), wait)
    assert process.code == 0, process.errors
    lines = sorted(process.out.splitlines())
    assert [line[:2] for line in lines] == ["0:", "1:", "2:"]
    assert all("process 1: " in line and "File too large" in line for line in lines)
    assert sorted(os.listdir(tmp_path / "x")) == ["new", "old"]


LOST = """
from tests.distribution.filled import fill, make, number_in
import os, signal, sys
from pathlib import Path
from toolkit import comm
from toolkit.distribution import Checkpoint, shard_files

folder = Path(sys.argv[1])
model = make()
checkpoint = Checkpoint(model)
fill(model, 1)
checkpoint.save(folder / "old")
write = shard_files.write_boxes
if comm.world().rank == 1:
    shard_files.write_boxes = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
try:
    checkpoint.save(folder / "new")
except comm.RankLostError:
    print("lost", sorted(os.listdir(folder)), flush=True)
comm.recover()
checkpoint = Checkpoint(model)
checkpoint.restore(folder / "old")
checkpoint.save(folder / "new")
"""


def test_lost_rank_leaves_the_old_checkpoint(tmp_path):
    (tmp_path / "x").mkdir()
    command = [sys.executable, "-m", "toolkit", "run", "--processes", "3", "--elastic"]
    (tmp_path / "script.py").write_text(LOST)
    process = ranks.start([*command, str(tmp_path / "script.py"), str(tmp_path / "x")])
    assert process.out.count("lost ['old']") >= 1, process.errors
    assert sorted(os.listdir(tmp_path / "x")) == ["new", "old"]
