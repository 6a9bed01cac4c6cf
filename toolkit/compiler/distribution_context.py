"""The current strategy for distributed steps of models over processes, if any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from toolkit.backends.base import Backend
from toolkit.compiler.execute import Executable
from toolkit.ir import Graph

if TYPE_CHECKING:
    from toolkit.core.placement import Placement
    from toolkit.core.variable import Variable


class Recovery(Protocol):
    """Recovery of a job that loses a rank.

    Attributes:
        version: changes when programs must be recompiled.
    """

    @property
    def version(self) -> int: ...

    def recover(self, version: int) -> None:
        """Continue without the lost ranks if the job can; raise otherwise.

        Args:
            version: the version at the start of the step in which the loss was
                detected.
        """

    def callbacks(self) -> list[Any]:
        """Return the callbacks that the launcher adds to each `fit`."""

    def begin(self, model: Any) -> None:
        """Start a run of `fit`, or resume it as the replacement of a lost rank."""

    def after_step(self) -> None:
        """Admit replacements of lost ranks; all ranks call this between steps."""

    def end(self) -> None:
        """End a run of `fit`."""


class DistributionContext(Protocol):
    """Strategy for distributed steps of models over the ranks of a job.

    Attributes:
        is_chief: whether this process shows progress and writes files.
        auto_shard_dataset: whether each process takes its shard of the data; if not,
            the data is already sharded.
        num_processes: number of processes that compute together.
        num_model_replicas: number of parts of each batch.
        recovery: recovery from the loss of a process.
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
        """Return the rows of a batch with `count` rows that this process needs."""

    @property
    def recovery(self) -> Recovery: ...

    def exchange(self, value: Any) -> list[Any]:
        """Gather a value from all processes as JSON; all processes call this."""

    def agree(self, subject: str, number: int) -> list[int]:
        """Gather a small number from all processes: see `comm.exchange_number`."""

    def on_chief(self, work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
        """Call a function in one process while the others wait; all call this."""

    def num_accumulated_leaves(self, variable: Variable) -> int:
        """Return the number of sums of a gradient accumulator.

        Args:
            variable: the variable of the gradient.

        Returns:
            The number of parts of a batch, or 1 for a sum over all processes, which
            exchange the gradient in each step.
        """

    def place_leaves(
        self, accumulator: Variable, variable: Variable
    ) -> Placement | None:
        """Return the placement of a gradient accumulator with a sum for each leaf.

        Args:
            accumulator: the accumulator: (leaves, ...).
            variable: the variable of the gradient: (...).
        """

    def compile(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool,
        updates: Sequence[tuple[int, int | None]],
        name: str,
        variables: Sequence[Variable],
        written: Sequence[Variable],
    ) -> Executable:
        """Compile this rank's part of a step.

        Args:
            graph: graph of the whole step; its last inputs are the variables.
            backend, generate, updates, name: as for `compile_graph`.
            variables: inputs of the graph after the batch.
            written: the variables whose new values are the last outputs.
        """


_current: DistributionContext | None = None


def current() -> DistributionContext | None:
    """Return the current strategy, or None if one process computes all steps."""
    return _current


def is_chief() -> bool:
    """Return whether this process shows progress and writes files."""
    return _current is None or _current.is_chief


def on_chief(work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
    """Call a function; in a job, in one process while all other processes wait.

    Args:
        work: the function; it writes files.
        variables: variables that it may read.
    """
    if _current is None:
        work()
    else:
        _current.on_chief(work, variables)


def set_current(value: DistributionContext | None) -> None:
    """Use this strategy for the steps that are traced from now on."""
    global _current
    _current = value
