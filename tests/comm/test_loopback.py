"""Tests of jobs of one machine, and of unknown peers that connect to them."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.comm.ranks import environment_of, needs_mpi
from toolkit.cli import mpirun, ranks_output
from toolkit.comm import loopback
from toolkit.comm.loopback import restrict_listeners, restrict_new_listeners

linux = pytest.mark.skipif(sys.platform != "linux", reason="it takes filters of Linux")


def external_address():
    """Return an address of this machine outside the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return probe.getsockname()[0]
    return "127.0.0.1"


ADDRESS = external_address()
needs_network = pytest.mark.skipif(
    ADDRESS.startswith("127."), reason="this machine has no other interface"
)


def can_connect(host, port):
    try:
        socket.create_connection((host, port), 0.5).close()
    except OSError:
        return False
    return True


@linux
@needs_network
@pytest.mark.parametrize("host", ["", "::"])
def test_only_this_machine_connects_to_a_limited_socket(host):
    family = socket.AF_INET6 if host else socket.AF_INET
    other = socket.create_server(("", 0))
    with other, restrict_new_listeners():
        try:
            listener = socket.create_server(
                (host, 0), family=family, dualstack_ipv6=bool(host)
            )
        except OSError:
            pytest.skip("there is no IPv6")
    with listener:
        port = listener.getsockname()[1]
        assert can_connect("127.0.0.1", port)
        assert not can_connect(ADDRESS, port)
        assert not host or can_connect("::1", port)


@linux
@needs_network
def test_earlier_sockets_are_unchanged():
    with socket.create_server(("", 0)) as listener:
        with restrict_new_listeners():
            pass
        assert can_connect(ADDRESS, listener.getsockname()[1])


CHILD = """
import socket, time
listener = socket.create_server(("", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


@linux
@needs_network
@pytest.mark.parametrize("is_closed", [False, True])
def test_sockets_of_a_child_process_are_limited(is_closed):
    command = [sys.executable, "-c", CHILD]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(child.stdout.readline())
        assert can_connect(ADDRESS, port)
        listeners_before = set()
        if not restrict_listeners(child.pid, listeners_before, is_closed):
            pytest.skip("the system does not allow it")
        assert restrict_listeners(child.pid, listeners_before, is_closed) == 0
        assert can_connect("127.0.0.1", port) != is_closed
        assert not can_connect(ADDRESS, port)
    finally:
        child.kill()
        child.communicate()


def test_limit_listeners_skips_inaccessible_processes():
    assert restrict_listeners(2**22 + 1, set()) == 0


# --- jobs -----------------------------------------------------------------------------

STEPS = """
import sys, time
import numpy as np
from toolkit import comm
group = comm.world()
x, y = np.zeros(4, "float32"), np.zeros(8, "float32")
print("begins", flush=True)
for _ in range(int(sys.argv[1])):
    group.all_gather(x, y)
    time.sleep(0.05)
print("done", flush=True)
"""


def listeners(process):
    """Return (address, port) of the TCP listeners of a process and its children."""
    addresses = []
    for child in (
        Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
    ):
        addresses += listeners(child)
    inodes = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            inodes.add(os.readlink(entry))
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            host, port = words[1].split(":")
            addresses.append(
                (socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16))
            )
    return addresses


def start_job(folder, source, *arguments, options=(), **variables):
    (folder / "script.py").write_text(source, "utf-8")
    command = [sys.executable, "-P", "-m", "toolkit", "run", "--processes", "2"]
    command += ["--mpi", "openmpi"]
    return subprocess.Popen(
        [*command, *options, str(folder / "script.py"), *map(str, arguments)],
        env=environment_of(TMPDIR=str(folder), **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def send_slowly(address, end):
    """Send one byte at a time to an address, repeatedly."""
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(address, 1.0) as stranger:
            while time.monotonic() < end:
                stranger.sendall(b"x")
                time.sleep(0.3)
        time.sleep(0.1)


@linux
@needs_mpi
@needs_network
@pytest.mark.parametrize("options", [(), ("--elastic", "--replace")], ids=str)
def test_unknown_peers_do_not_stop_a_local_job(tmp_path, options):
    if not loopback_is_possible():
        pytest.skip("the system does not allow it")
    with start_job(tmp_path, STEPS, 60, options=options) as job:
        while "begins" not in job.stdout.readline():
            assert job.poll() is None
        end = time.monotonic() + 40
        addresses = listeners(job.pid)
        reached = [port for host, port in addresses if can_connect(ADDRESS, port)]
        strangers = [
            threading.Thread(
                target=send_slowly, args=((ADDRESS, port), end), daemon=True
            )
            for host, port in addresses
        ]
        for stranger in strangers:
            stranger.start()
        out = job.communicate(timeout=100)[0]
        assert reached == []
        assert (job.returncode, out.count("done")) == (0, 2), out
        assert time.monotonic() < end, "it ended when the strangers left"


def loopback_is_possible():
    with socket.create_server(("", 0)) as listener:
        return loopback._attach_filter(listener, loopback._ACCEPT_LOCAL)


STOPPED = """
import os, signal, sys, time
import numpy as np
from toolkit import comm
group = comm.world()
comm.exchange(group, "all are here")
if group.rank == 0:
    os.kill(os.getppid(), signal.SIGSTOP)  # what starts the ranks hangs from now on
    if sys.argv[1] == "fail":
        raise KeyError("mine")
    if sys.argv[1] == "stall":
        time.sleep(1000)
group.barrier()
"""


@linux
@needs_mpi
@pytest.mark.parametrize(
    "how, code",
    [
        pytest.param("stall", 124, marks=pytest.mark.slow),
        ("fail", 1),
        pytest.param("end", 0, marks=pytest.mark.slow),
    ],
)
def test_hanging_launcher_does_not_block_a_job(tmp_path, how, code):
    begin = time.monotonic()
    options = ("--timeout", "3")
    with start_job(tmp_path, STOPPED, how, options=options) as job:
        out = job.communicate(timeout=90)[0]
    assert job.returncode == code, out
    assert time.monotonic() - begin < 60
    assert not [line for line in processes() if str(tmp_path) in line]


def processes():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if (
                "Z"
                not in (path.parent / "stat").read_text("utf-8").rpartition(")")[2][:4]
            ):
                yield path.read_bytes().decode("utf-8", "replace")


def test_open_mpi_receives_the_loopback_option(monkeypatch):
    monkeypatch.delenv("OMPI_MCA_btl_tcp_if_exclude", raising=False)
    launcher = mpirun.Launcher("/env/mpirun", "openmpi", 5, True)
    monkeypatch.setattr(mpirun, "_list_launchers", lambda: [launcher])
    for options, transports in [((), "self,sm"), ((True, True), "self,sm,tcp")]:
        command = mpirun.launch_command(2, ["a.py"], "auto", *options)
        assert command[command.index("btl") + 1] == transports
        assert loopback.LOOPBACK_NETWORK in command
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_exclude", "eth0")
    assert loopback.LOOPBACK_NETWORK not in mpirun.launch_command(2, ["a.py"])


def test_outcome_is_parsed(tmp_path):
    path = tmp_path / "outcome"
    assert ranks_output._read_outcome(path) == ("", 0, [])
    path.write_text("stalled 124 7 8")
    assert ranks_output._read_outcome(path) == ("stalled", 124, [7, 8])
