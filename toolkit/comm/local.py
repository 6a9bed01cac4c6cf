"""Virtual ranks: threads of one process, for tests and single-process jobs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from toolkit.comm.group import (
    Buffer,
    Group,
    as_bytes,
    check_counts,
    offsets_of,
)
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    RankLostError,
    StalledError,
)
from toolkit.type_aliases import Array

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
    state = _GroupState(count, list(range(count)))
    results: list[Any] = [None] * count

    def run_rank(rank: int) -> None:
        try:
            results[rank] = function(LocalGroup(job, state, rank))
            job.finish_rank(rank)
        except BaseException as error:  # raised below
            job.fail(error)

    threads = [
        threading.Thread(
            target=run_rank, args=(rank,), name=f"rank {rank}", daemon=True
        )
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

    def __init__(self, job: _Job, state: _GroupState, rank: int) -> None:
        self._job = job
        self._state = state
        self.rank = rank
        self.size = state.size

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
        check_counts(name, as_bytes(receive), counts, self.size)
        buffers = [
            _PublishedBuffer(source, count)
            for source, count in zip(
                self._exchange_values(name, as_bytes(send)), counts, strict=True
            )
        ]
        self._copy_buffers(name, buffers, as_bytes(receive), offsets_of(counts), counts)

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
        segments = [source[i : i + n] for i, n in zip(starts, send_counts, strict=True)]
        buffers = [
            _PublishedBuffer(peer_segments[self.rank], count)
            for peer_segments, count in zip(
                self._exchange_values("all_to_all", segments),
                receive_counts,
                strict=True,
            )
        ]
        offsets = receive_offsets or offsets_of(receive_counts)
        self._copy_buffers(
            "all_to_all", buffers, as_bytes(receive), offsets, receive_counts
        )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        _check_rank("broadcast: root", root, self.size)
        target = as_bytes(buffer)
        source = _PublishedBuffer(
            self._exchange_values("broadcast", target)[root], target.size
        )
        self._copy_buffers("broadcast", [source], target, [0], [target.size])

    def _copy_buffers(
        self,
        name: str,
        buffers: list[_PublishedBuffer],
        receive: Array,
        offsets: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        """Copy the parts that other ranks published, and release them."""
        for rank, (buffer, start, count) in enumerate(
            zip(buffers, offsets, counts, strict=True)
        ):
            if buffer.source.size != buffer.expected:
                raise CommunicationError(
                    f"{name}: rank {self.rank} expected {buffer.expected} bytes from "
                    f"rank {rank}; received {buffer.source.size}"
                )
            target = receive[start : start + count]
            if count and buffer.source.ctypes.data != target.ctypes.data:
                target[:] = buffer.source
        self._exchange_values(name, None)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        _check_rank("send: to", to, self.size)
        message = _Message(as_bytes(buffer), threading.Event())
        with self._job.changed:
            self._state.messages(self.rank, to, tag).append(message)
            self._job.changed.notify_all()
            self._wait(
                f"send to rank {to}", lambda: [] if message.received.is_set() else [to]
            )

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        _check_rank("receive: source", source, self.size)
        target = as_bytes(buffer)
        with self._job.changed:
            messages = self._state.messages(source, self.rank, tag)
            self._wait(
                f"receive from rank {source}", lambda: [] if messages else [source]
            )
            message = messages.popleft()
            if message.content.size != target.size:
                raise CommunicationError(
                    f"receive: rank {self.rank} expected {target.size} bytes from "
                    f"rank {source}; received {message.content.size}"
                )
            target[:] = message.content
            message.received.set()
            self._job.changed.notify_all()

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._exchange_values("barrier", None)

    def split(self, color: int, key: int) -> LocalGroup:
        """See `Group.split`."""
        colors_and_keys = self._exchange_values("split", (color, key))
        ranks = [
            r
            for r, (other_color, _) in enumerate(colors_and_keys)
            if other_color == color
        ]
        ranks.sort(key=lambda rank: (colors_and_keys[rank][1], rank))
        return self._make_subgroup("split", ("split", color), ranks)

    def duplicate(self) -> LocalGroup:
        """See `Group.duplicate`."""
        self._exchange_values("duplicate", None)
        return self._make_subgroup("duplicate", ("duplicate",), list(range(self.size)))

    def _make_subgroup(
        self, name: str, key: tuple[Any, ...], ranks: list[int]
    ) -> LocalGroup:
        members = [self._state.members[rank] for rank in ranks]
        with self._job.changed:
            state = self._state.subgroups.setdefault(
                key, _GroupState(len(ranks), members)
            )
        self._exchange_values(name, None)
        self._state.subgroups.pop(key, None)
        self._exchange_values(name, None)
        return LocalGroup(self._job, state, ranks.index(self.rank))

    def close(self) -> None:
        """See `Group.close`."""

    def _exchange_values(self, name: str, value: Any) -> list[Any]:
        """Wait until all ranks reach the same call, and return their values."""
        state = self._state
        with self._job.changed:
            call_number = state.call_counts[self.rank]
            state.call_counts[self.rank] += 1
            arrivals = state.arrivals.setdefault(call_number, {})
            arrivals[self.rank] = name, value
            self._job.changed.notify_all()
            self._wait(name, lambda: [r for r in range(self.size) if r not in arrivals])
            # The last ranks do not find the meeting, but hold a reference to it.
            state.arrivals.pop(call_number, None)
        names = [arrivals[rank][0] for rank in range(self.size)]
        if len(set(names)) > 1:
            calls = ", ".join(f"rank {r} {name}" for r, name in enumerate(names))
            raise CommunicationError(f"ranks call different collectives: {calls}")
        return [arrivals[rank][1] for rank in range(self.size)]

    def _wait(self, name: str, list_absent_ranks: Callable[[], list[int]]) -> None:
        """Wait with the lock held until all ranks arrive, or one ended."""
        job, members = self._job, self._state.members

        def can_stop() -> bool:
            ranks = list_absent_ranks()
            has_returned = any(members[rank] in job.finished_ranks for rank in ranks)
            return not ranks or has_returned or job.error is not None

        is_in_time = job.changed.wait_for(can_stop, job.timeout)
        ranks = list_absent_ranks()
        if not ranks:
            return
        if job.error is not None:
            raise RankLostError(f"{name}: rank {self.rank}: another rank has failed")
        reason = (
            "has returned" if is_in_time else f"did not arrive within {job.timeout} s"
        )
        absent_ranks = ", ".join(map(str, ranks))
        plural = "ranks" if len(ranks) > 1 else "rank"
        raise StalledError(
            f"{name}: rank {self.rank} waits for {plural} {absent_ranks}, but a "
            f"missing one {reason}"
        )


class _PublishedBuffer(NamedTuple):
    """Buffer that another rank published, and its expected size."""

    source: Array
    expected: int


class _Message(NamedTuple):
    """Message to one rank, and whether that rank has received it."""

    content: Array
    received: threading.Event


class _Job:
    """Shared state of the virtual ranks of one call of `run`."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.finished_ranks: set[int] = set()

    def finish_rank(self, rank: int) -> None:
        """Record that a rank has returned."""
        with self.changed:
            self.finished_ranks.add(rank)
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
        self.call_counts = [0] * size
        self.arrivals: dict[int, dict[int, tuple[str, Any]]] = {}
        self.subgroups: dict[tuple[Any, ...], _GroupState] = {}
        self._messages: dict[tuple[int, int, int], deque[_Message]] = {}

    def messages(self, source: int, to: int, tag: int) -> deque[_Message]:
        """Return the messages from one rank to another that are not received yet."""
        return self._messages.setdefault((source, to, tag), deque())


def _check_rank(label: str, rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ArgumentError(
            f"{label}: expected a rank of 0..{size - 1}; received {rank}"
        )
