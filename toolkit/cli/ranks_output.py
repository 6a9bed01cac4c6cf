"""Output of the processes of a job, with the rank of each line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias, cast

from toolkit.comm.child_processes import split_lines
from toolkit.comm.loopback import LOOPBACK_NETWORK, restrict_listeners
from toolkit.comm.rank_processes import shell_code
from toolkit.comm.watchdog import KILL_SIGNAL

# Launcher tags: "[1,0]<stdout>: " is Open MPI's, "[0] " is MPICH's.
_TAG = re.compile(rb"\[(?:\d+,)?(\d+)\](?:<std(?:out|err)>:)? ?")
_SEPARATOR = re.compile(rb"-{60,}\s*$")
# Open MPI messages about failures that `toolkit.launch` explains better.
_REDUNDANT_NOTICE = re.compile(
    rb"MPI_ABORT was invoked|prterun has exited .* calling$", re.M
)
# Messages of Open MPI about a lost process, redundant if the job continues without it.
# `mpirun` reports every process that does not finalize MPI, and MPI each collective
# that fails with one of its three errors of lost processes. Its launcher can
# print one more line in a job with replacements.
_EXIT_NOTICE = re.compile(
    rb"prterun has exited due to process rank \d+ with PID \d+ on node \S+ exiting\s*$"
)
_EXIT_NOTICE_LINES = frozenset(
    line.encode()
    for line in """\
improperly. There are three reasons this could occur:
1. this process did not call "init" before exiting, but others in the
job did. This can cause a job to hang indefinitely while it waits for
all processes to call "init". By rule, if one process calls "init",
then ALL processes must call "init" prior to termination.
2. this process called "init", but exited without calling "finalize".
By rule, all processes that call "init" MUST call "finalize" prior to
exiting or it will be considered an "abnormal termination"
3. this process called "MPI_Abort" or "prte_abort" and the mca
parameter prte_create_session_dirs is set to false. In this case, the
run-time cannot detect that the abort call was an abnormal
termination. Hence, the only error message you will receive is this
one.
This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
You can avoid this message by specifying -quiet on the prterun command
line.
""".split("\n")
)
_LINE_ABOUT_LOSS = re.compile(
    rb"(?:NBC_Progress: an error 7[567] was found during schedule \S+ at row-offset "
    rb"-?\d+ - aborting the schedule|LAUNCHER JOB OBJECT NOT FOUND)\s*$"
)
# Exit codes without a restart of the job: SIGINT and SIGTERM.
_REQUESTED_EXIT_CODES = (130, 143)
# Seconds for mpirun to end its processes after an interruption.
_INTERRUPTION_SECONDS = 5
# Seconds between polls of the launcher; until it listens; and until it counts as hung
# after the end of the job.
_POLL_SECONDS, _START_SECONDS, _HANG_SECONDS = 0.05, 10.0, 15.0


# Runs a job with an environment, and returns its exit code.
RunRanks: TypeAlias = Callable[[dict[str, str]], int]


def run_job(run: RunRanks, environment: dict[str, str], restarts: int = 0) -> int:
    """Run a job, again after a lost process, and return its exit code.

    Args:
        run: a function that runs it once.
        environment: the environment of all processes.
        restarts: the maximum number of restarts after a lost process. An exception or a
            non-zero exit code of the script does not count as a loss.
    """
    with TemporaryDirectory(prefix="toolkit-") as folder:
        outcome = Path(folder, "outcome")
        environment = {**environment, "TOOLKIT_OUTCOME": str(outcome)}
        if restarts:
            environment["TOOLKIT_SNAPSHOTS"] = str(Path(folder, "snapshots"))
        for remaining in range(restarts, -1, -1):
            code = run(environment)
            state, *_ = _read_outcome(outcome)
            if state == "ended":  # Open MPI can return the code of a lost process
                return 0
            if (
                not (code and remaining)
                or state == "failed"
                or code in _REQUESTED_EXIT_CODES
            ):
                break
            outcome.unlink(missing_ok=True)
            print(
                f"toolkit: a process was lost, exit code {code}; the job restarts, "
                f"{remaining - 1} of {restarts} restarts remain",
                file=sys.stderr,
                flush=True,
            )
        return code


def _read_outcome(outcome: Path) -> tuple[str, int, list[int]]:
    """Return the outcome of a job, its exit code, and its processes."""
    if not outcome.exists():
        return "", 0, []
    state, *numbers = outcome.read_text("utf-8").split()
    code, *processes = map(int, numbers)
    return state, code, processes


def run_launcher(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a launcher, forward the output of its processes, and return its exit code.

    SIGTERM and Ctrl-C reach the launcher, which ends the processes.

    Args:
        command: the launcher command.
        environment: the environment of all processes, with TOOLKIT_OUTCOME.
    """
    outcome = Path(environment["TOOLKIT_OUTCOME"])
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    notices: list[bytes] | None = [] if "TOOLKIT_ELASTIC" in environment else None
    threads = [
        threading.Thread(target=forward_lines, args=(*streams, notices), daemon=True)
        for streams in (
            (cast(BufferedReader, process.stdout), sys.stdout.buffer),
            (cast(BufferedReader, process.stderr), sys.stderr.buffer),
        )
    ]
    previous_handler = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        for thread in threads:
            thread.start()
        code = _wait_for_launcher(process, outcome, LOOPBACK_NETWORK in command)
    except KeyboardInterrupt:
        process.wait(_INTERRUPTION_SECONDS)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        if process.poll() is None:
            process.kill()
        for thread in threads:
            thread.join(1)
        if notices and _read_outcome(outcome)[0] != "ended":
            sys.stderr.buffer.write(b"".join(notices))
            sys.stderr.flush()
    return shell_code(code)


