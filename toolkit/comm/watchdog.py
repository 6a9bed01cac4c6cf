"""Watchdog: reports a stalled collective and the state of the missing ranks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toolkit.comm.flight_recorder import Entry, GroupRecord, parse_entry
from toolkit.comm.group import Buffer, Group, as_bytes, exchange
from toolkit.comm.side_channel import GONE, SideChannel

# Exit code of a job with a stalled collective, as for `timeout`.
STALLED_EXIT_CODE = 124
# Seconds until a warning about a waiting collective; the job continues.
WARN_AFTER = 60.0


# Seconds in which a rank must answer before it is killed.
_LAST_PATIENCE = 2.0
# Ends a process at once; on Windows SIGKILL does not exist.
KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)


class Report(NamedTuple):
    """Report about a collective that waits.

    Attributes:
        text: the text for users.
        is_first: whether no other rank has reported it.
        silent: the ranks of the job that do not answer.
        gone: the ranks whose processes have ended.
    """

    text: str
    is_first: bool
    silent: list[int]
    gone: list[int]


class Watchdog:
    """Thread that watches the groups of one job.

    Args:
        group: the group of all ranks of the job, which all create a watchdog.
        timeout: the maximum wait of a collective in seconds; infinity only warns.
        end: a function of a report that ends the job.
        kill_stopped: whether to kill an unresponsive rank of this machine instead of
            the job, so that other ranks detect the loss.
    """

    def __init__(
        self,
        group: Group,
        timeout: float,
        end: Callable[[str], None],
        kill_stopped: bool = False,
    ) -> None:
        self.rank = group.rank
        self.timeout = timeout
        self.has_ended = False
        self._end = end
        self._kill_stopped = kill_stopped
        self._claimed: set[str] = set()
        self._claiming = threading.Lock()
        self._records: dict[str, GroupRecord] = {}
        self._told: dict[str, Entry] = {}
        self._excused: dict[str, int] = {}
        self._closed = threading.Event()
        self.channel = SideChannel(group, self._answer)
        self._thread = threading.Thread(
            target=self._watch, name="toolkit watchdog", daemon=True
        )
        self._thread.start()

    def watch(self, group: Group, key: str, members: Sequence[int]) -> WatchedGroup:
        """Return a group whose calls are watched.

        Args:
            group: a group of ranks of the job.
            key: its name, equal on all of its ranks.
            members: its ranks, as world ranks.
        """
        record = self._records[key] = GroupRecord(key, members)
        return WatchedGroup(self, group, record)

    def forget(self, key: str) -> None:
        """Stop watching a group."""
        self._records.pop(key, None)

    def close(self) -> None:
        """Stop watching and answering."""
        self._closed.set()
        self.channel.close()

    def claim(self, name: str, rank: int = 0) -> bool:
        """Return whether this rank is the first to request something from `rank`.

        It also returns True if that rank does not answer: two reports are better than
        none. A rank that has ended did so after its report, or was killed.
        """
        if rank == self.rank:
            return self._claim(name)
        answer = self.channel.ask(rank, {"ask": "claim", "name": name})
        return answer is None or answer is True

    def _claim(self, name: str) -> bool:
        with self._claiming:
            is_first = name not in self._claimed
            self._claimed.add(name)
        return is_first

    def _answer(self, question: dict[str, Any]) -> Any:
        if question["ask"] == "claim":
            return self._claim(str(question["name"]))
        record = self._records.get(question["group"])
        status = record.status() if record else {}
        return {"rank": self.rank, "ended": self.has_ended, **status}

    def _watch(self) -> None:
        warn = min(WARN_AFTER, self.timeout)
        while not self._closed.wait(min(0.2, warn / 5)):
            for record in list(self._records.values()):
                entry = record.current
                if entry is None:
                    continue
                waited = time.monotonic() - entry.since
                if waited >= self.timeout:
                    self._on_timeout(record, entry)
                elif waited >= warn and self._told.get(record.key) is not entry:
                    self._told[record.key] = entry
                    report = self.report(record, entry, "slow")
                    if report.is_first:
                        _print(report.text)

    def _on_timeout(self, record: GroupRecord, entry: Entry) -> None:
        report = self.report(record, entry, "stalled")
        if record.current is not entry:  # the call has finished in the meantime
            return
        if report.is_first:
            _print(report.text)
        is_new = self._excused.get(record.key) != entry.number
        if self._kill_stopped and is_new and self._lose(report):
            # MPI notifies the other ranks within seconds, or they wait one more period.
            self._excused[record.key] = entry.number
            record.current = entry._replace(since=time.monotonic())
            return
        if not report.is_first:
            # The reporting rank ends the job; if that fails, this rank does.
            self._closed.wait(3)
        self._end(f"rank {self.rank} has waited for {self.timeout:g} s in {entry}")

    def _lose(self, report: Report) -> bool:
        """Kill unresponsive ranks of this machine; return whether any rank is lost."""
        if not (report.silent or report.gone):
            return False
        addresses = self.channel.addresses
        for rank in report.silent:
            question = {"ask": "status", "group": ""}
            if addresses[rank].machine != addresses[self.rank].machine:
                return False
            # Ask again: on a busy machine an answer can take long.
            if self.channel.ask(rank, question, _LAST_PATIENCE) is None:
                _kill(addresses[rank].pid)
        return True

    def report(self, record: GroupRecord, entry: Entry, stage: str) -> Report:
        """Return a report about a collective that waits."""
        members = record.members
        peers = members if entry.peer is None else [members[entry.peer]]
        others = [rank for rank in peers if rank != self.rank]
        waited = time.monotonic() - entry.since
        question = {"ask": "status", "group": record.key}
        answers = self.channel.ask_all(others, question)
        silent = [rank for rank in others if answers[rank] is None]
        gone = [rank for rank in others if answers[rank] == GONE]
        speaking = {self.rank, *others} - {*silent, *gone}
        first = self.claim(f"{stage} {record.key} {entry.number}", min(speaking))
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
        lines = [
            f"rank {self.rank} has waited for {waited:.1f} s, since {began}, in {entry}"
        ]
        if record.key != "world":
            lines[0] += f" of group {record.key}"
        for rank in others:
            lines += _describe_rank(rank, answers[rank], entry)
        return Report("\n".join(lines), first, silent, gone)


class WatchedGroup:
    """Group whose calls are recorded in the flight recorder.

    Attributes:
        plain: the group that moves the bytes.
        record: its record.
        watchdog: the watchdog.
        inner: groups derived from it.
    """

    def __init__(self, watchdog: Watchdog, plain: Group, record: GroupRecord) -> None:
        self.watchdog = watchdog
        self.plain = plain
        self.record = record
        self.rank = plain.rank
        self.size = plain.size
        self.inner: list[WatchedGroup] = []
        self._made = 0

    @property
    def is_remote(self) -> bool:
        """See `Group`."""
        return self.plain.is_remote

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        with self.record.entered("all_gather", as_bytes(receive).size):
            self.plain.all_gather(send, receive)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        with self.record.entered("all_gather_varying", sum(counts)):
            self.plain.all_gather_varying(send, receive, counts)

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
        with self.record.entered("all_to_all", sum(receive_counts)):
            self.plain.all_to_all(
                send,
                send_counts,
                receive,
                receive_counts,
                send_offsets,
                receive_offsets,
            )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        with self.record.entered("broadcast", as_bytes(buffer).size):
            self.plain.broadcast(buffer, root)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        with self.record.entered("send", as_bytes(buffer).size, to):
            self.plain.send(buffer, to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        with self.record.entered("receive", as_bytes(buffer).size, source):
            self.plain.receive(buffer, source, tag)

    def barrier(self) -> None:
        """See `Group.barrier`."""
        with self.record.entered("barrier", 0):
            self.plain.barrier()

    def split(self, color: int, key: int) -> WatchedGroup:
        """See `Group.split`."""
        with self.record.entered("split", 0):
            inner = self.plain.split(color, key)
        return self._watched(inner, f"split-{self._next()}-{color}")

    def duplicate(self) -> WatchedGroup:
        """See `Group.duplicate`."""
        with self.record.entered("duplicate", 0):
            inner = self.plain.duplicate()
        return self._watched(inner, f"copy-{self._next()}")

    def close(self) -> None:
        """See `Group.close`."""
        self.watchdog.forget(self.record.key)
        self.plain.close()

    def _next(self) -> int:
        """Return the number of a derived group, equal on all ranks."""
        self._made += 1
        return self._made

    def _watched(self, inner: Group, name: str) -> WatchedGroup:
        members = exchange(inner, self.record.members[self.rank])
        made = self.watchdog.watch(inner, f"{self.record.key}/{name}", members)
        self.inner.append(made)
        return made


def _describe_rank(rank: int, answer: Any, waiting: Entry) -> list[str]:
    """Return lines about another rank, which the call in `waiting` waits for."""
    if answer is None:
        return [
            f"  rank {rank} does not answer: it is stopped or swapping, its machine "
            "is gone, or a call holds its interpreter"
        ]
    if answer == GONE:
        return [f"  rank {rank} is missing: its process has ended"]
    if answer["ended"]:
        return [f"  rank {rank} is missing: its script has ended"]
    if "count" not in answer:
        return [f"  rank {rank} is missing: it does not have this group"]
    current = parse_entry(answer["current"]) if answer["current"] else None
    if current is not None and current.number == waiting.number:
        if current.operation == waiting.operation and current.name == waiting.name:
            return [f"  rank {rank} waits in it, too"]
        return [f"  rank {rank} is in another one instead: {current}"]
    if waiting.number and answer["count"] > waiting.number:
        return [f"  rank {rank} has passed it"]
    if current is not None:
        where = f"it waits in {current} and stands at"
    elif answer["last"]:
        last = parse_entry(answer["last"])
        where = f"it left {last} {answer['left']:.0f} s ago and stands at"
    else:
        where = "it has not called this group yet and stands at"
    return [
        f"  rank {rank} is missing: {where}",
        *(f"    {s}" for s in answer["stack"]),
    ]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, KILL)
    except OSError:
        pass  # ended in the meantime


def _print(report: str) -> None:
    print(f"toolkit: {report}", file=sys.stderr, flush=True)
