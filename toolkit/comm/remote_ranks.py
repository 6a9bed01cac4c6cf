"""Ranks of one host of a job, which `toolkit run --hosts` starts by ssh.

The process that ssh starts runs no code of the user. Its input has the description of
the ranks, with the secret of the job, and is open until the ranks must end. So no rank
remains if the launcher, ssh or the connection ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toolkit.comm.rank_processes import RankProcesses
from toolkit.comm.sockets.rendezvous import is_loopback
from toolkit.definitions.records import record
from toolkit.processes import clean_environment
from toolkit.release import VERSION

# A line of the input: the launcher has received Ctrl-C.
INTERRUPT = b"interrupt\n"
# Exit code if the ranks cannot start on this host; a message has the reason.
UNSUITABLE_HOST = 3


@record
class RemoteRanks:
    """Description of the ranks of one host, which the launcher sends.

    Attributes:
        ranks: the ranks of the host.
        command: the command of each rank.
        folder: the working folder.
        variables: the environment variables of the job, with its secret.
        address: the host of rank 0.
        port: the port of rank 0; 0 on the host of rank 0, which chooses a free port.
        token: a random word. It starts a line with the port, which reports the start.
        version: the version of toolkit.
    """

    ranks: Sequence[int]
    command: Sequence[str]
    folder: str
    variables: Mapping[str, str]
    address: str
    port: int
    token: str
    version: str = VERSION

    def to_line(self) -> bytes:
        """Return the description as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main(arguments: Sequence[str]) -> int:
    """Run the ranks that the input describes, and return their exit code.

    Args:
        arguments: has no effect, because the command line of a process is public.
    """
    control = open(0, "rb", buffering=0, closefd=False)
    description = _read_description(control.readline())
    if isinstance(description, str):
        print(f"toolkit: {description}", file=sys.stderr, flush=True)
        return UNSUITABLE_HOST
    port = description.port
    if not port:
        port = _find_free_port(description.address)
    print(description.token, port, flush=True)
    address = description.address
    host = f"[{address}]" if ":" in address else address
    job = RankProcesses(
        description.command,
        clean_environment(**description.variables)
        | {
            "TOOLKIT_JOB_ADDRESS": f"{host}:{port}",
            "TOOLKIT_LOCAL_PROCESSES": str(len(description.ranks)),
        },
        folder=None,
        choose_input=lambda _: subprocess.DEVNULL,
    )

    def follow_launcher() -> None:
        while line := control.readline():
            if line == INTERRUPT:
                job.interrupt()
        job.end()

    threading.Thread(target=follow_launcher, daemon=True).start()
    with job.end_at_sigterm():
        return job.run(description.ranks)


def _read_description(line: bytes) -> RemoteRanks | str:
    """Return the description in a line of JSON, or the reason why it cannot be used."""
    if not line:
        return "the launcher has ended before it has sent the ranks of this host"
    fields: dict[str, Any] = json.loads(line)
    if fields.get("version") != VERSION:
        return (
            f"expected version {fields.get('version')} of toolkit, as on the host of "
            f"the launcher; received version {VERSION} in {os.path.dirname(__file__)}"
        )
    description = RemoteRanks(**fields)
    try:
        os.chdir(description.folder)
    except OSError as error:
        return (
            f"expected the working folder of the launcher, {description.folder!r}, on "
            f"each host: {error.strerror}"
        )
    return description


def _find_free_port(address: str) -> int:
    """Return a port at which no process of this host listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1" if is_loopback(address) else "", 0))
        port: int = probe.getsockname()[1]
        return port
