"""Exchanges of a group as messages, for ranks of any machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from toolkit.comm.sockets.node import ACKNOWLEDGE, CHUNK_SIZE, DATA, Node
from toolkit.errors import CommunicationError
from toolkit.type_aliases import Array

# Tags of collectives; `send` and `receive` have other tags.
_TAGS = {"barrier": -1, "all_gather": -2, "all_to_all": -3}
# Receivers acknowledge chunks of at least this number of bytes.
_MIN_ACKNOWLEDGED = 64 << 10
# Maximum number of bytes that a peer has not acknowledged, for each group.
_WINDOW = 8 << 20


class _Transfer:
    """Message in progress, to or from one rank.

    Attributes:
        rank: the other rank.
        content: the bytes that remain.
        has_ended: whether all chunks are transferred; an empty message has one.
    """

    def __init__(self, rank: int, content: Array) -> None:
        self.rank, self.content = rank, content
        self.total = content.size
        self.has_ended = False

    def advance(self, nbytes: int) -> None:
        self.content = self.content[nbytes:]
        self.has_ended = not self.content.size


class MessageExchange:
    """Exchanges between ranks by messages.

    Each rank sends directly to each peer. A sender waits for a slow receiver, so that
    the memory of the receiver is limited.

    Args:
        node: the connections of this process.
        channel: the name of the group, different for all groups of the job.
        members: the processes of the group, in rank order.
    """

    def __init__(self, node: Node, channel: str, members: Sequence[int]) -> None:
        self._node = node
        self._channel = channel
        self._members = members
        self._rank = members.index(node.process)

    def exchange(
        self,
        operation: str,
        sends: Mapping[int, Array],
        receives: Mapping[int, Array],
        tag: int | None = None,
    ) -> None:
        """Send to some ranks, and receive from some ranks at the same time.

        Args:
            operation: the operation, for errors.
            sends, receives: the bytes by rank.
            tag: the tag of the messages; None for a collective.
        """
        tag = _TAGS[operation] if tag is None else tag
        outgoing = [_Transfer(rank, content) for rank, content in sends.items()]
        incoming = [_Transfer(rank, content) for rank, content in receives.items()]
        inbox = self._node.inbox
        while True:
            version = inbox.version
            has_progress = [self._send(transfer, tag) for transfer in outgoing]
            has_progress += [self._receive(operation, t, tag) for t in incoming]
            outgoing = [transfer for transfer in outgoing if not transfer.has_ended]
            incoming = [transfer for transfer in incoming if not transfer.has_ended]
            if not (outgoing or incoming):
                return
            if not any(has_progress):
                inbox.check(self._channel, self._members)
                inbox.wait(version)

    def _send(self, transfer: _Transfer, tag: int) -> bool:
        """Send the chunks that the window permits; return whether there is one."""
        process, inbox = self._members[transfer.rank], self._node.inbox
        has_progress = False
        while not transfer.has_ended:
            chunk = transfer.content[:CHUNK_SIZE]
            if chunk.size >= _MIN_ACKNOWLEDGED:
                if inbox.unacknowledged(self._channel, process) >= _WINDOW:
                    break
                inbox.add_unacknowledged(self._channel, process, chunk.size)
            self._node.send(process, DATA, self._channel, tag, transfer.total, chunk)
            transfer.advance(chunk.size)
            has_progress = True
        return has_progress

    def _receive(self, operation: str, transfer: _Transfer, tag: int) -> bool:
        """Receive the chunks that have arrived; return whether there is one."""
        process, inbox = self._members[transfer.rank], self._node.inbox
        has_progress = False
        while not transfer.has_ended:
            message = inbox.pop(self._channel, process, tag)
            if message is None:
                break
            if message.total != transfer.total:
                raise CommunicationError(
                    f"{operation}: rank {self._rank} expected {transfer.total} bytes "
                    f"from rank {transfer.rank}; received {message.total}"
                )
            nbytes = message.content.size
            transfer.content[:nbytes] = message.content
            transfer.advance(nbytes)
            if nbytes >= _MIN_ACKNOWLEDGED:
                self._node.send(process, ACKNOWLEDGE, self._channel, total=nbytes)
            has_progress = True
        return has_progress

    def all_gather_varying(
        self, target: Array, starts: Sequence[int], counts: Sequence[int]
    ) -> None:
        """Gather the parts of all ranks; this rank's part is already in `target`."""
        segments = {
            rank: target[start : start + count]
            for rank, (start, count) in enumerate(zip(starts, counts, strict=True))
        }
        local_segment = segments.pop(self._rank)
        receives = {rank: target for rank, target in segments.items() if target.size}
        sends = dict.fromkeys(segments, local_segment) if local_segment.size else {}
        self.exchange("all_gather", sends, receives)

    def all_to_all(
        self, sends: Mapping[int, Array], receives: Mapping[int, Array]
    ) -> None:
        """Send to each rank and receive from each, without empty parts."""
        self.exchange("all_to_all", sends, receives)

    def barrier(self) -> None:
        """Wait until all ranks reach the barrier, in logarithmic time."""
        size, distance = len(self._members), 1
        signal = np.zeros(1, np.uint8)
        while distance < size:
            successor = (self._rank + distance) % size
            predecessor = (self._rank - distance) % size
            self.exchange("barrier", {successor: signal}, {predecessor: signal.copy()})
            distance *= 2
