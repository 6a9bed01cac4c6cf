"""Group of ranks: the interface of all communication backends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from toolkit.errors import ArgumentError, ProgramMismatchError
from toolkit.type_aliases import Array

# Data to send: contiguous, of any dtype. Its bytes are sent unchanged.
Buffer: TypeAlias = Array | memoryview


class Group(Protocol):
    """Group of ranks that exchange bytes.

    All ranks of a group call the same collectives in the same order. Counts and offsets
    are in bytes.

    Attributes:
        rank: the rank of this process in the group.
        size: the number of ranks.
        is_remote: whether the ranks are on several machines, connected by a network.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def is_remote(self) -> bool: ...

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """Gather equal parts from all ranks into `receive`, in rank order."""

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """Gather `counts[r]` bytes from each rank r into `receive`, in rank order.

        `send` can be this rank's part of `receive` itself, on all ranks or on none.
        """

    def all_to_all(
        self,
        send: Buffer,
        send_counts: Sequence[int],
        receive: Buffer,
        receive_counts: Sequence[int],
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
    ) -> None:
        """Send `send_counts[r]` bytes to each rank r, and receive from each.

        Args:
            send, receive: buffers that do not overlap.
            send_counts, receive_counts: the number of bytes for each rank.
            send_offsets, receive_offsets: the offset of each part. None means
                contiguous parts.
        """

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """Broadcast the buffer of rank `root` to all ranks."""

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """Send to one rank; this can block until that rank receives."""

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """Receive from one rank; the message must fill the buffer exactly."""

    def barrier(self) -> None:
        """Wait until all ranks reach the barrier."""

    def split(self, color: int, key: int) -> Group:
        """Return the group of the ranks with the same color, ordered by key.

        Ranks with equal keys keep their order.
        """

    def duplicate(self) -> Group:
        """Return a group of the same ranks with a channel for another thread."""

    def close(self) -> None:
        """Free the resources of the group; all its ranks call this."""


def as_bytes(buffer: Buffer) -> Array:
    """Return the bytes of a contiguous buffer without a copy."""
    if not isinstance(buffer, np.ndarray):
        return np.frombuffer(buffer, np.uint8)
    if not buffer.flags.c_contiguous:
        raise ArgumentError(
            "group: expected a contiguous buffer; received an array of shape "
            f"{buffer.shape} with strides {buffer.strides}"
        )
    return buffer.reshape(-1).view(np.uint8)


def offsets_of(counts: Sequence[int]) -> list[int]:
    """Return the offsets of contiguous parts of these lengths."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts[:-1]


@lru_cache(maxsize=4096)
def split_range(
    start: int, stop: int, count: int, multiple: int
) -> tuple[tuple[int, int], ...]:
    """Split start..stop into `count` parts that start at multiples after `start`."""
    units = -(-(stop - start) // multiple)
    bounds = [
        min(start + i * units // count * multiple, stop) for i in range(count + 1)
    ]
    return tuple(zip(bounds[:-1], bounds[1:], strict=True))


def check_counts(name: str, buffer: Array, counts: Sequence[int], ranks: int) -> None:
    """Raise an error if a buffer does not match the total length of the parts."""
    if len(counts) != ranks or sum(counts) != buffer.size:
        raise ArgumentError(
            f"{name}: expected a buffer of {sum(counts)} bytes for {ranks} ranks; "
            f"received {buffer.size} bytes and {len(counts)} counts"
        )


# Subjects of small-number exchanges, and the operation that causes each.
SUBJECTS = {
    "lengths": "exchanges values, as `fit`, `evaluate` and `predict` do first",
    "stops": "agrees on a stop between two steps",
    "batches": "compares the next batch",
    "values": "compares the values of the next batch",
    "settings": "compares the settings of the optimizer, after an epoch",
}
_NUMBER_BITS = 48  # bits of a number; higher bits encode the subject


def exchange_number(group: Group, subject: str, number: int) -> list[int]:
    """Exchange a number; return the numbers of all ranks, in rank order.

    Args:
        group: the group; all its ranks call this.
        subject: the subject, one of `SUBJECTS`.
        number: a number in [0, 2 ** 48).

    Raises:
        ProgramMismatchError: on all ranks, if the subjects differ.
    """
    subjects = list(SUBJECTS)
    words = np.empty(group.size, np.int64)
    local_word = subjects.index(subject) << _NUMBER_BITS | number
    group.all_gather(np.array([local_word], np.int64), words)
    subject_indices = (words >> _NUMBER_BITS).tolist()
    if len(set(subject_indices)) > 1:
        actions = (
            f"rank {rank} {SUBJECTS[subjects[index]]}"
            for rank, index in enumerate(subject_indices)
        )
        raise ProgramMismatchError(
            f"ranks run different operations at the same time: {'; '.join(actions)}. "
            "All processes must call `fit`, `evaluate`, `predict` and other "
            "collective operations in the same order"
        )
    return [int(word) & ((1 << _NUMBER_BITS) - 1) for word in words]


def exchange(group: Group, value: Any) -> list[Any]:
    """Exchange a JSON value; return the values of all ranks, in rank order.

    Args:
        group: the group; all its ranks call this.
        value: a structure of strings, numbers, booleans, None, lists and dicts.

    Example:
        >>> from toolkit.comm import exchange, local
        >>> local.run(2, lambda group: exchange(group, {"rank": group.rank}))[0]
        [{'rank': 0}, {'rank': 1}]
    """
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = exchange_number(group, "lengths", text.size)
    received = np.empty(sum(lengths), np.uint8)
    group.all_gather_varying(text, received, lengths)
    spans = zip(offsets_of(lengths), lengths, strict=True)
    return [json.loads(received[i : i + n].tobytes()) for i, n in spans]
