"""Processes that take the place of lost ranks: how they are started, and let in.

They run the script from its start, beside the job, up to where they can join it. Until
then their group is one in which every rank seems to say what they say.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from toolkit.comm.group import Buffer, Group, as_bytes, check_parts, offsets_of
from toolkit.comm.mpi import Bridge, MpiGroup
from toolkit.errors import LaunchError

# Words between rank 0 of a job and those that would join it.
READY, JOIN, LEAVE = 1, 2, 3
# What `Coming.state` is.
STARTING, IS_READY, HAS_FAILED = 0, 1, 2
_PAUSE = 0.01  # seconds between two looks


class Coming:
    """Processes that were started for lost ranks, and are not in the job yet.

    All ranks of the job make it; none of them waits for the processes.

    Args:
        group: of the job.
        count: how many to start.
        arguments: for Python.

    Attributes:
        state: STARTING, IS_READY or HAS_FAILED, as this rank knows.
    """

    def __init__(self, group: MpiGroup, count: int, arguments: Sequence[str]) -> None:
        self.state = STARTING
        self._group = group.duplicate()
        self._bridge: Bridge | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._start, args=(count, arguments), name="toolkit replacements"
        )
        self._thread.daemon = True
        self._thread.start()

    def _start(self, count: int, arguments: Sequence[str]) -> None:
        try:
            bridge = self._bridge = self._group.spawn(arguments, count)
            waiting = set(range(count)) if self._group.rank == 0 else set()
            while waiting and not self._is_over.wait(_PAUSE):
                for rank in list(waiting):
                    word = bridge.heard(rank)
                    if word == LEAVE:
                        raise LaunchError(f"replacement {rank} cannot join")
                    if word == READY:
                        waiting.remove(rank)
            self.state = IS_READY
        except Exception as error:  # the job goes on as it is
            self.state = HAS_FAILED
            print(f"toolkit: no lost rank is replaced: {error}", file=sys.stderr)

    def merge(self) -> MpiGroup:
        """The group of the job with them; all ranks call this when all are ready."""
        assert self._bridge is not None
        if self._group.rank == 0:
            for rank in range(self._bridge.there):
                self._bridge.tell(rank, JOIN)
        return self._bridge.merge(is_new=False)

    def cancel(self) -> None:
        """Send them away; all ranks call this."""
        self._is_over.set()
        self._thread.join(5)
        if self._bridge is not None and self._group.rank == 0:
            for rank in range(self._bridge.there):
                self._bridge.tell(rank, LEAVE)


class Outside:
    """The group of a process that is not in the job yet: all ranks say what it says.

    Args:
        bridge: to the job.

    Attributes:
        rank: that it will have.
        size: that the job will have.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.is_remote = False
        self._bridge = bridge
        self.rank = bridge.there + bridge.rank
        self.size = bridge.there + bridge.here

    def join(self) -> MpiGroup:
        """Wait until the job lets this process in; its group from then on."""
        self._bridge.tell(0, READY)
        try:
            while (word := self._bridge.heard(0)) is None:
                time.sleep(_PAUSE)
            if word == JOIN:
                return self._bridge.merge(is_new=True)
        except Exception:
            pass
        self.leave()

    def refuse(self) -> NoReturn:
        """End this process, and tell the job that it does not join."""
        self._bridge.tell(0, LEAVE)
        self.leave()

    def leave(self) -> NoReturn:
        """End this process; the job does not miss it."""
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
