"""Watchdog: reports a stalled collective and the state of the missing ranks."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from toolkit.comm.flight_recorder import (
    Entry,
    GroupRecord,
    format_stack,
    parse_entry,
)
from toolkit.comm.group import Buffer, Group, as_bytes, exchange
from toolkit.comm.peer_failures import Failure, PeerFailures
from toolkit.comm.side_channel import PROCESS_ENDED, Request, Response, SideChannel
from toolkit.comm.sockets.group import SocketGroup
from toolkit.comm.sockets.side_channel import SocketSideChannel
from toolkit.comm.stall_reports import Report, make_report, print_report

# Exit code of a job with a stalled collective, as for `timeout`.
STALLED_EXIT_CODE = 124
# Exit code after the error of a rank, if other ranks cannot leave their calls.
FAILED_EXIT_CODE = 1
# Seconds until a warning about a waiting collective; the job continues.
WARNING_DELAY = 60.0
# Seconds between two checks whether a rank that a collective needs has ended, or is in
# another collective.
_ENDED_CHECK_DELAY = 1.0

# Seconds in which a call ends that does not wait for a rank that has failed.
_BLOCKED_SECONDS = 0.5
# Seconds in which a rank must answer before it is killed.
_KILL_TIMEOUT = 2.0
# Ends a process at once; on Windows SIGKILL does not exist.
KILL_SIGNAL: int = getattr(signal, "SIGKILL", signal.SIGTERM)


class Watchdog:
    """Thread that watches the groups of one job.

    Args:
        group: the group of all ranks of the job, which all create a watchdog.
        timeout: the maximum wait of a collective in seconds; infinity only warns.
        abort_job: a function of a report, and of an exit code, that ends the job.
        kill_stopped: whether to kill an unresponsive rank of this machine instead of
            the job, so that other ranks detect the loss.
    """

    def __init__(
        self,
        group: Group,
        timeout: float,
        abort_job: Callable[..., object],
        kill_stopped: bool = False,
    ) -> None:
        self.rank = group.rank
        self.timeout = timeout
        self.has_ended = False
        self._abort_job = abort_job
        self._kill_stopped = kill_stopped
        self._claimed_names: set[str] = set()
        self._claim_lock = threading.Lock()
        self._records: dict[str, GroupRecord] = {}
        self._warned_calls: dict[str, Entry] = {}
        self._extended_calls: dict[str, int] = {}
        self._checked_calls: dict[str, tuple[int, float]] = {}
        self._closed = threading.Event()
        self.failures = PeerFailures(self.rank, group.size, timeout, self._position)
        self.channel: SideChannel | SocketSideChannel
        self._interrupt: Callable[[Callable[[], None] | None], None] | None = None
        if isinstance(group, SocketGroup):
            self._interrupt = group.node.inbox.interrupt
            self._interrupt(None)  # an interrupt of an earlier world
            self.channel = SocketSideChannel(group, self._handle_request)
        else:
            self.channel = SideChannel(group, self._handle_request)
        self.failures.channel = self.channel
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
        record = GroupRecord(key, members, self.failures.check)
        self._records[key] = record
        return WatchedGroup(self, group, record)

    def watch_device(self, key: str, members: Sequence[int]) -> GroupRecord:
        """Return the record of the collectives of a group that the devices run.

        Args:
            key, members: as for `watch`.
        """
        record = GroupRecord(f"{key}/device", members, is_of_device=True)
        self._records[record.key] = record
        return record

    def unwatch(self, key: str) -> None:
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
        answer = self.channel.send_request(rank, {"ask": "claim", "name": name})
        return answer is None or answer is True

    def _claim(self, name: str) -> bool:
        with self._claim_lock:
            is_first = name not in self._claimed_names
            self._claimed_names.add(name)
        return is_first

    def _handle_request(self, request: Request) -> Response:
        if request["ask"] == "claim":
            return self._claim(str(request["name"]))
        if request["ask"] == "failed":
            return self.failures.receive(Failure(**request["failure"]))
        if request["ask"] == "position":
            answer = self.failures.answer(request["position"])
            return "later" if answer == "earlier" and self.has_ended else answer
        record = self._records.get(request["group"])
        status = record.status() if record else {}
        return {"rank": self.rank, "ended": self.has_ended, **status}

    def _position(self) -> dict[str, int]:
        """Return the number of calls of each group, except those of writer threads.

        Their calls have no fixed order relative to the calls of this thread.
        """
        records = list(self._records.items())
        return {key: x.count for key, x in records if not x.is_concurrent}

    def _watch(self) -> None:
        try:
            self._check_calls()
        except Exception as error:
            # Without this thread, a stalled call would wait forever.
            if not self._closed.is_set():
                traceback.print_exc()
                reason = f"the watchdog of rank {self.rank} has failed: {error}"
                self._abort_job(reason, FAILED_EXIT_CODE)

    def _check_calls(self) -> None:
        """Check the current calls of all groups until `close`."""
        warning_delay = min(WARNING_DELAY, self.timeout)
        while not self._closed.wait(min(0.2, warning_delay / 5)):
            self.failures.update()
            if self.failures.divergence is not None:
                self._interrupt_calls()
            for record in list(self._records.values()):
                entry = record.current
                if entry is None:
                    continue
                seconds = time.monotonic() - entry.start_time
                if record.is_of_device and seconds > _BLOCKED_SECONDS:
                    self._find_lost_rank(record)
                if seconds >= self.timeout:
                    self._on_timeout(record, entry)
                elif reason := self._reason_of_deadlock(record, entry, seconds):
                    self._on_deadlock(record, entry, reason)
                elif (
                    seconds >= warning_delay
                    and self._warned_calls.get(record.key) is not entry
                ):
                    self._warned_calls[record.key] = entry
                    report = self.report(record, entry, "slow")
                    if report.is_first:
                        print_report(report.text)

    def _interrupt_calls(self) -> None:
        """Raise the error of another rank in calls, or end the job if that is blocked.

        MPI has no way to leave a call without the other ranks.
        """
        if self._interrupt is not None:
            self._interrupt(self.failures.raise_divergence)
            return
        for record in list(self._records.values()):
            entry = record.current
            if entry is None or time.monotonic() - entry.start_time < _BLOCKED_SECONDS:
                continue
            failure = self.failures.divergence
            reason = f"{failure}; rank {self.rank} waits for it in {entry}"
            if not self.claim("failure"):
                self._closed.wait(3)  # the reporting rank ends the job
            self._abort_job(reason, FAILED_EXIT_CODE)

    def _find_lost_rank(self, record: GroupRecord) -> None:
        """Find a lost rank for which a device waits: the device does not report it."""
        request = {"ask": "status", "group": record.key}
        others = [rank for rank in record.members if rank != self.rank]
        for rank, status in self.channel.send_requests(others, request).items():
            if status == PROCESS_ENDED:
                record.lost_rank = rank

    def _on_timeout(self, record: GroupRecord, entry: Entry) -> None:
        report = self.report(record, entry, "stalled")
        if record.current is not entry:  # the call has finished in the meantime
            return
        if report.is_first:
            print_report(report.text)
        is_new = self._extended_calls.get(record.key) != entry.number
        if self._kill_stopped and is_new and self._kill_silent_ranks(report):
            # MPI notifies the other ranks within seconds, or they wait one more period.
            self._extended_calls[record.key] = entry.number
            record.current = entry._replace(start_time=time.monotonic())
            return
        if not report.is_first:
            # The reporting rank ends the job; if that fails, this rank does.
            self._closed.wait(3)
        missing = ", ".join(map(str, report.missing_ranks))
        suffix = f"; rank {missing} has not reached it" if missing else ""
        self._abort_job(
            f"rank {self.rank} has waited for {self.timeout:g} s in {entry}{suffix}"
        )

    def _reason_of_deadlock(
        self, record: GroupRecord, entry: Entry, seconds: float
    ) -> str:
        """Return the reason why a collective can never end, or "".

        A rank that it needs waits in another operation, or its script has ended.

        Args:
            record: the calls of the group.
            entry: its current call.
            seconds: the time that the call has waited.
        """
        number, checked = self._checked_calls.get(record.key, (0, 0.0))
        checked = checked if number == entry.number else 0.0
        if not entry.number or seconds < checked + _ENDED_CHECK_DELAY:
            return ""
        self._checked_calls[record.key] = entry.number, seconds
        # Each rank asks the next one: some waiting rank is before an ended one.
        members = record.members
        next_rank = members[(members.index(self.rank) + 1) % len(members)]
        if next_rank == self.rank:
            return ""
        request = {"ask": "status", "group": record.key}
        status = self.channel.send_request(next_rank, request)
        if not isinstance(status, dict) or record.current is not entry:
            return ""
        if status["ended"] and int(status.get("count", 0)) < entry.number:
            return "waits for a script that has ended"
        # After a loss, the numbers of an elastic job start again at different times.
        current = status.get("current")
        if current and not self._kill_stopped:
            peer_entry = parse_entry(current)
            # Two different calls can end, and later calls then wait.
            for local in (entry, *tuple(record.recent)):
                is_same = local.number == peer_entry.number
                if is_same and local.operation != peer_entry.operation:
                    return f"waits for rank {next_rank}, which makes another call,"
        return ""

    def _on_deadlock(self, record: GroupRecord, entry: Entry, reason: str) -> None:
        """End the job, and show the line of the script that waits."""
        report = self.report(record, entry, "ended")
        if report.is_first:
            stack = "\n    ".join(format_stack(record.thread))
            print_report(
                f"{report.text}\n  all ranks must make this call; rank {self.rank} is "
                f"at\n    {stack}"
            )
        else:
            self._closed.wait(3)  # the reporting rank ends the job
        self._abort_job(f"rank {self.rank} {reason} in {entry}")

    def _kill_silent_ranks(self, report: Report) -> bool:
        """Kill unresponsive ranks of this machine; return whether any rank is lost."""
        if not (report.silent_ranks or report.ended_ranks):
            return False
        addresses = self.channel.addresses
        for rank in report.silent_ranks:
            request = {"ask": "status", "group": ""}
            if addresses[rank].machine != addresses[self.rank].machine:
                return False
            # Ask again: on a busy machine an answer can take long.
            if self.channel.send_request(rank, request, _KILL_TIMEOUT) is None:
                _kill_process(addresses[rank].pid)
        return True

    def report(self, record: GroupRecord, entry: Entry, severity: str) -> Report:
        """Return a report about a collective that waits."""
        members = record.members
        peers = members if entry.peer is None else [members[entry.peer]]
        other_ranks = [rank for rank in peers if rank != self.rank]
        seconds = time.monotonic() - entry.start_time
        request = {"ask": "status", "group": record.key}
        responses = self.channel.send_requests(other_ranks, request)
        report = make_report(self.rank, record.key, entry, seconds, responses)
        lost_ranks = {*report.silent_ranks, *report.ended_ranks}
        first = min({self.rank, *other_ranks} - lost_ranks)
        is_first = self.claim(f"{severity} {record.key} {entry.number}", first)
        return report._replace(is_first=is_first)


class WatchedGroup:
    """Group whose calls are recorded in the flight recorder.

    Attributes:
        wrapped_group: the group that moves the bytes.
        record: its record.
        watchdog: the watchdog.
        derived_groups: the groups that are derived from it.
    """

    def __init__(
        self, watchdog: Watchdog, wrapped_group: Group, record: GroupRecord
    ) -> None:
        self.watchdog = watchdog
        self.wrapped_group = wrapped_group
        self.record = record
        self.rank = wrapped_group.rank
        self.size = wrapped_group.size
        self.derived_groups: list[WatchedGroup] = []
        self._derived_count = 0

    @property
    def is_remote(self) -> bool:
        """See `Group`."""
        return self.wrapped_group.is_remote

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        with self.record.record_call("all_gather", as_bytes(receive).size):
            self.wrapped_group.all_gather(send, receive)

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        with self.record.record_call("all_gather_varying", sum(counts)):
            self.wrapped_group.all_gather_varying(send, receive, counts)

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
        with self.record.record_call("all_to_all", sum(receive_counts)):
            self.wrapped_group.all_to_all(
                send,
                send_counts,
                receive,
                receive_counts,
                send_offsets,
                receive_offsets,
            )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        with self.record.record_call("broadcast", as_bytes(buffer).size):
            self.wrapped_group.broadcast(buffer, root)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        with self.record.record_call("send", as_bytes(buffer).size, to):
            self.wrapped_group.send(buffer, to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        with self.record.record_call("receive", as_bytes(buffer).size, source):
            self.wrapped_group.receive(buffer, source, tag)

    def barrier(self) -> None:
        """See `Group.barrier`."""
        with self.record.record_call("barrier", 0):
            self.wrapped_group.barrier()

    def split(self, color: int, key: int) -> WatchedGroup:
        """See `Group.split`."""
        with self.record.record_call("split", 0):
            derived_group = self.wrapped_group.split(color, key)
            members = self._exchange_members(derived_group)
        name = f"split-{self._next_number()}-{color}"
        return self._watch_derived(derived_group, name, members)

    def duplicate(self) -> WatchedGroup:
        """See `Group.duplicate`."""
        with self.record.record_call("duplicate", 0):
            derived_group = self.wrapped_group.duplicate()
            members = self._exchange_members(derived_group)
        name = f"copy-{self._next_number()}"
        watched_group = self._watch_derived(derived_group, name, members)
        watched_group.record.is_concurrent = True
        return watched_group

    def check(self) -> None:
        """Raise an error if a rank is lost or has failed, without a call.

        Raises:
            RankLostError: a rank is lost; MPI reports that in its calls only.
            ToolkitError: the error of a rank that failed.
        """
        self.watchdog.failures.raise_divergence()
        if isinstance(self.wrapped_group, SocketGroup):
            self.wrapped_group.check()

    def watch_device(self) -> GroupRecord:
        """Return a record of the collectives of the devices of these ranks."""
        return self.watchdog.watch_device(self.record.key, self.record.members)

    def close(self) -> None:
        """See `Group.close`."""
        self.watchdog.unwatch(self.record.key)
        self.wrapped_group.close()

    def _next_number(self) -> int:
        """Return the number of a derived group, equal on all ranks."""
        self._derived_count += 1
        return self._derived_count

    def _exchange_members(self, derived_group: Group) -> list[int]:
        """Return the world ranks of a derived group; all of its ranks call this.

        The call is a part of the recorded call: an engine can create a group without
        a message, and another rank may make another call.
        """
        members: list[int] = exchange(derived_group, self.record.members[self.rank])
        return members

    def _watch_derived(
        self, derived_group: Group, name: str, members: Sequence[int]
    ) -> WatchedGroup:
        watched_group = self.watchdog.watch(
            derived_group, f"{self.record.key}/{name}", members
        )
        self.derived_groups.append(watched_group)
        return watched_group


def _kill_process(pid: int) -> None:
    try:
        os.kill(pid, KILL_SIGNAL)
    except OSError:
        pass  # ended in the meantime
