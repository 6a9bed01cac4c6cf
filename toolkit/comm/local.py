"""Virtual ranks: threads of one process, for tests and single-process jobs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from toolkit.comm.group import Array, Buffer, Group, as_bytes, check_parts, offsets_of
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    RankLostError,
    StalledError,
)

Result = TypeVar("Result")


def run(
    count: int, function: Callable[[Group], Result], timeout: float = 60
) -> list[Result]:
    """Call a function on `count` virtual ranks and return the results.

    An exception on one rank ends all ranks and is raised to the caller.

    Args:
        count: the number of ranks; each is a thread.
        function: a function of the group.
        timeout: seconds until a rank that waits for other ranks raises an error.

    Returns:
        The results in rank order.

    Raises:
        StalledError: a rank exceeds the timeout, or waits for a rank that has returned.

    Example:
        >>> from toolkit.comm import local
        >>> local.run(3, lambda group: group.rank)
        [0, 1, 2]
    """
    if count < 1:
        raise ArgumentError(f"run: expected at least one rank; received {count}")
    job = _Job(timeout)
    room = _GroupState(count, list(range(count)))
    results: list[Any] = [None] * count

    def of(rank: int) -> None:
        try:
            results[rank] = function(LocalGroup(job, room, rank))
            job.ended(rank)
        except BaseException as error:  # raised below
            job.fail(error)

    threads = [
        threading.Thread(target=of, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if job.error is not None:
        raise job.error
    return results


def single(timeout: float = 60) -> LocalGroup:
    """Return the group of this process only."""
    return LocalGroup(_Job(timeout), _GroupState(1, [0]), 0)


class LocalGroup:
    """Group of one virtual rank.

    Sends block until the receive, as large messages do between processes. A program
    that works with virtual ranks thus does not depend on message sizes.
    """

    is_remote = False

    def __init__(self, job: _Job, room: _GroupState, rank: int) -> None:
        self._job = job
        self._room = room
        self.rank = rank
        self.size = room.size

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        count = as_bytes(send).size
        self._all_gather("all_gather", send, receive, [count] * self.size)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        self._all_gather("all_gather_varying", send, receive, counts)

    def _all_gather(
        self, name: str, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        check_parts(name, as_bytes(receive), counts, self.size)
        parts = [
            _PublishedBuffer(part, count)
            for part, count in zip(
                self._meet(name, as_bytes(send)), counts, strict=True
            )
        ]
        self._take(name, parts, as_bytes(receive), offsets_of(counts), counts)

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
        source = as_bytes(send)
        starts = send_offsets or offsets_of(send_counts)
        mine = [source[i : i + n] for i, n in zip(starts, send_counts, strict=True)]
        parts = [
            _PublishedBuffer(theirs[self.rank], count)
            for theirs, count in zip(
                self._meet("all_to_all", mine), receive_counts, strict=True
            )
        ]
        places = receive_offsets or offsets_of(receive_counts)
        self._take("all_to_all", parts, as_bytes(receive), places, receive_counts)

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        _check_rank("broadcast: root", root, self.size)
        mine = as_bytes(buffer)
        part = _PublishedBuffer(self._meet("broadcast", mine)[root], mine.size)
        self._take("broadcast", [part], mine, [0], [mine.size])

    def _take(
        self,
        name: str,
        parts: list[_PublishedBuffer],
        receive: Array,
        offsets: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        """Copy the parts that other ranks published, and release them."""
        for rank, (part, start, count) in enumerate(
            zip(parts, offsets, counts, strict=True)
        ):
            if part.source.size != part.expected:
                raise CommunicationError(
                    f"{name}: rank {self.rank} expected {part.expected} bytes from "
                    f"rank {rank}; it sent {part.source.size}"
                )
            target = receive[start : start + count]
            if count and part.source.ctypes.data != target.ctypes.data:
                target[:] = part.source
        self._meet(name, None)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        _check_rank("send: to", to, self.size)
        letter = _Message(as_bytes(buffer), threading.Event())
        with self._job.changed:
            self._room.letters(self.rank, to, tag).append(letter)
            self._job.changed.notify_all()
            self._wait(
                f"send to rank {to}", lambda: [] if letter.taken.is_set() else [to]
            )

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        _check_rank("receive: source", source, self.size)
        target = as_bytes(buffer)
        with self._job.changed:
            letters = self._room.letters(source, self.rank, tag)
            self._wait(
                f"receive from rank {source}", lambda: [] if letters else [source]
            )
            letter = letters.popleft()
            if letter.content.size != target.size:
                raise CommunicationError(
                    f"receive: rank {self.rank} expected {target.size} bytes from "
                    f"rank {source}; it sent {letter.content.size}"
                )
            target[:] = letter.content
            letter.taken.set()
            self._job.changed.notify_all()

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._meet("barrier", None)

    def split(self, color: int, key: int) -> LocalGroup:
        """See `Group.split`."""
        given = self._meet("split", (color, key))
        ranks = [r for r, (other, _) in enumerate(given) if other == color]
        ranks.sort(key=lambda rank: (given[rank][1], rank))
        return self._inner("split", ("split", color), ranks)

    def duplicate(self) -> LocalGroup:
        """See `Group.duplicate`."""
        self._meet("duplicate", None)
        return self._inner("duplicate", ("duplicate",), list(range(self.size)))

    def _inner(self, name: str, key: tuple[Any, ...], ranks: list[int]) -> LocalGroup:
        members = [self._room.members[rank] for rank in ranks]
        with self._job.changed:
            room = self._room.inner.setdefault(key, _GroupState(len(ranks), members))
        self._meet(name, None)
        self._room.inner.pop(key, None)
        self._meet(name, None)
        return LocalGroup(self._job, room, ranks.index(self.rank))

    def close(self) -> None:
        """See `Group.close`."""

    def _meet(self, name: str, value: Any) -> list[Any]:
        """Wait until all ranks reach the same call, and return their values."""
        room = self._room
        with self._job.changed:
            turn = room.turns[self.rank]
            room.turns[self.rank] += 1
            meeting = room.meetings.setdefault(turn, {})
            meeting[self.rank] = name, value
            self._job.changed.notify_all()
            self._wait(name, lambda: [r for r in range(self.size) if r not in meeting])
            # The last ranks do not find the meeting, but hold a reference to it.
            room.meetings.pop(turn, None)
        names = [meeting[rank][0] for rank in range(self.size)]
        if len(set(names)) > 1:
            called = ", ".join(f"rank {r} {name}" for r, name in enumerate(names))
            raise CommunicationError(f"ranks call different collectives: {called}")
        return [meeting[rank][1] for rank in range(self.size)]

    def _wait(self, name: str, missing: Callable[[], list[int]]) -> None:
        """Wait with the lock held until all ranks arrive, or one ended."""
        job, members = self._job, self._room.members

        def over() -> bool:
            ranks = missing()
            gone = any(members[rank] in job.done for rank in ranks)
            return not ranks or gone or job.error is not None

        in_time = job.changed.wait_for(over, job.timeout)
        ranks = missing()
        if not ranks:
            return
        if job.error is not None:
            raise RankLostError(f"{name}: rank {self.rank}: another rank has failed")
        why = "has returned" if in_time else f"did not come within {job.timeout} s"
        listed = ", ".join(map(str, ranks))
        plural = "ranks" if len(ranks) > 1 else "rank"
        raise StalledError(
            f"{name}: rank {self.rank} waits for {plural} {listed}, but a missing one "
            f"{why}"
        )


class _PublishedBuffer(NamedTuple):
    """Buffer that another rank published, and its expected size."""

    source: Array
    expected: int


class _Message(NamedTuple):
    """Message to one rank, and whether that rank has received it."""

    content: Array
    taken: threading.Event


class _Job:
    """Shared state of the virtual ranks of one call of `run`."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.done: set[int] = set()

    def ended(self, rank: int) -> None:
        """Record that a rank has returned."""
        with self.changed:
            self.done.add(rank)
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Abort all ranks because of the first error of one."""
        with self.changed:
            if self.error is None:
                self.error = error
            self.changed.notify_all()


class _GroupState:
    """Shared state of one group; it uses the lock of the job."""

    def __init__(self, size: int, members: list[int]) -> None:
        self.size = size
        self.members = members  # world ranks
        self.turns = [0] * size
        self.meetings: dict[int, dict[int, tuple[str, Any]]] = {}
        self.inner: dict[tuple[Any, ...], _GroupState] = {}
        self._letters: dict[tuple[int, int, int], deque[_Message]] = {}

    def letters(self, source: int, to: int, tag: int) -> deque[_Message]:
        """Return the messages from one rank to another that are not received yet."""
        return self._letters.setdefault((source, to, tag), deque())


def _check_rank(what: str, rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ArgumentError(
            f"{what}: expected a rank of 0..{size - 1}; received {rank}"
        )
