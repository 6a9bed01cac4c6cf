"""Processes of a job on this machine, connected over sockets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolkit.comm.child_processes import ChildProcesses, LineOutput
from toolkit.comm.sockets.keys import create_job_folder
from toolkit.comm.watchdog import KILL_SIGNAL

# Seconds for processes to end after a signal to this one, and after the end of a rank.
INTERRUPTION_SECONDS, _END_SECONDS = 5.0, 2.0
# Seconds for processes to react to Ctrl-C, which the terminal sends to all of them.
_CTRL_C_SECONDS = 1.0
_POLL_SECONDS = 0.05


def run_ranks(
    command: Sequence[str],
    processes: int,
    environment: dict[str, str],
    elastic: bool = False,
) -> int:
    """Run a command in several processes that form a job, and return the exit code.

    Args:
        command: the command of each process.
        processes: the number of processes.
        environment: the environment of all of them.
        elastic: whether the job continues if a signal ends a process.
    """
    folder = create_job_folder()
    try:
        job = RankProcesses(command, environment, folder, elastic=elastic)
        with job.end_at_sigterm():
            return job.run(range(processes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_to_terminal(rank: int, is_error: bool, line: bytes) -> None:
    """Write a line with its rank to the output of this process."""
    target = (sys.stderr if is_error else sys.stdout).buffer
    target.write(b"%d: %b" % (rank, line))
    target.flush()


def terminal_input(rank: int) -> int | None:
    """Return the input of this process for rank 0, and no input for other ranks."""
    return None if rank == 0 else subprocess.DEVNULL


class RankProcesses:
    """Processes of a job.

    Args:
        command: the command of each process.
        environment: the environment of all of them.
        folder: the folder of the job, with the secret and the sockets. It receives a
            file `ended-N` for each process that has ended. Rank 0 requests a new
            process by a file `start-N`. None: the processes connect over a network.
        elastic: whether the job continues if a signal ends a process.
        output: receives the lines of the processes, from several threads.
        choose_input: a function that returns the input of a rank, as for `subprocess`.
            An input that is a pipe closes when this process ends.

    Attributes:
        first_failure: the rank and the exit code of the first process that failed, as
            of `subprocess`; None if no process failed.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | None,
        *,
        elastic: bool = False,
        output: LineOutput = write_to_terminal,
        choose_input: Callable[[int], int | None] = terminal_input,
    ) -> None:
        self._command = command
        self._folder = folder
        self._environment = dict(environment)
        if folder is not None:
            self._environment["TOOLKIT_JOB"] = str(folder)
        self._elastic = elastic
        self._choose_input = choose_input
        self._children = ChildProcesses(output)
        self._local_ranks: dict[int, int] = {}  # of the processes
        self._lifelines: list[IO[bytes]] = []
        self._code = 0
        self._is_ending = False
        self._kill_time = float("inf")
        self.first_failure: tuple[int, int] | None = None

    def run(self, ranks: Iterable[int]) -> int:
        """Start the processes, wait for their end, and return the exit code.

        Args:
            ranks: the ranks of the processes.
        """
        try:
            for rank in ranks:
                if self._is_ending:
                    self._code = shell_code(-signal.SIGTERM)
                    break
                self._start(rank)
            self._wait()
        except KeyboardInterrupt:
            self._wait_after_ctrl_c()
            raise
        finally:
            self._children.close()
            for lifeline in self._lifelines:
                lifeline.close()
            self._children.join_readers()
        return self._code

    @contextmanager
    def end_at_sigterm(self) -> Iterator[None]:
        """End the processes if this one receives SIGTERM; only in the main thread."""
        previous_handler = signal.signal(signal.SIGTERM, lambda *_: self.end())
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, previous_handler)

    def _start(self, number: int, **variables: str) -> None:
        """Start a process; its rank is the number, unless it replaces a lost one."""
        local_rank = self._local_ranks[number] = self._free_local_rank()
        environment = {
            **self._environment,
            "TOOLKIT_RANK": str(number),
            "TOOLKIT_LOCAL_RANK": str(local_rank),
            "TOOLKIT_LAUNCHER": str(os.getpid()),
            **variables,
        }
        process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=self._choose_input(number),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if process.stdin is not None:
            self._lifelines.append(process.stdin)
        self._children.add(number, process)

    def _free_local_rank(self) -> int:
        """Return the first rank on this machine, and thus GPU, that no process has."""
        used = {
            self._local_ranks[number]
            for number, process in self._children.running.items()
            if process.poll() is None
        }
        return next(rank for rank in range(len(used) + 1) if rank not in used)

    def _wait(self) -> None:
        """Wait until all processes have ended."""
        while self._children.running:
            ended = self._children.next_end(_POLL_SECONDS)
            if ended is not None:
                self._handle_end(ended[0], ended[2])
            if time.monotonic() > self._kill_time:
                self._kill_time = float("inf")
                self._children.send_signal(KILL_SIGNAL)
            if "TOOLKIT_REPLACE" in self._environment:
                self._start_replacements()

    def _handle_end(self, number: int, code: int) -> None:
        if self._folder is not None:
            Path(self._folder, f"ended-{number}").touch()
        is_ending = self._is_ending
        if not code or self._code:
            return
        if self._elastic and code < 0 and self._children.running and not is_ending:
            name = signal_name(-code)
            _report(f"{name} ended rank {number}; the job continues without it")
            return
        self.first_failure = number, code
        self._code = shell_code(code)
        if code < 0 and not is_ending:
            _report(f"{signal_name(-code)} ended rank {number}; the job ends")
        elif not (is_ending or self._has_outcome()):  # such as os._exit, without a line
            _report(f"rank {number} ended with exit code {code}; the job ends")
        self.end(_END_SECONDS)

    def _has_outcome(self) -> bool:
        """Return whether a rank has reported the end of the job."""
        outcome = self._environment.get("TOOLKIT_OUTCOME")
        return outcome is not None and os.path.exists(outcome)

    def end(self, seconds: float = INTERRUPTION_SECONDS) -> None:
        """End all processes by SIGTERM, and kill the remaining ones later.

        Args:
            seconds: the time until they are killed.
        """
        self._is_ending = True
        self._kill_time = min(self._kill_time, time.monotonic() + seconds)
        self._children.send_signal(signal.SIGTERM)
        if hasattr(signal, "SIGCONT"):
            self._children.send_signal(signal.SIGCONT)  # for a stopped process

    def interrupt(self) -> None:
        """Send SIGINT to all processes, and kill the remaining ones later."""
        self._is_ending = True
        self._kill_time = min(self._kill_time, time.monotonic() + INTERRUPTION_SECONDS)
        self._children.send_signal(signal.SIGINT)

    def _wait_after_ctrl_c(self) -> None:
        """Wait for the end of the processes after Ctrl-C."""
        end = time.monotonic() + INTERRUPTION_SECONDS
        signal_time = time.monotonic() + _CTRL_C_SECONDS
        while self._children.running and time.monotonic() < end:
            self._children.next_end(_POLL_SECONDS)
            if time.monotonic() > signal_time:
                signal_time = float("inf")
                self._children.send_signal(signal.SIGINT)

    def _start_replacements(self) -> None:
        assert self._folder is not None
        for path in sorted(self._folder.glob("start-*")):
            number = int(path.name.partition("-")[2])
            request = path.rename(self._folder / f"request-{number}")
            self._start(number, TOOLKIT_REPLACEMENT=str(request))


def shell_code(code: int) -> int:
    """Return an exit code of `subprocess` as shells do after a signal."""
    return 128 - code if code < 0 else code


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _report(text: str) -> None:
    print(f"toolkit: {text}", file=sys.stderr, flush=True)
