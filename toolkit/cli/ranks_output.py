"""Output of the processes of a job, with the rank of each line."""

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
from toolkit.comm.watchdog import KILL

# Launcher tags: "[1,0]<stdout>: " is Open MPI's, "[0] " is MPICH's.
_TAG = re.compile(rb"\[(?:\d+,)?(\d+)\](?:<std(?:out|err)>:)? ?")
_RULE = re.compile(rb"-{60,}\s*$")
# Open MPI messages about failures that `toolkit.launch` explains better.
_REDUNDANT_NOTICE = re.compile(
    rb"MPI_ABORT was invoked|prterun has exited .* calling$", re.M
)
# Exit codes without a restart of the job: SIGINT and SIGTERM.
_REQUESTED_EXIT_CODES = (130, 143)
# Seconds for mpirun to end its processes after an interruption.
_GRACE = 5
# Seconds between polls of the launcher; until it listens; and until it counts as hung
# after the end of the job.
_LOOK, _STARTS, _HANGS = 0.05, 10.0, 15.0


def run_job(
    command: Sequence[str], environment: dict[str, str], restarts: int = 0
) -> int:
    """Run a launcher, forward the output of its processes, and return its exit code.

    SIGTERM and Ctrl-C reach the launcher, which ends the processes.

    Args:
        command: the launcher command.
        environment: the environment of all processes.
        restarts: the maximum number of restarts after a lost process. An exception or a
            non-zero exit code of the script does not count as a loss.
    """
    with TemporaryDirectory(prefix="toolkit-") as folder:
        outcome = Path(folder, "outcome")
        environment = {**environment, "TOOLKIT_OUTCOME": str(outcome)}
        if restarts:
            environment["TOOLKIT_SNAPSHOTS"] = str(Path(folder, "snapshots"))
        for left in range(restarts, -1, -1):
            code = _run(command, environment, outcome)
            told, *_ = _read(outcome)
            if told == "ended":  # Open MPI can return the code of a lost process
                return 0
            if not (code and left) or told == "failed" or code in _REQUESTED_EXIT_CODES:
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
    """Return the outcome of a job, its exit code, and its processes."""
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
        threading.Thread(target=forward_lines, args=streams, daemon=True)
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
    # As in shells, for a process that a signal ended.
    return 128 - code if code < 0 else code


def _wait(process: subprocess.Popen[bytes], outcome: Path, is_on_loopback: bool) -> int:
    """Wait for a launcher; if it hangs after an outcome, end it and its processes.

    Args:
        process: the launcher.
        outcome: the file in which a process of the job records the outcome.
        is_on_loopback: whether it is an Open MPI launcher on one machine.
    """
    start, ended = time.monotonic(), float("inf")
    limited: set[str] = set()
    while True:
        now = time.monotonic()
        if is_on_loopback and now - start < _STARTS:
            # Only launchers of other machines would connect, and there are none.
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


def forward_lines(source: BufferedReader, target: BinaryIO) -> None:
    """Copy lines as they arrive, until the source ends."""
    for part in without_notices(_lines(source)):
        target.write(part)
        target.flush()


def _lines(source: BufferedReader) -> Iterator[bytes]:
    """Yield lines, and redraws of a progress bar, each with its line end."""
    rest = b""
    while part := source.read1(1 << 16):
        *whole, rest = re.split(rb"(?<=[\r\n])", rest + part)
        yield from whole
    if rest:
        yield rest


def without_notices(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines with short tags, without redundant notices of the launcher.

    A separator line is held until the next line shows whether it starts a notice.
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
            dropping[rank] = bool(_REDUNDANT_NOTICE.match(body))
            if not dropping[rank]:
                yield rule + tag + body
        elif is_rule:
            held[rank] = tag + body
        elif body.strip() or rank not in dropping:
            yield tag + body
    yield from held.values()
