"""Collective success: if work fails in one process, it fails in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import comm
from toolkit.errors import ToolkitError


def run_in_all(
    group: comm.Group,
    work: Callable[[], Any],
    kind: type[Exception],
    reason: str,
    told: Callable[[Any], Any] = lambda found: found,
) -> tuple[Any, list[Any]]:
    """Run a function in all processes; if one fails, all fail.

    Args:
        group: the group of the processes.
        work: the function.
        kind: the error to raise.
        reason: the prefix of its message.
        told: a function from the result to JSON data for the other processes.

    Returns:
        The result of this process, and the data of all processes.

    Raises:
        BaseException: an error of type `kind`. In the process that raised it, an
            exception that is not an `Exception`, such as an interrupt, is raised
            unchanged.

    Example:
        >>> from toolkit.comm import local
        >>> from toolkit.distribution.collective_work import run_in_all
        >>> def ask(group):
        ...     return run_in_all(group, lambda: group.rank, OSError, "cannot ask")
        >>> local.run(2, ask)
        [(0, [0, 1]), (1, [0, 1])]
    """
    found, failed, message = None, None, None
    try:
        found = work()
    except BaseException as error:  # the other ranks wait for this one
        failed = error
        is_clear = isinstance(error, (OSError, ToolkitError))
        message = str(error) if is_clear else f"{type(error).__name__}: {error}"
    answers = comm.exchange(group, [message, told(found) if failed is None else None])
    if isinstance(failed, kind) or not isinstance(failed, Exception | None):
        raise failed
    for rank, (why, _) in enumerate(answers):
        if why is not None:
            raise kind(f"{reason}: process {rank}: {why}") from failed
    return found, [value for _, value in answers]
