"""Received messages of a process, and the peers that it has lost."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from toolkit.errors import RankLostError
from toolkit.type_aliases import Array

# Seconds between two checks of a thread that waits; a signal handler runs meanwhile.
_WAKE_SECONDS = 1.0


class Message(NamedTuple):
    """Received message, or a chunk of a large one.

    Attributes:
        total: the number of bytes of the complete message.
        content: the bytes of this chunk.
    """

    total: int
    content: Array


class Inbox:
    """Messages by channel, sender and tag; threads wait for them here.

    Attributes:
        version: the number of events: messages, losses and revocations.
        lost_processes: the processes that have ended.
        failures: the number of losses, revocations and interrupts.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queues: dict[tuple[str, int, int], deque[Message]] = {}
        self._unacknowledged: dict[tuple[str, int], int] = {}
        self._closed_channels: set[str] = set()
        self._revoked_channels: set[str] = set()
        self.version = 0
        self.failures = 0
        self.lost_processes: set[int] = set()
        self._interrupt: Callable[[], None] | None = None

    def push(self, channel: str, source: int, tag: int, message: Message) -> None:
        """Store a message that has arrived."""
        with self._condition:
            if channel not in self._closed_channels:
                self._queues.setdefault((channel, source, tag), deque()).append(message)
            self._notify()

    def pop(self, channel: str, source: int, tag: int) -> Message | None:
        """Return and remove the next message, or None if none has arrived."""
        with self._condition:
            queue = self._queues.get((channel, source, tag))
            return queue.popleft() if queue else None

    def peek(self, channel: str, source: int, tag: int) -> Sequence[Message]:
        """Return the messages that have arrived."""
        with self._condition:
            return list(self._queues.get((channel, source, tag), ()))

    def add_unacknowledged(self, channel: str, peer: int, nbytes: int) -> None:
        """Count bytes that a peer has not yet consumed; negative after it has."""
        with self._condition:
            key = channel, peer
            self._unacknowledged[key] = self._unacknowledged.get(key, 0) + nbytes
            if nbytes < 0:
                self._notify()

    def unacknowledged(self, channel: str, peer: int) -> int:
        """Return the number of bytes that a peer has not yet consumed."""
        return self._unacknowledged.get((channel, peer), 0)

    def mark_lost(self, process: int) -> None:
        """Record that a process has ended."""
        with self._condition:
            self.lost_processes.add(process)
            self.failures += 1
            self._notify()

    def revoke(self, channel: str) -> None:
        """Abort the calls of a channel."""
        with self._condition:
            self._revoked_channels.add(channel)
            self.failures += 1
            self._notify()

    def interrupt(self, raise_error: Callable[[], None] | None) -> None:
        """Abort the calls of all channels, by a function that raises the error.

        Args:
            raise_error: the function; None permits calls again.
        """
        with self._condition:
            self._interrupt = raise_error
            self.failures += 1
            self._notify()

    def close(self, channel: str) -> None:
        """Drop the messages of a channel, now and later."""
        with self._condition:
            self._closed_channels.add(channel)
            for key in [key for key in self._queues if key[0] == channel]:
                del self._queues[key]

    def notify(self) -> None:
        """Wake the threads that wait."""
        with self._condition:
            self._notify()

    def _notify(self) -> None:
        self.version += 1
        self._condition.notify_all()

    def wait(self, version: int, seconds: float = _WAKE_SECONDS) -> None:
        """Wait until something happens after `version`, or some time passes."""
        with self._condition:
            self._condition.wait_for(lambda: self.version != version, seconds)

    def wait_for(
        self, channel: str, source: int, tag: int, seconds: float
    ) -> Message | None:
        """Return the next message, or None if it is late or the source is lost."""
        end = time.monotonic() + seconds
        while True:
            version = self.version
            message = self.pop(channel, source, tag)
            remaining = end - time.monotonic()
            if message is not None or remaining <= 0 or source in self.lost_processes:
                return message
            self.wait(version, remaining)

    def check(self, channel: str, members: Sequence[int]) -> None:
        """Raise an error if a channel cannot be used any more.

        Args:
            channel: the channel.
            members: the processes of the channel, in rank order.

        Raises:
            RankLostError: a process has ended, or a rank revoked the channel.
            ToolkitError: the error of `interrupt`.
        """
        if self._interrupt is not None:
            self._interrupt()
        for rank, process in enumerate(members):
            if process in self.lost_processes:
                raise RankLostError(
                    f"rank {rank} of {len(members)} is lost: its process has ended"
                )
        if channel in self._revoked_channels:
            raise RankLostError(
                f"another rank has revoked this group of {len(members)} ranks after "
                "the loss of a rank"
            )
