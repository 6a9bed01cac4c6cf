"""launch_notebook: run a function of a notebook in several processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from toolkit.arguments import check_arguments
from toolkit.comm import function_files
from toolkit.comm.launchers import launch_environment
from toolkit.comm.rank_processes import RankProcesses, signal_name
from toolkit.comm.sockets.keys import create_job_folder
from toolkit.comm.watchdog import STALLED_EXIT_CODE
from toolkit.errors import ArgumentError, LaunchError, RankLostError, StalledError
from toolkit.launch import INTERRUPTED
from toolkit.processes import python_command

# Lines of the processes that the error of a failed job repeats.
_NUM_LAST_LINES = 20


@check_arguments
def launch_notebook(
    function: Callable[..., Any],
    processes: int,
    *,
    arguments: Sequence[object] = (),
    timeout: float | None = None,
    elastic: bool = False,
) -> Any:
    """Run a function in several new processes that form a job.

    It is `toolkit run --processes` for notebooks and interactive sessions. The function
    can be defined in a cell, or in `__main__`. It sets a distribution, such as
    `toolkit.distribution.DataParallel()`, and all processes run it with the same
    arguments. The processes are new interpreters, so they do not share variables with
    this one. A function that no module defines needs the package cloudpickle
    (`pip install "toolkit-nn[workers]"`).

    The lines that the processes print appear in `sys.stdout` and `sys.stderr` of this
    process, with the rank of their process. An error in a process ends all of them.
    Ctrl-C, and the end of this process, end all of them, too. It can be called from any
    thread.

    Args:
        function: the function.
        processes: the number of processes, at least 1.
        arguments: the positional arguments of the function.
        timeout: the time in seconds that a process can wait for another one before the
            job ends. None: 600, or the environment variable TOOLKIT_TIMEOUT.
        elastic: whether `fit` continues with the other processes if a process is
            killed.

    Returns:
        The result of the function in rank 0. In an elastic job that has lost rank 0, it
        is the result of the first remaining process.

    Raises:
        Exception: the error of the function in any process, with its traceback as a
            note.
        RankLostError: a signal ended a process.
        StalledError: a process has waited longer than the timeout.
        LaunchError: the processes cannot connect, or a process has ended the job with
            an exit code.
        UnsupportedError: the function, its arguments or its result cannot be sent
            between processes.

    Example:
        >>> import toolkit
        >>> def train(units):
        ...     import toolkit as tk
        ...     tk.distribution.set_distribution(tk.distribution.DataParallel())
        ...     model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(units)])
        ...     model.compile("sgd", "mse")
        ...     model.fit(tk.ops.ones((8, 4)), tk.ops.ones((8, 1)), verbose=0)
        ...     return tk.distribution.distribution().num_processes
        >>> toolkit.distribution.launch_notebook(train, 2, arguments=[1])
        2
    """
    _check(processes, timeout)
    folder = create_job_folder()
    try:
        function_files.write_function(folder, function, arguments, "launch_notebook")
        output = NotebookOutput(sys.stdout, sys.stderr)
        job = RankProcesses(
            python_command(
                "toolkit.launch:run_function",
                *(function_files.__name__, str(folder)),
                runs_user_code=True,
            ),
            _environment(processes, timeout, elastic),
            folder,
            elastic=elastic,
            output=output,
            choose_input=lambda _: subprocess.PIPE,
        )
        code = job.run(range(processes))
        error = function_files.read_error(folder)
        if error is not None:
            raise error
        if code:
            assert job.first_failure is not None
            raise _describe_failure(*job.first_failure, output.last_lines)
        return function_files.read_result(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(
    processes: int, timeout: float | None, elastic: bool
) -> dict[str, str]:
    """Return the environment of the processes.

    It has no settings of a job to which this process itself belongs.
    """
    environment = launch_environment(processes, timeout, elastic)
    settings = ["TOOLKIT_OUTCOME", "TOOLKIT_SNAPSHOTS", "TOOLKIT_REPLACE"]
    for name in settings if elastic else [*settings, "TOOLKIT_ELASTIC"]:
        environment.pop(name, None)
    return environment


def _check(processes: int, timeout: float | None) -> None:
    if processes < 1:
        raise ArgumentError(
            f"launch_notebook: expected processes of at least 1; received {processes!r}"
        )
    if timeout is not None and not timeout > 0:
        raise ArgumentError(
            "launch_notebook: expected a timeout in seconds, above 0, or None; "
            f"received {timeout!r}"
        )


def _describe_failure(rank: int, code: int, last_lines: Sequence[str]) -> BaseException:
    """Return the error for a job without an error of the function.

    Args:
        rank: the rank of the first process that failed.
        code: its exit code.
        last_lines: the last lines that the processes wrote to stderr.
    """
    if code == INTERRUPTED:
        return KeyboardInterrupt()
    lines = "".join(last_lines).rstrip()
    suffix = f". The last lines of the processes are:\n{lines}" if lines else ""
    if code < 0:
        return RankLostError(
            f"launch_notebook: {signal_name(-code)} ended rank {rank} of the job"
            f"{suffix}"
        )
    if code == STALLED_EXIT_CODE:
        return StalledError(
            f"launch_notebook: a process has waited longer than the timeout{suffix}"
        )
    return LaunchError(
        f"launch_notebook: the job has ended with exit code {code}{suffix}"
    )


class NotebookOutput:
    """Output of ranks as text, which needs no binary stream.

    The streams of a notebook have none.

    Args:
        output: receives the lines of stdout, with the rank.
        errors: receives the lines of stderr, with the rank.

    Attributes:
        last_lines: the last lines of stderr.
    """

    def __init__(self, output: TextIO, errors: TextIO) -> None:
        self._output, self._errors = output, errors
        self._lock = threading.Lock()
        self.last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)

    def __call__(self, rank: int, is_error: bool, line: bytes) -> None:
        text = f"{rank}: {line.decode('utf-8', 'replace')}"
        stream = self._errors if is_error else self._output
        with self._lock:
            if is_error:
                self.last_lines.append(text)
            stream.write(text)
            stream.flush()
