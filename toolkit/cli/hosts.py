"""Jobs of several hosts: ssh starts the ranks of each host."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from toolkit.comm.child_processes import ChildProcesses
from toolkit.comm.launchers import rank_command
from toolkit.comm.rank_processes import INTERRUPTION_SECONDS, shell_code
from toolkit.comm.remote_ranks import INTERRUPT, RemoteRanks
from toolkit.comm.sockets.keys import SECRET_SIZE
from toolkit.comm.sockets.rendezvous import is_loopback
from toolkit.errors import LaunchError
from toolkit.processes import clean_environment, find_program, python_command

# USER@HOST:PROCESSES. An address of IPv6 has brackets. A name that starts with "-"
# would be an option of ssh.
_HOST = re.compile(
    r"(?P<name>(?:[\w.]+@)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][\w.-]*))"
    r"(?::(?P<processes>[1-9]\d*))?"
)
# Without a terminal; an ssh that needs a password fails.
_SSH_OPTIONS = ("-T", "-o", "BatchMode=yes")
# Exit codes: ssh cannot connect; a shell does not find or run the program.
_SSH_FAILED, _SHELL_FAILED = 255, (126, 127)
# Seconds for the hosts to end their ranks, and until ssh is killed.
_END_SECONDS = INTERRUPTION_SECONDS + 3.0
_POLL_SECONDS = 0.05
# Lines of ranks start with the rank. Other lines get the name of the host.
_TAG = re.compile(rb"\d+: ")


class Host(NamedTuple):
    """Host of a job.

    Attributes:
        name: its name for ssh.
        processes: the number of processes; None: the default of the job.
    """

    name: str
    processes: int | None

    @property
    def address(self) -> str:
        """Return the name at which other hosts find it."""
        return self.name.rpartition("@")[2].strip("[]")


def parse_hosts(text: str) -> list[Host]:
    """Return the hosts of a list such as `a,b:2,user@c`."""
    hosts: list[Host] = []
    for word in text.split(","):
        match = _HOST.fullmatch(word)
        if match is None:
            raise argparse.ArgumentTypeError(
                "expected hosts as NAME or NAME:PROCESSES, separated by commas, such "
                f"as a,b:2; received {word!r} in {text!r}"
            )
        count = match["processes"]
        hosts.append(Host(match["name"], None if count is None else int(count)))
    addresses = [host.address for host in hosts]
    for address in addresses:
        if addresses.count(address) > 1:
            raise argparse.ArgumentTypeError(
                f"expected each host once; received {address!r} twice. For several "
                f"processes on a host write {address}:2"
            )
    if is_loopback(addresses[0]) and len(hosts) > 1:
        raise argparse.ArgumentTypeError(
            "expected a first host with a name that the other hosts can connect to; "
            f"received {addresses[0]!r}. Write the name of this machine, for example "
            f"{os.uname().nodename if hasattr(os, 'uname') else 'its host name'}"
        )
    return hosts


def run_hosts(
    hosts: Sequence[Host],
    default_processes: int,
    script: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Run a script in processes on several hosts, and return the exit code.

    Args:
        hosts: the hosts, in the order of their ranks.
        default_processes: the number of processes of a host without a number.
        script: the path of the script and its arguments.
        environment: the environment of a job on this machine. Its variables that start
            with TOOLKIT_ are sent to the hosts.

    Raises:
        LaunchError: there is no program ssh.
    """
    ssh = find_program("ssh")
    if ssh is None:
        raise LaunchError(
            "run: --hosts needs the program ssh, and PATH has none; install OpenSSH"
        )
    counts = [host.processes or default_processes for host in hosts]
    variables = {
        name: value
        for name, value in environment.items()
        if name.startswith("TOOLKIT_")
    }
    variables["TOOLKIT_PROCESSES"] = str(sum(counts))
    variables["TOOLKIT_JOB_SECRET"] = secrets.token_hex(SECRET_SIZE)
    command = rank_command(script, on_other_host=True)
    descriptions = [
        RemoteRanks(
            ranks=list(range(sum(counts[:index]), sum(counts[: index + 1]))),
            command=command,
            folder=os.getcwd(),
            variables=variables,
            address=hosts[0].address,
            port=0,
            token=secrets.token_hex(8),
        )
        for index in range(len(hosts))
    ]
    return _HostsJob(ssh, hosts, descriptions).run()


