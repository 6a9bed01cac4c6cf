"""Replacement processes for lost ranks: start and admission to the job.

They run the script from its start, in parallel to the job, until they can join it.
Until then, their group simulates a job in which every rank sends the same data.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from toolkit.comm.group import Buffer, Group, as_bytes, check_parts, offsets_of
from toolkit.comm.mpi import Bridge, MpiGroup
from toolkit.errors import LaunchError, RankLostError

# Messages between rank 0 of a job and its replacement processes.
READY, JOIN, LEAVE = 1, 2, 3
# Values of `Coming.state`.
STARTING, IS_READY, HAS_FAILED = 0, 1, 2
_POLL_SECONDS = 0.01  # seconds between two polls


class PendingReplacements:
    """Replacement processes that have not joined the job.

    All ranks of the job create it, and wait for the start of the processes. Open MPI
    cannot spawn processes in one thread while another thread creates groups.

    Args:
        group: the group of the job.
        count: the number of processes to start.
        arguments: the arguments of Python.
    """

    def __init__(self, group: MpiGroup, count: int, arguments: Sequence[str]) -> None:
        self._is_first = group.rank == 0
        self._bridge = group.spawn(arguments, count)
        self._waiting = set(range(count)) if self._is_first else set()
        self._have_failed = False

    @property
    def state(self) -> int:
        """Return STARTING, IS_READY or HAS_FAILED, as seen by this rank."""
        for rank in list(self._waiting):
            try:
                word = self._bridge.heard(rank)
            except RankLostError:
                word = LEAVE
            if word is not None:
                self._waiting.remove(rank)
                self._have_failed |= word == LEAVE
        if self._have_failed:
            return HAS_FAILED
        return STARTING if self._waiting else IS_READY

    def merge(self) -> MpiGroup | None:
        """Return the merged group; all ranks call this when all are ready.

        Returns:
            None if one of them is lost, although other ranks can succeed.
        """
        self._tell(JOIN)
        try:
            return self._bridge.merge(is_new=False)
        except RankLostError:
            return None

    def cancel(self) -> None:
        """End the replacement processes; all ranks call this."""
        self._tell(LEAVE)

    def _tell(self, word: int) -> None:
        """Send a message to the processes that are still alive."""
        if self._is_first:
            for rank in range(self._bridge.there):
                with suppress(RankLostError):
                    self._bridge.tell(rank, word)


class SimulatedGroup:
    """Simulated group of a process that has not joined: all ranks send its data.

    Args:
        bridge: the connection to the job.

    Attributes:
        rank: its future rank.
        size: the future size of the job.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.is_remote = False
        self._bridge = bridge
        self.rank = bridge.there + bridge.rank
        self.size = bridge.there + bridge.size

    def join(self) -> MpiGroup:
        """Wait until the job admits this process, and return the new group."""
        with suppress(RankLostError):  # the job has ended
            self._bridge.tell(0, READY)
            while (word := self._bridge.heard(0)) is None:
                time.sleep(_POLL_SECONDS)
            if word == JOIN:
                return self._bridge.merge(is_new=True)
        self.leave()

    def refuse(self) -> NoReturn:
        """End this process, and report to the job that it does not join."""
        with suppress(RankLostError):
            self._bridge.tell(0, LEAVE)
        self.leave()

    def leave(self) -> NoReturn:
        """End this process; the job continues without it."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        counts = [as_bytes(send).size] * self.size
        self.all_gather_varying(send, receive, counts)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        mine, whole = as_bytes(send), as_bytes(receive)
        check_parts("all_gather_varying", whole, counts, self.size)
        for start, count in zip(offsets_of(counts), counts, strict=True):
            if count != mine.size:
                self._cannot("all_gather_varying")
            whole[start : start + count] = mine

    def all_to_all(
        self,
        send: Buffer,
        send_counts: Sequence[int],
        receive: Buffer,
        receive_counts: Sequence[int],
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
    ) -> None:
        """See `Group.all_to_all`."""
        self._cannot("all_to_all")

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        self._cannot("send")

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        self._cannot("receive")

    def barrier(self) -> None:
        """See `Group.barrier`."""

    def split(self, color: int, key: int) -> Group:
        """See `Group.split`."""
        self._cannot("split")

    def duplicate(self) -> Group:
        """See `Group.duplicate`."""
        return self

    def close(self) -> None:
        """See `Group.close`."""

    def _cannot(self, name: str) -> NoReturn:
        raise LaunchError(
            f"{name}: a process in the place of a lost one joins the job in the first "
            "`fit` of the script; before it, other processes are needed here"
        )
