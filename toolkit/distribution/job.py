"""Communication between the processes of a job, for all distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit import comm
from toolkit.distribution.chief import on_chief
from toolkit.distribution.elastic import Recovery, recovery


class Job:
    """Base class of distributions: the processes and their agreement.

    Attributes:
        recovery: the recovery from lost processes.
    """

    recovery: Recovery = recovery

    @property
    def num_processes(self) -> int:
        """Return the number of processes of the distribution."""
        return comm.world().size

    @property
    def is_chief(self) -> bool:
        """Return whether this process shows progress and writes files."""
        return comm.world().rank == 0

    def exchange(self, value: Any) -> list[Any]:
        """Exchange a JSON value; all processes call this.

        Args:
            value: the value of this process.

        Returns:
            The values of all processes, by rank.
        """
        return recovery.run(lambda: comm.exchange(comm.world(), value))

    def agree(self, subject: str, number: int) -> list[int]:
        """Gather a small number from all processes; all call this.

        Args:
            subject: the purpose of the number, which all processes compare.
            number: the number of this process.

        Returns:
            The numbers of all processes, by rank.
        """

        def gather() -> list[int]:
            with comm.named("an agreement of all processes between steps"):
                return comm.exchange_number(comm.world(), subject, number)

        return recovery.run(gather)

    def on_chief(self, work: Callable[[], Any], variables: Sequence[Any] = ()) -> None:
        """Call a function on rank 0 while all other ranks wait.

        Args:
            work: the function.
            variables: the sharded variables that the function can read.
        """
        pending = [work]

        def run_once() -> None:  # not repeated if another process is lost later
            while pending:
                pending[-1]()
                pending.pop()

        recovery.run(lambda: on_chief(comm.world(), run_once, variables))
