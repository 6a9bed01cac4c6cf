"""Collective success: if work fails in one process, it fails in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import comm
from toolkit.errors import ToolkitError


def run_on_all_ranks(
    group: comm.Group,
    work: Callable[[], Any],
    error_class: type[Exception],
    reason: str,
    summarize: Callable[[Any], Any] = lambda result: result,
) -> tuple[Any, list[Any]]:
    """Run a function in all processes; if one fails, all fail.

    Args:
        group: the group of the processes.
        work: the function.
        error_class: the class of the error to raise.
        reason: the prefix of its message.
        summarize: a function from the result to JSON data for the other processes.

    Returns:
        The result of this process, and the data of all processes.

    Raises:
        BaseException: an error of type `error_class`. In the process that raised it, an
            exception that is not an `Exception`, such as an interrupt, is raised
            unchanged. A single process raises an error of the package unchanged.

    Example:
        >>> from toolkit.comm import local
        >>> from toolkit.distribution.collective_work import run_on_all_ranks

        [(0, [0, 1]), (1, [0, 1])]
    """
    result, failure, message = None, None, None
    try:
        result = work()
    except BaseException as error:  # the other ranks wait for this one
        failure = error
        is_expected = isinstance(error, (OSError, ToolkitError))
        message = str(error) if is_expected else f"{type(error).__name__}: {error}"
    reports = comm.exchange(
        group, [message, summarize(result) if failure is None else None]
    )
    if isinstance(failure, error_class) or not isinstance(failure, Exception | None):
        raise failure
    if group.size == 1 and isinstance(failure, ToolkitError):
        raise failure
    for rank, (error_text, _) in enumerate(reports):
        if error_text is not None:
            source = f"process {rank}: " if group.size > 1 else ""
            raise error_class(f"{reason}: {source}{error_text}") from failure
    return result, [value for _, value in reports]
