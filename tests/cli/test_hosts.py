"""Tests of `toolkit run --hosts`, with a program `ssh` that runs commands here."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_ranks import assert_end
from tests.comm import ranks
from toolkit.cli.hosts import Host, parse_hosts

# Two names of this machine, so that the ranks connect as those of two machines.
HOSTS = "127.0.0.2,127.0.0.3:2"
# It records its arguments. Its last argument is the command for the shell of the host.
SSH = """#!/bin/sh
printf '%s\\n' "$@" >> "$0.log"
while [ $# -gt 2 ]; do shift; done
echo "motd of $1"
cd /
exec sh -c "$2"
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def ssh(tmp_path):
    """Return the path of the program, which is the first `ssh` of PATH."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    return program


def command(folder, source, *arguments, hosts=HOSTS, options=()):
    (folder / "script.py").write_text(source)
    start = [sys.executable, "-P", "-m", "toolkit", "run", "--hosts", hosts, *options]
    return [*start, "script.py", *arguments]


def start(folder, ssh, *arguments, **options):
    path = os.pathsep.join([str(ssh.parent), os.environ["PATH"]])
    return subprocess.Popen(
        command(folder, *arguments, **options),
        env=ranks.environment_of(PATH=path, TOOLKIT_FLOATX="float64"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder, ssh, *arguments, **options):
    """Run a script on the hosts; return its exit code, output and errors."""
    with start(folder, ssh, *arguments, **options) as process:
        output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


SCRIPT = """
import os, sys
from pathlib import Path
import toolkit
from toolkit import comm

group = comm.world()
assert comm.exchange(group, group.rank) == list(range(group.size))
words = Path.cwd().name, sys.argv, toolkit.config.floatx(), sys.stdin.read()
variables = [n for n in os.environ if n.startswith(("TOOLKIT_JOB", "TOOLKIT_RANK"))]
print(group.rank, group.size, os.environ["TOOLKIT_NUM_THREADS"], *words, variables)
"""


def test_ranks_of_two_hosts(tmp_path, ssh):
    code, output, errors = run(tmp_path, ssh, SCRIPT, "--x")
    assert code == 0, errors
    lines = sorted(output.splitlines(), key=lambda line: "motd" not in line)
    motds = [f"{host}: motd of {host}" for host in ("127.0.0.2", "127.0.0.3")]
    assert sorted(lines[:2]) == motds
    cores = len(os.sched_getaffinity(0))
    for rank, line in enumerate(sorted(lines[2:])):
        threads = cores if rank == 0 else max(1, cores // 2)
        words = f"{tmp_path.name} ['script.py', '--x'] float64  []"
        assert line.endswith(words), line
        assert line.startswith(f"{rank}: {rank} 3 "), line
        assert int(line.split()[3]) <= threads
    assert len(lines) == 5


def test_ranks_of_each_host_have_its_gpus(tmp_path, ssh):
    """The variables of the driver are those of the host, and not of the launcher."""
    gpus = 'case "$2" in *.2) gpus=5,7;; *) gpus=0,3;; esac'
    gpus = gpus.replace("$2", "$1") + "\nexport CUDA_VISIBLE_DEVICES=$gpus\n"
    ssh.write_text(SSH.replace("cd /\n", f"cd /\n{gpus}"))
    source = """
import os
from toolkit import comm
print(comm.world().rank, os.environ["CUDA_VISIBLE_DEVICES"])
"""
    code, output, errors = run(tmp_path, ssh, source, hosts="127.0.0.2:2,127.0.0.3:2")
    assert code == 0, errors
    lines = sorted(line for line in output.splitlines() if "motd" not in line)
    assert lines == ["0: 0 5", "1: 1 7", "2: 2 0", "3: 3 3"]


def test_default_number_of_processes(tmp_path, ssh):
    code, output, errors = run(
        tmp_path, ssh, SCRIPT, hosts="localhost", options=["--processes", "2"]
    )
    assert code == 0, errors
    assert [line[:6] for line in sorted(output.splitlines())[:2]] == [
        "0: 0 2",
        "1: 1 2",
    ]


def test_no_command_line_has_the_secret(tmp_path, ssh):
    # Before the script, the rank has removed its variables; this reads the first ones.
    source = """
from pathlib import Path
variables = Path("/proc/self/environ").read_bytes().decode().split(chr(0))
secret = dict(v.split("=", 1) for v in variables if v)["TOOLKIT_JOB_SECRET"]
commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")]
assert len(secret) == 64
assert not any(secret.encode() in command for command in commands)
print("secret", secret)
"""
    code, output, errors = run(tmp_path, ssh, source, hosts="localhost:2")
    assert code == 0, errors
    secret = output.split()[-1]
    log = Path(f"{ssh}.log").read_text(encoding="utf-8")
    assert secret not in log
    assert log.splitlines()[:4] == ["-T", "-o", "BatchMode=yes", "localhost"]


def test_failing_rank_ends_all_hosts(tmp_path, ssh):
    source = "from toolkit import comm\ncomm.world().barrier()\n"
    source += "if comm.world().rank == 2: raise KeyError('x')\ncomm.world().barrier()\n"
    code, _, errors = run(tmp_path, ssh, source)
    assert code == 1
    assert errors.count("Traceback") == 1 and "2: KeyError: 'x'" in errors


def test_exit_code_of_a_script_is_no_code_of_ssh(tmp_path, ssh):
    source = (
        "import sys\nfrom toolkit import comm\ncomm.world().barrier()\nsys.exit(127)"
    )
    code, _, errors = run(tmp_path, ssh, source)
    assert code == 127
    assert "has failed, exit code 127" in errors and "cannot start" not in errors


WAITING = """
import os, time
from toolkit import comm

comm.world().barrier()
print("pids", os.getpid(), os.getppid(), flush=True)
if comm.world().rank:
    comm.world().barrier()
time.sleep(60)
"""


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_no_remote_process_remains(tmp_path, ssh, number, code):
    with start(tmp_path, ssh, WAITING) as launcher:
        pids = []
        while len(pids) < 6:
            line = launcher.stdout.readline()
            assert line, launcher.stderr.read()
            pids += map(int, line.partition("pids ")[2].split())
        os.kill(launcher.pid, number)
        _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == code, errors
    assert_end(pids)


def test_rank_that_a_signal_ends(tmp_path, ssh):
    with start(tmp_path, ssh, WAITING) as launcher:
        pids = []
        while len(pids) < 6:
            line = launcher.stdout.readline()
            pids += map(int, line.partition("pids ")[2].split())
        os.kill(pids[0], signal.SIGKILL)
        _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == 137
    assert "toolkit: SIGKILL ended rank " in errors
    assert_end(pids)


@pytest.mark.parametrize(
    "replacement, code, words",
    [
        ("exit 255", 255, "Check that this command needs no password: ssh"),
        ("exit 127", 127, "expected Python at the same path on each host"),
        ('exec sh -c "$2" < /dev/null', 3, "before it has sent the ranks"),
    ],
)
def test_host_that_cannot_start_its_ranks(tmp_path, ssh, replacement, code, words):
    """The other host waits for the ranks, and ends."""
    program = SSH.replace("cd /", f'if [ "$1" = 127.0.0.3 ]; then {replacement}; fi')
    ssh.write_text(program)
    result, _, errors = run(tmp_path, ssh, SCRIPT)
    assert result == code
    assert words in errors and "127.0.0.3" in errors
    assert "Exception in thread" not in errors


def test_host_without_the_working_folder(tmp_path, ssh):
    ssh.write_text(SSH.replace("cd /", f"mv {tmp_path}/work {tmp_path}/renamed"))
    (tmp_path / "work").mkdir()
    code, _, errors = run(tmp_path / "work", ssh, SCRIPT, hosts="localhost")
    assert code == 3
    assert "expected the working folder of the launcher" in errors


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("a", [Host("a", None)]),
        ("a:2,me@b.c:1", [Host("a", 2), Host("me@b.c", 1)]),
        ("[fe80::1]:3", [Host("[fe80::1]", 3)]),
    ],
)
def test_parse_hosts(text, hosts):
    assert parse_hosts(text) == hosts


def test_addresses_of_hosts():
    addresses = [host.address for host in parse_hosts("me@a:2,[fe80::1]:3")]
    assert addresses == ["a", "fe80::1"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "expected hosts as NAME or NAME:PROCESSES"),
        ("a,,b", "received ''"),
        ("a:0", "received 'a:0'"),
        ("-oProxyCommand=x", "received '-oProxyCommand=x'"),
        ("a;rm", "received 'a;rm'"),
        ("a,b,a:2", "received 'a' twice"),
        ("localhost,b", "a name that the other hosts can connect to"),
    ],
)
def test_invalid_hosts(text, words):
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        parse_hosts(text)


@pytest.mark.parametrize(
    "option", ["--elastic", "--restarts 2", "--mpi auto", "--keras"]
)
def test_options_of_one_machine(tmp_path, ssh, option):
    code, _, errors = run(tmp_path, ssh, SCRIPT, options=option.split())
    assert code == 1
    assert f"--hosts does not support {option.split()[0]}" in errors
