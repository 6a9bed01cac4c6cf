"""Going on without lost ranks: what all ranks do together is done once, or again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from toolkit import comm
from toolkit.errors import LaunchError, RankLostError

Result = TypeVar("Result")


class Recovery:
    """The operations that all ranks of a job take part in, which survive a lost rank.

    They are numbered. In an elastic job the results of each count only after a barrier,
    which no rank leaves before all ranks have theirs. So when a rank is lost, either
    some rank has left the barrier, and every other can leave it too, or none has, and
    all do the operation again with the ranks that are left.

    Attributes:
        version: how often ranks were lost; programs of an older one are of no use.
        rebuild: makes anew what was made of the groups of the ranks before; all ranks
            that are left call it.
    """

    def __init__(self) -> None:
        self.version = 0
        self.rebuild: Callable[[], None] = _nothing
        self._done = 0

    def run(self, operation: Callable[[], Result]) -> Result:
        """The result of an operation, which is done again where ranks are lost."""
        while True:
            version = self.version
            try:
                result = operation()
                self.settle()
            except RankLostError:
                self.recover(version)
            else:
                return result

    def settle(self) -> None:
        """End an operation: its results count when this returns.

        Raises:
            RankLostError: they do not count; `recover`, then do it again.
        """
        if comm.is_elastic():
            try:
                comm.world().barrier()
            except RankLostError:
                if not self._leave_out(has_results=True):
                    raise
        self._done += 1

    def recover(self, version: int) -> None:
        """Go on without lost ranks; called where an operation has raised.

        Args:
            version: that of when the operation began.

        Raises:
            LaunchError: if the job cannot go on.
        """
        if version == self.version:
            self._leave_out(has_results=False)

    def _leave_out(self, has_results: bool) -> bool:
        """Make the job one of the ranks that are left.

        Args:
            has_results: whether this rank has those of the operation in which the rank
                was lost.

        Returns:
            Whether they count.
        """
        while True:
            world = comm.recover()
            try:
                told = comm.exchange(world, [self._done, has_results])
                newest = max(done for done, _ in told)
                if any(done + has < newest for done, has in told):
                    raise LaunchError(
                        "recover: ranks are further apart than one operation; received "
                        f"{told}, the number of operations and whether the next is done"
                    )
                self.rebuild()
                self.version += 1
                return self._done < newest
            except RankLostError:  # one more
                continue


def _nothing() -> None:
    """What there is to make anew before a distribution is set."""


# Of this process: operations are numbered whatever distribution they belong to.
recovery = Recovery()
