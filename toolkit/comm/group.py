"""A group of ranks: what each way of moving bytes between processes offers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from toolkit.errors import ArgumentError, ProgramMismatchError

Array: TypeAlias = np.ndarray[Any, Any]
# What can be sent: contiguous, of any dtype; its bytes go as they are.
Buffer: TypeAlias = Array | memoryview


class Group(Protocol):
    """The ranks of a job, or some of them, that exchange bytes.

    All ranks of a group call the same collectives in the same order. Counts and offsets
    are in bytes.

    Attributes:
        rank: the position of this process in the group.
        size: how many ranks there are.
        is_remote: whether they are on several machines: bytes go over a network.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def is_remote(self) -> bool: ...

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """Put the bytes of all ranks into `receive`, in equal parts by rank."""

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """Put `counts[r]` bytes of each rank r into `receive`, one after the other.

        `send` may be this rank's part of `receive` itself, on all ranks or on none.
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
            send_counts, receive_counts: of bytes, by rank.
            send_offsets, receive_offsets: where each part starts; one after the other
                if None.
        """

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """Fill `buffer` with that of rank `root`."""

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """Send to one rank; it may wait until that rank receives."""

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """Wait for what one rank sends; it must fill the buffer exactly."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def split(self, color: int, key: int) -> Group:
        """The group of the ranks that gave the same color, in the order of their keys.

        Equal keys keep the order of the ranks.
        """

    def duplicate(self) -> Group:
        """The same ranks with a channel of their own, for another thread."""

    def close(self) -> None:
        """Free what the group holds; all its ranks do."""


def as_bytes(buffer: Buffer) -> Array:
    """The bytes of a contiguous buffer, not copied."""
    if not isinstance(buffer, np.ndarray):
        return np.frombuffer(buffer, np.uint8)
    if not buffer.flags.c_contiguous:
        raise ArgumentError(
            "group: expected a contiguous buffer; received an array of shape "
            f"{buffer.shape} with strides {buffer.strides}"
        )
    return buffer.reshape(-1).view(np.uint8)


def offsets_of(counts: Sequence[int]) -> list[int]:
    """Where parts of these lengths start that follow each other."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts[:-1]


@lru_cache(maxsize=4096)
def cut(
    start: int, stop: int, count: int, multiple: int
) -> tuple[tuple[int, int], ...]:
    """Cut start..stop into `count` parts that start at multiples after `start`."""
    units = -(-(stop - start) // multiple)
    bounds = [
        min(start + i * units // count * multiple, stop) for i in range(count + 1)
    ]
    return tuple(zip(bounds[:-1], bounds[1:], strict=True))


def check_parts(name: str, whole: Array, counts: Sequence[int], ranks: int) -> None:
    """Refuse a buffer that is not as long as the parts of all ranks."""
    if len(counts) != ranks or sum(counts) != whole.size:
        raise ArgumentError(
            f"{name}: expected a buffer of {sum(counts)} bytes for {ranks} ranks; "
            f"received {whole.size} bytes and {len(counts)} counts"
        )


# What small numbers tell, and what a rank does that tells it.
SUBJECTS = {
    "lengths": "exchanges values, as `fit`, `evaluate` and `predict` do first",
    "stops": "agrees on whether to stop, between two steps",
    "batches": "compares the next batch",
    "settings": "compares the settings of the optimizer, after an epoch",
}
_BITS = 48  # of a number; those above say what it tells


def tell(group: Group, subject: str, number: int) -> list[int]:
    """The numbers of all ranks, by rank.

    Args:
        group: all of whose ranks call this.
        subject: what they tell, of `SUBJECTS`.
        number: in [0, 2 ** 48).

    Raises:
        ProgramMismatchError: on all ranks, if some tell of something else.
    """
    kinds = list(SUBJECTS)
    words = np.empty(group.size, np.int64)
    mine = kinds.index(subject) << _BITS | number
    group.all_gather(np.array([mine], np.int64), words)
    told = (words >> _BITS).tolist()
    if len(set(told)) > 1:
        doing = (
            f"rank {rank} {SUBJECTS[kinds[kind]]}" for rank, kind in enumerate(told)
        )
        raise ProgramMismatchError(
            f"ranks do different things at the same time: {'; '.join(doing)}. `fit`, "
            "`evaluate`, `predict` and all else that processes do together has to be "
            "called by all of them, in the same order"
        )
    return [int(word) & ((1 << _BITS) - 1) for word in words]


def exchange(group: Group, value: Any) -> list[Any]:
    """The values of all ranks, by rank; each is sent as JSON.

    Args:
        group: all of whose ranks call this.
        value: of strings, numbers, booleans, None, lists and dicts.

    Example:
        >>> from toolkit.comm import exchange, local
        >>> local.run(2, lambda group: exchange(group, {"rank": group.rank}))[0]
        [{'rank': 0}, {'rank': 1}]
    """
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = tell(group, "lengths", text.size)
    received = np.empty(sum(lengths), np.uint8)
    group.all_gather_varying(text, received, lengths)
    parts = zip(offsets_of(lengths), lengths, strict=True)
    return [json.loads(received[i : i + n].tobytes()) for i, n in parts]
