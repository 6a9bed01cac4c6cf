"""Whether operations run at once, as in TensorFlow 2, or build a graph, as in 1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from toolkit.core.tensor import state
from toolkit.errors import TraceError
from toolkit.ops.symbolic import Probe


class NeedsValues(TraceError):
    """What needs values of tensors, to print them say, is called in a trace.

    A graph calls no Python function when it runs: `tf.function` runs eagerly then.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        super().__init__(
            f"{function}: expected tensors that have values; received one of a traced "
            "function. A tf.function with such a call runs eagerly, and so does a "
            "model that is compiled with run_eagerly=True"
        )


def needs_each_call(function: str) -> None:
    """Raise in the trace of a tf.function: what is called acts in each call of it."""
    if local.is_tracing and state.trace is not None:
        raise NeedsValues(function)


def asks_for_shapes() -> bool:
    """Whether what is called computes nothing, and never will: shapes are asked for."""
    trace: Any = state.trace
    while trace is not None and not isinstance(trace, Probe):
        trace = trace._outer[0]
    return trace is not None


class _Mode:
    """The mode of the process, and what is done where graphs are built.

    `compat.v1`, which alone knows how, sets all of it when it is imported.
    """

    is_eager: bool = True
    graph: Callable[[], Any]  # the graph that is built
    record: Callable[..., Any]  # see `v1.recording`
    variable: Any = None  # the class of Variables in graphs


class _Local(threading.local):
    """The graphs and sessions whose `with` blocks a thread is in."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.sessions: list[Any] = []
        self.run: Any = None  # of a session: it knows the values of symbols
        self.is_tracing = False  # whether a tf.function that is in no trace is called


mode: _Mode = _Mode()
local: _Local = _Local()


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
    return bool(wanted) and local.run is None and state.trace is None


@contextmanager
def running(run: Any) -> Iterator[None]:
    """Compute inside, whatever the mode; symbols have the values that `run` knows."""
    outer, local.run = local.run, run
    try:
        yield
    finally:
        local.run = outer


class _Computing:
    """A run of no graph."""

    def value(self, x: Any) -> Any:
        """What `x` is."""
        return x


def computing() -> AbstractContextManager[None]:
    """Compute inside at once, whatever the mode."""
    return running(_Computing())