def _wait_for_launcher(
    process: subprocess.Popen[bytes], outcome: Path, is_on_loopback: bool
) -> int:
    """Wait for a launcher; if it hangs after an outcome, end it and its processes.

    Args:
        process: the launcher.
        outcome: the file in which a process of the job records the outcome.
        is_on_loopback: whether it is an Open MPI launcher on one machine.
    """
    start, end = time.monotonic(), float("inf")
    limited_listeners: set[str] = set()
    while True:
        current = time.monotonic()
        if is_on_loopback and current - start < _START_SECONDS:
            # Only launchers of other machines would connect, and there are none.
            restrict_listeners(process.pid, limited_listeners, reject_all=True)
        if outcome.exists():
            end = min(end, current)
        if current - end > _HANG_SECONDS:
            _, code, processes = _read_outcome(outcome)
            for pid in (*processes, process.pid):
                with suppress(OSError):
                    os.kill(pid, KILL_SIGNAL)
            process.wait()
            return code
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)


def forward_lines(
    source: BufferedReader, target: BinaryIO, notices: list[bytes] | None = None
) -> None:
    """Copy lines as they arrive, until the source ends.

    Args:
        source: the output of a launcher.
        target: the output of this process.
        notices: receives the messages about lost processes, for a job that can
            continue without them. None: they are copied.
    """
    for line in filter_notices(split_lines(source), notices):
        target.write(line)
        target.flush()


def filter_notices(
    lines: Iterator[bytes], notices: list[bytes] | None = None
) -> Iterator[bytes]:
    """Yield lines with short tags, without redundant notices of the launcher.

    A separator line is held until the next line shows whether it starts a notice.

    Args:
        lines: the lines.
        notices: receives the messages about lost processes; None: they are yielded.
    """
    if notices is not None:
        lines = _without_lost_processes(lines, notices)
    separators: dict[bytes, bytes] = {}
    is_in_notice: dict[bytes, bool] = {}
    for line in lines:
        match = _TAG.match(line)
        rank = match[1] if match else b""
        body = line[match.end() :] if match else line
        tag = rank + b": " if match else b""
        is_separator = bool(_SEPARATOR.match(body))
        if is_in_notice.get(rank):
            is_in_notice[rank] = not is_separator
        elif rank in separators:
            separator = separators.pop(rank)
            is_in_notice[rank] = bool(_REDUNDANT_NOTICE.match(body))
            if not is_in_notice[rank]:
                yield separator + tag + body
        elif is_separator:
            separators[rank] = tag + body
        elif body.strip() or rank not in is_in_notice:
            yield tag + body
    yield from separators.values()


def _without_lost_processes(
    lines: Iterator[bytes], notices: list[bytes]
) -> Iterator[bytes]:
    """Yield lines without the messages about lost processes, which a list receives.

    A line without a tag can be of a replacement, so only known lines are messages.
    """
    separator, is_in_notice = b"", False
    for line in lines:
        is_separator = bool(_SEPARATOR.match(line))
        if is_in_notice and (is_separator or line.strip() in _EXIT_NOTICE_LINES):
            notices.append(line)
            is_in_notice = not is_separator
        elif separator and _EXIT_NOTICE.match(line):
            notices += separator, line
            separator, is_in_notice = b"", True
        else:
            if separator:
                yield separator
            separator = line if is_separator else b""
            tag = _TAG.match(line)
            if _LINE_ABOUT_LOSS.match(line, tag.end() if tag else 0):
                notices.append(line)
            elif not is_separator:
                yield line
    if separator:
        yield separator
