"""Group of processes that exchange bytes over encrypted sockets or shared memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from toolkit.comm.group import Buffer, as_bytes, check_counts, offsets_of
from toolkit.comm.shared import map_memory
from toolkit.comm.sockets.memory import MemoryExchange, is_supported, memory_size
from toolkit.comm.sockets.messages import MessageExchange
from toolkit.comm.sockets.node import Node
from toolkit.errors import ArgumentError, CommunicationError
from toolkit.type_aliases import Array

# Channel on which the remaining processes agree on a group after a loss.
_SHRINK = "shrink"


def channel_of(members: Sequence[int]) -> str:
    """Return the channel of the group of all ranks, for these processes."""
    text = ",".join(map(str, members)).encode()
    return f"world {hashlib.blake2b(text, digest_size=8).hexdigest()}"


class SocketGroup:
    """Group of processes of a job.

    Collectives of ranks on one machine use shared memory, if the system permits it.

    Args:
        node: the connections of this process.
        channel: the name of the group, different for all groups of the job.
        members: the processes of the group, in rank order.

    Attributes:
        rank: the rank of this process.
        size: the number of ranks.
        is_closed: whether `close` was called.
        members: the processes.
        channel: the name of the group.
    """

    def __init__(self, node: Node, channel: str, members: Sequence[int]) -> None:
        self.node = node
        self.members = list(members)
        self.rank = self.members.index(node.process)
        self.size = len(self.members)
        self.is_closed = False
        self.channel = channel
        self._messages = MessageExchange(node, channel, self.members)
        self._collectives: MessageExchange | MemoryExchange | None = None
        self._num_derived = 0
        self._checked_failures = -1

    @property
    def is_remote(self) -> bool:
        """See `Group`."""
        addresses = self.node.addresses
        return len({addresses[process].machine for process in self.members}) > 1

    def check(self) -> None:
        """Raise an error if a member is lost, or the group is revoked."""
        failures = self.node.inbox.failures
        if failures != self._checked_failures:
            self.node.inbox.check(self.channel, self.members)
            self._checked_failures = failures

    def _exchange(self) -> MessageExchange | MemoryExchange:
        """Return the exchange for collectives; the first call is collective."""
        self.check()
        if self._collectives is None:
            self._collectives = self._messages
            # The name of a machine is not a proof: the ranks try to share memory.
            if self.size > 1 and not self.is_remote and is_supported():
                memory = map_memory(self, memory_size(self.size))
                if memory is not None:
                    self._collectives = MemoryExchange(
                        memory, self.rank, self.size, self.check
                    )
        return self._collectives

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        counts = [as_bytes(send).size] * self.size
        self._all_gather("all_gather", send, receive, counts)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        self._all_gather("all_gather_varying", send, receive, counts)

    def _all_gather(
        self, name: str, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        source, target = as_bytes(send), as_bytes(receive)
        check_counts(name, target, counts, self.size)
        starts, count = offsets_of(counts), counts[self.rank]
        if source.size != count:
            raise ArgumentError(
                f"{name}: rank {self.rank} expected {count} bytes to send; received "
                f"{source.size}"
            )
        segment = target[starts[self.rank] :][:count]
        if source.ctypes.data != segment.ctypes.data:
            segment[:] = source
        self._exchange().all_gather_varying(target, starts, counts)

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
        sends = _parts_of(as_bytes(send), send_counts, send_offsets)
        receives = _parts_of(as_bytes(receive), receive_counts, receive_offsets)
        local_part = sends.pop(self.rank, None)
        local_target = receives.pop(self.rank, None)
        if send_counts[self.rank] != receive_counts[self.rank]:
            raise ArgumentError(
                f"all_to_all: rank {self.rank} expected {receive_counts[self.rank]} "
                f"bytes from itself; received {send_counts[self.rank]}"
            )
        if local_part is not None and local_target is not None:
            local_target[:] = local_part
        self._exchange().all_to_all(sends, receives)

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        content = as_bytes(buffer)
        counts = [content.size if rank == root else 0 for rank in range(self.size)]
        self._exchange().all_gather_varying(content, offsets_of(counts), counts)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        self._check_peer("send", to)
        self._messages.exchange("send", {to: as_bytes(buffer)}, {}, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        self._check_peer("receive", source)
        self._messages.exchange("receive", {}, {source: as_bytes(buffer)}, tag)

    def _check_peer(self, name: str, rank: int) -> None:
        if rank == self.rank or not 0 <= rank < self.size:
            raise ArgumentError(
                f"{name}: expected another rank of {self.size}; received {rank}"
            )

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._exchange().barrier()

    def split(self, color: int, key: int) -> SocketGroup:
        """See `Group.split`."""
        table = np.empty((self.size, 2), np.int64)
        self.all_gather(np.array([color, key], np.int64), table)
        order = sorted(
            (int(row_key), rank)
            for rank, (row_color, row_key) in enumerate(table.tolist())
            if row_color == color
        )
        members = [self.members[rank] for _, rank in order]
        return SocketGroup(self.node, self._derive_channel(color), members)

    def duplicate(self) -> SocketGroup:
        """See `Group.duplicate`."""
        return SocketGroup(self.node, self._derive_channel(0), self.members)

    def _derive_channel(self, color: int) -> str:
        """Return the channel of the next derived group, equal on all of its ranks."""
        self._num_derived += 1
        return f"{self.channel}/{self._num_derived}.{color}"

    def close(self) -> None:
        """See `Group.close`."""
        self.is_closed = True
        self.node.inbox.close(self.channel)

    # --- lost ranks -------------------------------------------------------------------

    def revoke(self) -> None:
        """Abort pending calls of all ranks in this group with `RankLostError`."""
        self.node.revoke(self.channel, self.members)

    def shrink(self) -> SocketGroup:
        """Return the group of the remaining ranks, in their order.

        Each rank sends the name of the group without the ranks that it has lost, until
        all remaining ranks have sent the same name. A rank that loses another one
        sends a new name.
        """
        node, inbox, sent_channels = self.node, self.node.inbox, set()
        while True:
            version = inbox.version
            if node.process in inbox.lost_processes:
                raise CommunicationError(
                    f"shrink: another rank has lost the connection to rank {self.rank}"
                )
            members = [
                process
                for process in self.members
                if process not in inbox.lost_processes
            ]
            is_smaller = len(members) < self.size
            channel = channel_of(members) if is_smaller else f"{self.channel}'"
            if channel not in sent_channels:
                sent_channels.add(channel)
                for process in members:
                    node.send_json(process, _SHRINK, channel)
            if all(
                channel in self._proposals(process)
                for process in members
                if process != node.process
            ):
                return SocketGroup(node, channel, members)
            inbox.wait(version)

    def _proposals(self, process: int) -> list[str]:
        """Return the channels that another process has proposed after losses."""
        messages = self.node.inbox.peek(_SHRINK, process, 0)
        return [json.loads(message.content.tobytes()) for message in messages]


def _parts_of(
    content: Array, counts: Sequence[int], offsets: Sequence[int] | None
) -> dict[int, Array]:
    """Return the parts of a buffer that are not empty, by rank."""
    starts = offsets_of(counts) if offsets is None else offsets
    return {
        rank: content[start : start + count]
        for rank, (start, count) in enumerate(zip(starts, counts, strict=True))
        if count
    }