class _HostsJob:
    """Job of several hosts, with an ssh process for each host.

    Args:
        ssh: the path of ssh.
        hosts: the hosts.
        descriptions: the ranks of each host.
    """

    def __init__(
        self, ssh: str, hosts: Sequence[Host], descriptions: Sequence[RemoteRanks]
    ) -> None:
        self._ssh, self._hosts, self._descriptions = ssh, hosts, descriptions
        self._prefixes = [f"{host.name}: ".encode() for host in hosts]
        self._children = ChildProcesses(self._forward)  # one of ssh for each host
        self._started_hosts: set[int] = set()
        self._code = 0
        self._kill_time = float("inf")

    def run(self) -> int:
        """Start the ranks of all hosts, wait for their end, return the exit code."""
        previous_handler = signal.signal(signal.SIGTERM, self._terminate)
        try:
            for index in range(len(self._hosts)):
                self._start(index)
            self._send(0, self._descriptions[0].to_line())
            self._wait()
        except KeyboardInterrupt:
            for index in list(self._children.running):
                self._send(index, INTERRUPT)
            self._kill_time = time.monotonic() + _END_SECONDS
            self._code = self._code or 128 + signal.SIGINT
            self._wait()
            raise
        finally:
            signal.signal(signal.SIGTERM, previous_handler)
            self._end()
            self._children.close()
            self._children.join_readers()
        return self._code

    def _start(self, index: int) -> None:
        """Start the process that starts the ranks of a host."""
        remote_command = python_command("toolkit.comm.remote_ranks:main")
        process = subprocess.Popen(
            [
                *(self._ssh, *_SSH_OPTIONS, self._hosts[index].name.strip("[]")),
                shlex.join(remote_command),
            ],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C in the terminal must not end ssh before the ranks.
            process_group=0,
        )
        self._children.add(index, process)

    def _forward(self, index: int, is_error: bool, line: bytes) -> None:
        """Forward a line of a host; a line with its token has a port."""
        port_line = self._descriptions[index].token.encode() + b" "
        if line.startswith(port_line) and not is_error:
            self._started_hosts.add(index)
            if index == 0:
                self._send_port(int(line.removeprefix(port_line)))
            return
        target = (sys.stderr if is_error else sys.stdout).buffer
        is_complete = _TAG.match(line) or not line.strip()
        target.write(line if is_complete else self._prefixes[index] + line)
        target.flush()

    def _send_port(self, port: int) -> None:
        """Start the ranks of the other hosts, which connect to rank 0."""
        for index in range(1, len(self._hosts)):
            description = replace(self._descriptions[index], port=port)
            self._send(index, description.to_line())

    def _send(self, index: int, line: bytes) -> None:
        """Send a line to the process of a host, if it still runs."""
        process = self._children.running.get(index)
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # the end of the process is reported
            process.stdin.write(line)
            process.stdin.flush()

    def _wait(self) -> None:
        """Wait until the processes of all hosts have ended."""
        while self._children.running:
            ended = self._children.next_end(_POLL_SECONDS)
            if ended is not None:
                self._handle_end(*ended)
            if time.monotonic() > self._kill_time:
                self._children.close()

    def _handle_end(
        self, index: int, process: subprocess.Popen[bytes], code: int
    ) -> None:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        if code and not self._code:
            self._code = shell_code(code)
            name, has_started = self._hosts[index].name, index in self._started_hosts
            reason = _describe_failure(name, code, has_started)
            print(f"toolkit: {reason}; the job ends", file=sys.stderr, flush=True)
            self._end()

    def _terminate(self, number: int, frame: object) -> None:
        """Handle SIGTERM."""
        self._code = self._code or 128 + number
        self._end()

    def _end(self) -> None:
        """End the ranks of all hosts: their processes follow the end of their input."""
        self._kill_time = min(self._kill_time, time.monotonic() + _END_SECONDS)
        for process in list(self._children.running.values()):
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()


def _describe_failure(host: str, code: int, has_started: bool) -> str:
    """Return the reason for an exit code of ssh.

    Args:
        host: the name of the host.
        code: the exit code.
        has_started: whether the host has started its ranks. A script can end with any
            code, so the codes of ssh and of the shell have a meaning before that only.
    """
    if has_started:
        connection = ", or the connection is lost" if code == _SSH_FAILED else ""
        return f"a process on host {host!r} has failed, exit code {code}{connection}"
    if code == _SSH_FAILED:
        return (
            f"ssh cannot run the processes on host {host!r}. Check that this command "
            f"needs no password: ssh -o BatchMode=yes {host} true"
        )
    if code in _SHELL_FAILED:
        return (
            f"host {host!r} cannot start {sys.executable}; expected Python at the same "
            "path on each host"
        )
    return f"host {host!r} cannot start its processes, exit code {code}"
