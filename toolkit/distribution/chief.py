"""Work of the chief process (rank 0) that reads sharded values of all ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import comm, errors
from toolkit.comm import Group

_DONE, _FAILED = -1, -2


class _GatherRequest(threading.local):
    """Thread-local function with which the chief requests the gather of a value."""

    send: Callable[[Any], None] | None = None


_gather_request = _GatherRequest()


def on_chief(
    group: Group, work: Callable[[], Any], variables: Sequence[Any] = ()
) -> None:
    """Call a function on rank 0, while the other ranks wait until it returns.

    The function can read sharded variables. For each one, rank 0 notifies the other
    ranks, and all of them gather it.

    Args:
        group: the group; all its ranks call this.
        work: the function for rank 0, which can call `on_chief` again.
        variables: the variables that it can read.

    Raises:
        Exception: on rank 0 the error of `work`. On other ranks an error of the same
            class if it is a ToolkitError, else CommunicationError.
    """
    if _gather_request.send is not None:  # the other ranks already wait
        work()
        return
    sharded_variables = [v for v in variables if v.placement is not None]
    with comm.named(
        "an operation that rank 0 writes for all ranks, and that all ranks must call"
    ):
        # A broadcast from rank 0 can complete before the other ranks call it.
        group.barrier()
        if group.rank == 0:
            _run_on_chief(group, work, sharded_variables)
        else:
            _follow_chief(group, sharded_variables)


def notify_gather(placement: Any) -> None:
    """Notify the waiting ranks that a value is gathered."""
    if _gather_request.send is not None:
        _gather_request.send(placement)


def _run_on_chief(
    group: Group, work: Callable[[], Any], sharded_variables: Sequence[Any]
) -> None:
    def send_index(placement: Any) -> None:
        for index, variable in enumerate(sharded_variables):
            if variable.placement is placement:
                _broadcast_index(group, index)
                return
        raise errors.CommunicationError(
            f"one process cannot read a sharded variable ({placement})"
        )

    _gather_request.send = send_index
    try:
        work()
    except BaseException as error:
        _broadcast_index(group, _FAILED)
        comm.exchange(group, [type(error).__name__, str(error)])
        raise
    finally:
        _gather_request.send = None
    _broadcast_index(group, _DONE)


def _follow_chief(group: Group, sharded_variables: Sequence[Any]) -> None:
    while True:
        index = _receive_index(group)
        if index == _DONE:
            return
        if index == _FAILED:
            name, text = comm.exchange(group, None)[0]
            error_class = getattr(errors, name, None)
            if not isinstance(error_class, type) or not issubclass(
                error_class, errors.ToolkitError
            ):
                error_class, text = errors.CommunicationError, f"rank 0: {name}: {text}"
            raise error_class(text)
        sharded_variables[index].numpy()


def _broadcast_index(group: Group, index: int) -> None:
    group.broadcast(np.array([index], np.int64))


def _receive_index(group: Group) -> int:
    buffer = np.empty(1, np.int64)
    group.broadcast(buffer)
    return int(buffer[0])
