"""Processes of a job on this machine, connected over sockets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, cast

from toolkit.cli.ranks_output import split_lines
from toolkit.comm.sockets.keys import create_job_folder
from toolkit.comm.watchdog import KILL_SIGNAL

# Seconds for processes to end after a signal to this one, and after the end of a rank.
_INTERRUPTION_SECONDS, _END_SECONDS = 5.0, 2.0
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
        return _Job(command, folder, environment, elastic).run(processes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Job:
    """Processes of a job.

    The folder of the job has the secret and the sockets, and a file `ended-N` for each
    process that has ended. Rank 0 requests a new process by a file `start-N`.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        elastic: bool,
    ) -> None:
        self._command = command
        self._folder = folder
        self._environment = environment
        self._elastic = elastic
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._code = 0
        self._kill_time = float("inf")

    def run(self, processes: int) -> int:
        """Start the processes, wait for their end, and return the exit code."""
        previous_handler = signal.signal(
            signal.SIGTERM, lambda *_: self._end(signal.SIGTERM, _INTERRUPTION_SECONDS)
        )
        try:
            for rank in range(processes):
                self._start(rank)
            self._wait()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            signal.signal(signal.SIGTERM, previous_handler)
            for process in list(self._processes.values()):
                process.kill()
            for reader in self._readers:
                reader.join(1)
        return self._code

    def _start(self, number: int, **variables: str) -> None:
        """Start a process; its rank is the number, unless it replaces a lost one."""
        environment = {
            **self._environment,
            "TOOLKIT_JOB": str(self._folder),
            "TOOLKIT_RANK": str(number),
            "TOOLKIT_LAUNCHER": str(os.getpid()),
            **variables,
        }
        process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=None if number == 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._processes[number] = process
        for source, target in (
            (process.stdout, sys.stdout.buffer),
            (process.stderr, sys.stderr.buffer),
        ):
            arguments = number, cast(BufferedReader, source), target
            reader = threading.Thread(target=_forward, args=arguments, daemon=True)
            reader.start()
            self._readers.append(reader)
        threading.Thread(
            target=lambda: self._ended.put((number, process.wait())), daemon=True
        ).start()

    def _wait(self) -> None:
        """Wait until all processes have ended."""
        while self._processes:
            with suppress(Empty):
                self._handle_end(*self._ended.get(timeout=_POLL_SECONDS))
            if time.monotonic() > self._kill_time:
                self._kill_time = float("inf")
                self._signal(KILL_SIGNAL)
            if "TOOLKIT_REPLACE" in self._environment:
                self._start_replacements()

    def _handle_end(self, number: int, code: int) -> None:
        del self._processes[number]
        Path(self._folder, f"ended-{number}").touch()
        # As in shells, for a process that a signal ended.
        shell_code = 128 - code if code < 0 else code
        is_ending = self._kill_time < float("inf")
        if not code or self._code:
            return
        if self._elastic and code < 0 and self._processes and not is_ending:
            name = _signal_name(-code)
            _report(f"{name} ended rank {number}; the job continues without it")
            return
        self._code = shell_code
        if code < 0 and not is_ending:
            _report(f"{_signal_name(-code)} ended rank {number}; the job ends")
        elif not is_ending:  # also for os._exit, which prints nothing
            _report(f"rank {number} ended with exit code {code}; the job ends")
        self._end(signal.SIGTERM, _END_SECONDS)

    def _end(self, number: int, seconds: float) -> None:
        """Send a signal to all processes, and kill the remaining ones later."""
        self._kill_time = min(self._kill_time, time.monotonic() + seconds)
        self._signal(number)
        if hasattr(signal, "SIGCONT"):
            self._signal(signal.SIGCONT)  # for a stopped process

    def _interrupt(self) -> None:
        """Wait for the end of the processes after Ctrl-C."""
        end = time.monotonic() + _INTERRUPTION_SECONDS
        signal_time = time.monotonic() + _CTRL_C_SECONDS
        while self._processes and time.monotonic() < end:
            with suppress(Empty):
                number, _ = self._ended.get(timeout=_POLL_SECONDS)
                del self._processes[number]
            if time.monotonic() > signal_time:
                signal_time = float("inf")
                self._signal(signal.SIGINT)

    def _signal(self, number: int) -> None:
        for process in list(self._processes.values()):
            process.send_signal(number)

    def _start_replacements(self) -> None:
        for path in sorted(self._folder.glob("start-*")):
            number = int(path.name.partition("-")[2])
            request = path.rename(self._folder / f"request-{number}")
            self._start(number, TOOLKIT_REPLACEMENT=str(request))


def _forward(number: int, source: BufferedReader, target: BinaryIO) -> None:
    """Copy lines with the rank, as they arrive."""
    tag = b"%d: " % number
    for line in split_lines(source):
        target.write(tag + line)
        target.flush()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _report(text: str) -> None:
    print(f"toolkit: {text}", file=sys.stderr, flush=True)
