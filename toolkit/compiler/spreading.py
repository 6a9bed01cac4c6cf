"""Which way of spreading the steps of models over processes is set, if one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from toolkit.backends.base import Backend
from toolkit.compiler.execute import Executable
from toolkit.ir import Graph


class Recovery(Protocol):
    """How a job goes on when it loses a rank.

    Attributes:
        version: changes when programs have to be compiled again.
    """

    @property
    def version(self) -> int: ...

    def recover(self, version: int) -> None:
        """Go on without lost ranks, where the job can: else it raises.

        Args:
            version: that of when the step began in which they were missed.
        """

    def callbacks(self) -> list[Any]:
        """Those that the launcher adds to each `fit`."""

    def begin(self, model: Any) -> None:
        """Begin a run of `fit`, or take it up in the place of a lost rank."""

    def after_step(self) -> None:
        """Let replacements of lost ranks in; all ranks call this between steps."""

    def end(self) -> None:
        """End a run of `fit`."""


class Spreading(Protocol):
    """How the steps of models are spread over the ranks of a job.

    Attributes:
        is_chief: whether this process is the one that shows progress and writes files.
        auto_shard_dataset: whether each process takes its part of the data that all are
            given; if not, it is given its part.
        num_processes: how many compute together.
        num_model_replicas: into how many parts each batch goes.
        recovery: what they do when one of them is lost.
    """

    @property
    def is_chief(self) -> bool: ...

    @property
    def auto_shard_dataset(self) -> bool: ...

    @property
    def num_processes(self) -> int: ...

    @property
    def num_model_replicas(self) -> int: ...

    def rows(self, count: int) -> range:
        """Which rows of a batch of so many this process needs."""

    @property
    def recovery(self) -> Recovery: ...

    def exchange(self, value: Any) -> list[Any]:
        """The values of all processes, which all call this; they are sent as JSON."""

    def agree(self, subject: str, number: int) -> list[int]:
        """The small numbers of all processes, which all call this; see `comm.tell`."""

    def on_chief(self, work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
        """Call a function in one process while all others wait; all call this."""

    def compile(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool,
        updates: Sequence[tuple[int, int | None]],
        name: str,
        variables: Sequence[Any],
        written: Sequence[Any],
    ) -> Executable:
        """What runs this rank's part of a step.

        Args:
            graph: of the whole step, its last inputs those of the variables.
            backend, generate, updates, name: as for `compile_graph`.
            variables: what the graph reads besides a batch.
            written: the variables whose new values are its last outputs.
        """


_current: Spreading | None = None


def current() -> Spreading | None:
    """How steps are spread now; None: one process computes all of them."""
    return _current


def is_chief() -> bool:
    """Whether this process shows progress and writes files."""
    return _current is None or _current.is_chief


def on_chief(work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
    """Call a function, in a job in one process while all others wait.

    Args:
        work: the function, which writes files.
        variables: those that it may read.
    """
    if _current is None:
        work()
    else:
        _current.on_chief(work, variables)


def set_current(value: Spreading | None) -> None:
    """Spread the steps that are traced from now on."""
    global _current
    _current = value
