"""Processes that only use a processor, beside a measurement."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from toolkit.processes import clean_environment, exit_with_parent, python_command

_INPUT = 0  # the file descriptor of the standard input, which the parent keeps open


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes that only use a processor, while the context is active.

    Args:
        count: the number of processes.
    """
    command = python_command("toolkit.bench.busy:main")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                subprocess.Popen(
                    command, env=clean_environment(), stdin=subprocess.PIPE
                )
            )
            for _ in range(count)
        ]


def main(arguments: Sequence[str]) -> None:
    """Compute until the standard input is closed; `arguments` have no effect."""
    exit_with_parent(_INPUT)
    while True:
        pass
