"""Tests of the processes that `toolkit run` starts: signals, output and their end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.comm import ranks

WAITING = """
import os, sys, time
from toolkit import comm

comm.exchange(comm.world(), "all are here")
print("pid", os.getpid(), flush=True)
if sys.argv[1] == "collective" and comm.world().rank:
    comm.world().barrier()
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


def start(folder, *arguments):
    """Start a job of two ranks; return its launcher and the processes of the ranks."""
    launcher = subprocess.Popen(
        ranks.toolkit_command(folder, 2, WAITING, *arguments),
        env=ranks.environment_of(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return launcher, [int(launcher.stdout.readline().split()[-1]) for _ in range(2)]


def assert_end(pids, seconds=8):
    """Check that processes end soon."""
    end = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text("ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("where", ["script", "collective"])
@pytest.mark.parametrize(
    "number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
@pytest.mark.one_in(2)
def test_signal_to_the_launcher_ends_all_ranks(tmp_path, number, code, where):
    launcher, pids = start(tmp_path, where)
    with launcher:
        os.kill(launcher.pid, number)
        output, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == code, errors
    assert_end(pids)


def test_terminal_sends_ctrl_c_to_all_ranks(tmp_path):
    launcher, pids = start(tmp_path, "script")
    with launcher:
        os.killpg(launcher.pid, signal.SIGINT)
        output, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == 130, errors
    # The launcher ends the other rank if one is faster.
    assert output.count("interrupted") in (1, 2)
    assert_end(pids)


def test_no_rank_remains_if_the_launcher_is_killed(tmp_path):
    launcher, pids = start(tmp_path, "collective")
    with launcher:
        launcher.kill()
        launcher.communicate(timeout=20)
    assert_end(pids)


@pytest.mark.parametrize("code", [0, 5])
def test_a_rank_that_exits_without_a_word_is_named(tmp_path, code):
    script = "import os\nfrom toolkit import comm\n"
    script += f"comm.world().barrier()\nos._exit({code} * comm.world().rank)\n"
    command = ranks.toolkit_command(tmp_path, 2, script)
    process = subprocess.run(
        command, env=ranks.environment_of(), capture_output=True, text=True, timeout=40
    )
    assert process.returncode == code
    line = "toolkit: rank 1 ended with exit code 5; the job ends\n"
    assert process.stderr.count(line) == (code == 5), process.stderr


def test_killed_rank_is_named(tmp_path):
    launcher, pids = start(tmp_path, "collective")
    with launcher:
        os.kill(pids[0], signal.SIGKILL)
        output, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == 137
    assert "SIGKILL ended rank" in errors and "Traceback" not in errors
    assert_end(pids)


CHILD = """
import subprocess, sys
from toolkit import comm

code = "from toolkit import comm; print('child of', comm.world().size)"
comm.world().barrier()
subprocess.run([sys.executable, "-c", code], check=True)
print("read", sys.stdin.read())
"""


def test_child_process_of_a_rank_is_no_rank(tmp_path):
    command = ranks.toolkit_command(tmp_path, 2, CHILD)
    process = subprocess.run(
        command,
        env=ranks.environment_of(),
        input="from the terminal",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("child of 1") == 2
    # As for MPI, the first rank reads the input.
    assert "0: read from the terminal\n" in process.stdout
    assert "1: read \n" in process.stdout
