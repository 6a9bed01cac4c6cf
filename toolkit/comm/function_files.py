"""The function, the result and the error of a job, in its private folder.

Only the account of the job can write to the folder, so a process may load the pickles.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.comm import jobs
from toolkit.data.pickling import dumps, picklable_error, pickle_function
from toolkit.errors import LaunchError, UnsupportedError

_FUNCTION, _RESULT, _ERROR = "function", "result", "error"


def write_function(
    folder: Path, function: Callable[..., Any], arguments: Sequence[object], caller: str
) -> None:
    """Write a function and its arguments for the processes of a job.

    Args:
        folder: the folder of the job.
        function: the function.
        arguments: its positional arguments.
        caller: the name of the public function, for messages.

    Raises:
        UnsupportedError: pickle and cloudpickle cannot serialize them.
    """
    # One pickle, so that an object which both contain stays one object.
    call = partial(function, *arguments) if arguments else function
    _write(folder / _FUNCTION, pickle_function(call, caller))


def run_function(folder: Path) -> None:
    """Call the function of a job in this rank; rank 0 writes its result.

    In an elastic job without its first process, the next process has rank 0.
    """
    function = pickle.loads((folder / _FUNCTION).read_bytes())
    result = function()
    if jobs.world().rank == 0:
        write_result(folder, result)


def write_result(folder: Path, result: object) -> None:
    """Write the result for the process that started the job.

    Raises:
        UnsupportedError: the result cannot be pickled.
    """
    try:
        content = dumps(result)
    except Exception as error:
        raise UnsupportedError(
            "launch_notebook: expected a result of rank 0 that can be pickled, such as "
            f"arrays or a model; received a {type(result).__name__}: {error}"
        ) from error
    _write(folder / _RESULT, content)


def read_result(folder: Path) -> object:
    """Return the result.

    Raises:
        LaunchError: no process has written a result.
    """
    path = folder / _RESULT
    if not path.exists():
        raise LaunchError("the processes have ended without a result of rank 0")
    return pickle.loads(path.read_bytes())


def write_error(folder: Path, error: BaseException) -> None:
    """Write the error of this rank, with its traceback, if it is the first one."""
    if (folder / _ERROR).exists():
        return
    if not isinstance(error, Exception):  # such as GeneratorExit
        error = LaunchError(f"{type(error).__name__} ended the function: {error}")
    candidate = picklable_error(error)
    # A candidate that is no error is a proxy, which also sends the notes.
    noted_error = candidate if isinstance(candidate, Exception) else error
    noted_error.add_note(f"rank {jobs.world().rank} of the job raised this error")
    _write(folder / _ERROR, dumps(candidate))


def read_error(folder: Path) -> Exception | None:
    """Return the error of a rank, or None if no rank has written one."""
    path = folder / _ERROR
    if not path.exists():
        return None
    try:
        error = pickle.loads(path.read_bytes())
    except Exception as failure:
        return LaunchError(
            "a rank has failed, and its error cannot be loaded: "
            f"{''.join(traceback.format_exception_only(failure)).strip()}"
        )
    assert isinstance(error, Exception)
    return error


def _write(path: Path, content: bytes) -> None:
    """Write a file, which is complete when its name exists."""
    temporary = path.with_name(f"{path.name}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
