"""Interface of the engines that start, shrink and end the group of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolkit.comm.group import Group


class ElasticGroup(Group, Protocol):
    """Group that can continue after the loss of a rank.

    Attributes:
        is_closed: whether `close` was called.
    """

    @property
    def is_closed(self) -> bool: ...

    def revoke(self) -> None:
        """Abort pending calls of all ranks in this group with `RankLostError`."""

    def shrink(self) -> ElasticGroup:
        """Return the group of the remaining ranks, in their order."""


class Bridge(Protocol):
    """Connection between a job and processes that start later.

    One-byte messages go between rank 0 of the job and each of those processes.

    Attributes:
        rank, size: the rank of this process on its side, and the number of ranks there.
        remote_size: the number of ranks of the other side.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def remote_size(self) -> int: ...

    def send_message(self, to: int, message: int) -> None:
        """Send a one-byte message to a rank of the other side."""

    def poll_message(self, source: int) -> int | None:
        """Return the next message of a remote rank, or None if none has arrived."""

    def merge(self, is_new: bool) -> ElasticGroup:
        """Merge both sides, with new ranks last; all ranks call this."""


class Engine(Protocol):
    """Way to connect the processes of a job."""

    def world_group(self) -> ElasticGroup:
        """Return the group of all processes of the job."""

    def bridge_to_job(self) -> Bridge | None:
        """Return the bridge to the job that started this process later, if any."""

    def abort(self, code: int) -> None:
        """Abort all other processes of the job."""

    def finish(self) -> None:
        """Leave the job before a normal exit."""

    def spawn(
        self, group: ElasticGroup, arguments: Sequence[str], count: int
    ) -> Bridge:
        """Start processes that replace lost ones; all ranks of the group call this.

        Args:
            group: the group of all ranks.
            arguments: the arguments of Python, without the interpreter.
            count: the number of processes.
        """
