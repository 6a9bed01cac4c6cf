"""Child processes whose lines are forwarded, and whose ends are reported."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader
from queue import Empty, SimpleQueue
from typing import TypeAlias, cast

# Receives each line of a process: its number, whether it is of stderr, and the line.
LineOutput: TypeAlias = Callable[[int, bool, bytes], None]


class ChildProcesses:
    """Running child processes of a launcher, by their numbers.

    Args:
        output: receives the lines of the processes, from several threads.

    Attributes:
        running: the processes whose end `next_end` has not returned.
    """

    def __init__(self, output: LineOutput) -> None:
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._output = output
        self._ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._readers: list[threading.Thread] = []

    def add(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Forward the lines of a process, and wait for its end, in threads.

        Args:
            number: its number.
            process: a process with pipes for its output.
        """
        self.running[number] = process
        for source, is_error in ((process.stdout, False), (process.stderr, True)):
            arguments = number, is_error, cast(BufferedReader, source)
            reader = threading.Thread(target=self._forward, args=arguments, daemon=True)
            reader.start()
            self._readers.append(reader)
        threading.Thread(
            target=lambda: self._ended.put((number, process.wait())), daemon=True
        ).start()

    def _forward(self, number: int, is_error: bool, source: BufferedReader) -> None:
        with source:
            for line in split_lines(source):
                self._output(number, is_error, line)

    def next_end(
        self, seconds: float
    ) -> tuple[int, subprocess.Popen[bytes], int] | None:
        """Return the number, the process and the exit code of a process that has ended.

        Args:
            seconds: the time to wait; then None is returned.
        """
        try:
            number, code = self._ended.get(timeout=seconds)
        except Empty:
            return None
        return number, self.running.pop(number), code

    def send_signal(self, signal_number: int) -> None:
        """Send a signal to all processes."""
        for process in list(self.running.values()):
            process.send_signal(signal_number)

    def close(self) -> None:
        """Kill the remaining processes."""
        for process in list(self.running.values()):
            process.kill()

    def join_readers(self) -> None:
        """Wait until the last lines are forwarded."""
        for reader in self._readers:
            reader.join(1)


def split_lines(source: BufferedReader) -> Iterator[bytes]:
    """Yield lines, and redraws of a progress bar, each with its line end."""
    remainder = b""
    while chunk := source.read1(1 << 16):
        *lines, remainder = re.split(rb"(?<=[\r\n])", remainder + chunk)
        yield from lines
    if remainder:
        yield remainder
