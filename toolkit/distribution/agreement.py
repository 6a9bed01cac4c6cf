"""What all processes of a job do, or none: a failure of one is raised in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import comm
from toolkit.errors import ToolkitError


def together(
    group: comm.Group,
    work: Callable[[], Any],
    kind: type[Exception],
    reason: str,
    told: Callable[[Any], Any] = lambda found: found,
) -> tuple[Any, list[Any]]:
    """Do something in all processes; if it fails in one, it fails in all.

    Args:
        group: the processes.
        work: what each of them does.
        kind: the error to raise.
        reason: its message begins with this.
        told: makes of the result what the others are told of it, in JSON.

    Returns:
        The result of this process, and what all of them tell.

    Raises:
        BaseException: an error of this kind; or, in the process that raised it, what is
            no `Exception`, such as an interrupt.

    Example:
        >>> from toolkit.comm import local
        >>> from toolkit.distribution.agreement import together
        >>> def ask(group):
        ...     return together(group, lambda: group.rank, OSError, "cannot ask")
        >>> local.run(2, ask)
        [(0, [0, 1]), (1, [0, 1])]
    """
    found, failed, message = None, None, None
    try:
        found = work()
    except BaseException as error:  # the others wait for this process
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
