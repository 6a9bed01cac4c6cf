"""Processes that keep processors busy, as other work on a machine would."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from toolkit.processes import clean_environment, exit_with_parent, python_command

_INPUT = 0  # the file descriptor of the standard input, which the parent keeps open


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes that only compute, while the context is active.

    Args:
        count: the number of processes.
    """
    command = python_command("toolkit.bench.busy:main")
    environment = clean_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)
            )
            for _ in range(count)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # waits until it computes
        yield processes


def main(arguments: Sequence[str] = ()) -> None:
    """Multiply matrices until the standard input is closed; print a line before.

    Args:
        arguments: has no effect.
    """
    exit_with_parent(_INPUT)
    x = np.ones((256, 256), np.float32)
    print(flush=True)
    while True:
        x @ x
