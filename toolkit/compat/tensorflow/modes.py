"""Whether operations run at once, as in TensorFlow 2, or build a graph, as in 1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from toolkit.tensor import state


class _Mode:
    """The mode of the process; `compat.v1` changes it."""

    is_eager = True


class _Local(threading.local):
    """The graphs and sessions whose `with` blocks a thread is in."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.sessions: list[Any] = []
        self.is_replaying = False  # whether a session runs operations of a graph


mode = _Mode()
local = _Local()


def executing_eagerly() -> bool:
    """Whether operations run at once.

    They do not inside of a traced function, nor after
    `compat.v1.disable_eager_execution()`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.executing_eagerly()
        True
    """
    return state.trace is None and not building_graph()


def building_graph() -> bool:
    """Whether what is called is to be recorded in a graph of TensorFlow 1."""
    wanted = local.graphs or not mode.is_eager
    return bool(wanted) and not local.is_replaying and state.trace is None


@contextmanager
def replaying() -> Iterator[None]:
    """Compute inside, whatever the mode."""
    outer, local.is_replaying = local.is_replaying, True
    try:
        yield
    finally:
        local.is_replaying = outer


def graphed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of tensors be recorded, whatever its arguments, in a graph."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not building_graph():
            return function(*args, **kwargs)
        from toolkit.compat.tensorflow.v1.graph import get_default_graph

        return get_default_graph().record(function, args, kwargs)

    return wrapper
