"""Connection between a job and processes that replace lost ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from toolkit.comm.sockets.group import SocketGroup, channel_of
from toolkit.comm.sockets.node import DATA, Node
from toolkit.comm.sockets.rendezvous import has_ended
from toolkit.errors import RankLostError

# Seconds until all members of a job are connected to a replacement.
_MERGE_TIMEOUT = 10.0


class SocketBridge:
    """Connection between a job and the processes that replace lost ones.

    Args:
        node: the connections of this process.
        local_members: the processes of this side.
        remote_members: the processes of the other side.
        folder: the folder of the job.
    """

    def __init__(
        self,
        node: Node,
        local_members: Sequence[int],
        remote_members: Sequence[int],
        folder: Path,
    ) -> None:
        self._node = node
        self._folder = folder
        self._local_members = list(local_members)
        self._remote_members = list(remote_members)
        self.rank = self._local_members.index(node.process)
        self.size = len(self._local_members)
        self.remote_size = len(self._remote_members)
        new_members = max(self._local_members, self._remote_members)
        self._channel = f"bridge {new_members[0]}"

    def send_message(self, to: int, message: int) -> None:
        """See `Bridge.send_message`."""
        content = bytes([message])
        process = self._remote_members[to]
        self._check(process)
        self._node.send(process, DATA, self._channel, 0, 1, content)

    def poll_message(self, source: int) -> int | None:
        """See `Bridge.poll_message`."""
        process = self._remote_members[source]
        message = self._node.inbox.pop(self._channel, process, 0)
        if message is not None:
            return int(message.content[0])
        self._check(process)
        return None

    def _check(self, process: int) -> None:
        if process in self._node.inbox.lost_processes or has_ended(
            self._folder, process
        ):
            raise RankLostError(f"process {process} of the job has ended")

    def merge(self, is_new: bool) -> SocketGroup:
        """See `Bridge.merge`."""
        members = [*self._local_members, *self._remote_members]
        if is_new:
            members = [*self._remote_members, *self._local_members]
        self._wait_for_connections(members)
        group = SocketGroup(self._node, channel_of(members), members)
        group.barrier()
        return group

    def _wait_for_connections(self, members: Sequence[int]) -> None:
        """Wait until the new processes have introduced themselves."""
        deadline = time.monotonic() + _MERGE_TIMEOUT
        while not set(members) <= set(self._node.addresses):
            version = self._node.inbox.version
            for process in members:
                self._check(process)
            if time.monotonic() > deadline:
                raise RankLostError("a replacement process does not connect")
            self._node.inbox.wait(version, 0.05)
