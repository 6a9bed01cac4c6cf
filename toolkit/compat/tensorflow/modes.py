"""Execution modes: eager as in TensorFlow 2, or graph construction as in TensorFlow
1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from toolkit.core.tensor import state
from toolkit.errors import TraceError
from toolkit.ops.symbolic import Probe
from toolkit.type_aliases import TensorLike


class NeedsValues(TraceError):
    """Signal that an operation in a trace needs the values of tensors.

    A graph calls no Python function when it runs, so `tf.function` runs eagerly then.
    `tf.print` is an example.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        super().__init__(
            f"{function}: expected tensors that have values; received a tensor of a "
            "traced function. A tf.function with this call runs eagerly. For a "
            "model, compile with run_eagerly=True"
        )


class NeedsJob(TraceError):
    """Signal that all processes of a job must compute a traced function together."""

    def __init__(self) -> None:
        super().__init__(
            "strategy.run: expected a tf.function, or a call outside of any function, "
            "in a job; received a call in another trace"
        )


def require_eager(function: str) -> None:
    """Raise in the trace of a tf.function, for a function with a side effect in each
    call."""
    if local.is_tracing and state.trace is not None:
        raise NeedsValues(function)


def is_inferring_shapes() -> bool:
    """Return whether the code only infers shapes, in a probe trace."""
    trace = state.trace
    while trace is not None and not isinstance(trace, Probe):
        trace = trace.enclosing
    return trace is not None


class _Mode:
    """The mode of the process, and the hooks for graph construction.

    Only `compat.v1` defines the hooks, at its import.
    """

    is_eager: bool = True
    graph: Callable[[], Any]  # returns the current graph
    record: Callable[..., Any]  # see `v1.recording`
    variable: Any = None  # the class of Variables in graphs


class _Local(threading.local):
    """The graphs and sessions whose `with` blocks are active in a thread."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.sessions: list[Any] = []
        self.run: Any = None  # the run of a session, with the values of symbols
        self.is_tracing = False  # whether a call of the outermost tf.function is active


mode: _Mode = _Mode()
local: _Local = _Local()


def executing_eagerly() -> bool:
    """Return whether operations run eagerly.

    They do not in a traced function, nor after `compat.v1.disable_eager_execution()`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.executing_eagerly()
        True
    """
    return state.trace is None and not building_graph()


def building_graph() -> bool:
    """Return whether a TensorFlow 1 graph records the operations."""
    is_requested = local.graphs or not mode.is_eager
    return bool(is_requested) and local.run is None and state.trace is None


@contextmanager
def set_run(run: Any) -> Iterator[None]:
    """Compute inside, in any mode; `run` has the values of symbols."""
    outer, local.run = local.run, run
    try:
        yield
    finally:
        local.run = outer


class _EagerRun:
    """A run without a graph."""

    def value(self, x: TensorLike) -> Any:
        """Return `x`."""
        return x


def compute_eagerly() -> AbstractContextManager[None]:
    """Compute eagerly inside, in any mode."""
    return set_run(_EagerRun())
