"""What the processes of a job say to each other, whatever they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit import comm
from toolkit.distribution.chief import on_chief
from toolkit.distribution.elastic import Recovery, recovery


class Job:
    """Base of distributions: the processes, and how they agree.

    Attributes:
        recovery: what they do when one of them is lost.
    """

    recovery: Recovery = recovery

    @property
    def num_processes(self) -> int:
        """How many processes compute together."""
        return comm.world().size

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that shows progress and writes files."""
        return comm.world().rank == 0

    def exchange(self, value: Any) -> list[Any]:
        """The values of all processes, which all call this; they are sent as JSON."""
        return recovery.run(lambda: comm.exchange(comm.world(), value))

    def agree(self, subject: str, number: int) -> list[int]:
        """The small numbers of all processes, which all call this; see `comm.tell`."""

        def gather() -> list[int]:
            with comm.named("what all processes agree on between steps"):
                return comm.tell(comm.world(), subject, number)

        return recovery.run(gather)

    def on_chief(self, work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
        """Call a function in the first process while all others wait."""
        todo = [work]

        def once() -> None:  # also if another process is lost after it
            while todo:
                todo[-1]()
                todo.pop()

        recovery.run(lambda: on_chief(comm.world(), once, variables))
