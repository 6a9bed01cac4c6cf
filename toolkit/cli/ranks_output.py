"""What the processes of a job print, each line with the rank that printed it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast

from toolkit.comm.loopback import NETWORK, limit_listeners
from toolkit.comm.watch import KILL

# As launchers mark it: "[1,0]<stdout>: " is Open MPI's, "[0] " is MPICH's.
_TAG = re.compile(rb"\[(?:\d+,)?(\d+)\](?:<std(?:out|err)>:)? ?")
_RULE = re.compile(rb"-{60,}\s*$")
# Open MPI's words on what `toolkit.launch` has explained better.
_NEEDLESS = re.compile(rb"MPI_ABORT was invoked|prterun has exited .* calling$", re.M)
# Exit codes after which a job is not started again: SIGINT and SIGTERM ended it.
_ASKED = (130, 143)
# Seconds for mpirun to end its processes after an interruption.
_GRACE = 5
# Seconds between two looks at the launcher, in which it starts to listen, and after
# which it hangs: it has not ended, though the job has.
_LOOK, _STARTS, _HANGS = 0.05, 10.0, 15.0


def run_job(
    command: Sequence[str], environment: dict[str, str], restarts: int = 0
) -> int:
    """Run a launcher, pass on what its processes print, and return its exit code.

    SIGTERM and Ctrl-C reach the launcher, which ends the processes.

    Args:
        command: of the launcher.
        environment: of all processes.
        restarts: how often it is run again where a process was lost; an exception, or
            an exit code that is not 0, in the script is none.
    """
    with TemporaryDirectory(prefix="toolkit-") as folder:
        outcome = Path(folder, "outcome")
        environment = {**environment, "TOOLKIT_OUTCOME": str(outcome)}
        if restarts:
            environment["TOOLKIT_SNAPSHOTS"] = str(Path(folder, "snapshots"))
        for left in range(restarts, -1, -1):
            code = _run(command, environment, outcome)
            told, *_ = _read(outcome)
            if told == "ended":  # Open MPI's code may be that of one that was lost
                return 0
            if not (code and left) or told == "failed" or code in _ASKED:
                break
            outcome.unlink(missing_ok=True)
            print(
                f"toolkit: a process was lost, exit code {code}; the job starts again, "
                f"{left - 1} of {restarts} times left",
                file=sys.stderr,
                flush=True,
            )
        return code


def _read(outcome: Path) -> tuple[str, int, list[int]]:
    """Return how a job has ended, its exit code, and its processes."""
    if not outcome.exists():
        return "", 0, []
    told, *numbers = outcome.read_text("utf-8").split()
    code, *processes = map(int, numbers)
    return told, code, processes


def _run(command: Sequence[str], environment: dict[str, str], outcome: Path) -> int:
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    threads = [
        threading.Thread(target=pass_on, args=streams, daemon=True)
        for streams in (
            (cast(BufferedReader, process.stdout), sys.stdout.buffer),
            (cast(BufferedReader, process.stderr), sys.stderr.buffer),
        )
    ]
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        for thread in threads:
            thread.start()
        code = _wait(process, outcome, NETWORK in command)
    except KeyboardInterrupt:
        process.wait(_GRACE)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            process.kill()
        for thread in threads:
            thread.join(1)
    # As shells say that a signal ended it.
    return 128 - code if code < 0 else code


def _wait(process: subprocess.Popen[bytes], outcome: Path, is_on_loopback: bool) -> int:
    """Wait for a launcher, and end it and its processes if it hangs after an outcome.

    Args:
        process: the launcher.
        outcome: the file in which a process of the job writes how the job ends.
        is_on_loopback: whether it is a launcher of Open MPI, for one machine.
    """
    start, ended = time.monotonic(), float("inf")
    limited: set[str] = set()
    while True:
        now = time.monotonic()
        if is_on_loopback and now - start < _STARTS:
            # Launchers of other machines would connect, and there are none.
            limit_listeners(process.pid, limited, is_closed=True)
        if outcome.exists():
            ended = min(ended, now)
        if now - ended > _HANGS:
            _, code, processes = _read(outcome)
            for number in (*processes, process.pid):
                with suppress(OSError):
                    os.kill(number, KILL)
            process.wait()
            return code
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK)


def pass_on(source: BufferedReader, target: BinaryIO) -> None:
    """Copy lines as they come, until the source ends."""
    for part in without_notices(_lines(source)):
        target.write(part)
        target.flush()


def _lines(source: BufferedReader) -> Iterator[bytes]:
    """Lines, and what a progress bar draws over itself, each with its end."""
    rest = b""
    while part := source.read1(1 << 16):
        *whole, rest = re.split(rb"(?<=[\r\n])", rest + part)
        yield from whole
    if rest:
        yield rest


def without_notices(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with short tags, without the launcher's notices that tell nothing new.

    A rule is held back until the line below it shows whether a notice begins there.
    """
    held: dict[bytes, bytes] = {}
    dropping: dict[bytes, bool] = {}
    for line in lines:
        found = _TAG.match(line)
        rank = found[1] if found else b""
        body = line[found.end() :] if found else line
        tag = rank + b": " if found else b""
        is_rule = bool(_RULE.match(body))
        if dropping.get(rank):
            dropping[rank] = not is_rule
        elif rank in held:
            rule = held.pop(rank)
            dropping[rank] = bool(_NEEDLESS.match(body))
            if not dropping[rank]:
                yield rule + tag + body
        elif is_rule:
            held[rank] = tag + body
        elif body.strip() or rank not in dropping:
            yield tag + body
    yield from held.values()
