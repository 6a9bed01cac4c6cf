"""Which way of spreading the steps of models over processes is set, if one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from toolkit.backends.base import Backend
from toolkit.compiler.execute import Executable
from toolkit.ir import Graph


class Spreading(Protocol):
    """How the steps of models are spread over the ranks of a job.

    Attributes:
        is_chief: whether this process is the one that shows progress.
        num_model_replicas: into how many parts each batch goes.
        version: changes when programs have to be compiled again.
    """

    @property
    def is_chief(self) -> bool: ...

    @property
    def num_model_replicas(self) -> int: ...

    def rows(self, count: int) -> range:
        """Which rows of a batch of so many this process needs."""

    @property
    def version(self) -> int: ...

    def recover(self, version: int) -> None:
        """Go on without lost ranks, where the job can: else it raises.

        Args:
            version: that of when the step began in which they were missed.
        """

    def exchange(self, value: Any) -> list[Any]:
        """The values of all processes, which all call this; they are sent as JSON."""

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


def set_current(value: Spreading | None) -> None:
    """Spread the steps that are traced from now on."""
    global _current
    _current = value
