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

from toolkit.comm.engine import Bridge, ElasticGroup
from toolkit.comm.group import Buffer, Group, as_bytes, check_counts, offsets_of
from toolkit.errors import LaunchError, RankLostError

# Messages between rank 0 of a job and its replacement processes.
READY, JOIN, LEAVE = 1, 2, 3
# Values of `PendingReplacements.state`.
STARTING, IS_READY, HAS_FAILED = 0, 1, 2
_POLL_SECONDS = 0.01  # seconds between two polls


class PendingReplacements:
    """Replacement processes that have not joined the job.

    All ranks of the job create it, and wait for the start of the processes. Open MPI
    cannot spawn processes in one thread while another thread creates groups.

    Args:
        bridge: the connection to the processes.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._is_first_rank = bridge.rank == 0
        self._bridge = bridge
        self._starting = set(range(bridge.remote_size if self._is_first_rank else 0))
        self._has_failure = False

    @property
    def state(self) -> int:
        """Return STARTING, IS_READY or HAS_FAILED, as seen by this rank."""
        for rank in list(self._starting):
            try:
                message = self._bridge.poll_message(rank)
            except RankLostError:
                message = LEAVE
            if message is not None:
                self._starting.remove(rank)
                self._has_failure |= message == LEAVE
        if self._has_failure:
            return HAS_FAILED
        return STARTING if self._starting else IS_READY

    def merge(self) -> ElasticGroup | None:
        """Return the merged group; all ranks call this when all are ready.

        Returns:
            None if one of them is lost, although other ranks can succeed.
        """
        self._send_to_all(JOIN)
        try:
            return self._bridge.merge(is_new=False)
        except RankLostError:
            return None

    def cancel(self) -> None:
        """End the replacement processes; all ranks call this."""
        self._send_to_all(LEAVE)

    def _send_to_all(self, message: int) -> None:
        """Send a message to the processes that are still alive."""
        if self._is_first_rank:
            for rank in range(self._bridge.remote_size):
                with suppress(RankLostError):
                    self._bridge.send_message(rank, message)


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
        self.rank = bridge.remote_size + bridge.rank
        self.size = bridge.remote_size + bridge.size

    def join(self) -> ElasticGroup:
        """Wait until the job admits this process, and return the new group."""
        with suppress(RankLostError):  # the job has ended
            self._bridge.send_message(0, READY)
            while (message := self._bridge.poll_message(0)) is None:
                time.sleep(_POLL_SECONDS)
            if message == JOIN:
                return self._bridge.merge(is_new=True)
        self.exit_process()

    def decline_and_exit(self) -> NoReturn:
        """End this process, and report to the job that it does not join."""
        with suppress(RankLostError):
            self._bridge.send_message(0, LEAVE)
        self.exit_process()

    def exit_process(self) -> NoReturn:
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
        source, target = as_bytes(send), as_bytes(receive)
        check_counts("all_gather_varying", target, counts, self.size)
        for start, count in zip(offsets_of(counts), counts, strict=True):
            if count != source.size:
                self._raise_unsupported("all_gather_varying")
            target[start : start + count] = source

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
        self._raise_unsupported("all_to_all")

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        self._raise_unsupported("send")

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        self._raise_unsupported("receive")

    def barrier(self) -> None:
        """See `Group.barrier`."""

    def split(self, color: int, key: int) -> Group:
        """See `Group.split`."""
        self._raise_unsupported("split")

    def duplicate(self) -> Group:
        """See `Group.duplicate`."""
        return self

    def close(self) -> None:
        """See `Group.close`."""

    def _raise_unsupported(self, name: str) -> NoReturn:
        raise LaunchError(
            f"{name}: a replacement process joins the job in the first `fit` of its "
            "script, but this earlier operation needs other processes"
        )
