"""Reports about collectives that wait for other ranks."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from toolkit.comm.flight_recorder import Entry, parse_entry
from toolkit.comm.side_channel import PROCESS_ENDED, Response

# States of ranks that are not missing in a collective.
_WAITS_TOO, _HAS_COMPLETED = "also waits in it", "has completed it"


class Report(NamedTuple):
    """Report about a collective that waits.

    Attributes:
        text: the text for users.
        is_first: whether no other rank has reported it.
        silent_ranks: the ranks of the job that do not answer.
        ended_ranks: the ranks whose processes have ended.
        missing_ranks: the ranks that have not reached the collective.
    """

    text: str
    is_first: bool
    silent_ranks: list[int]
    ended_ranks: list[int]
    missing_ranks: list[int]


def make_report(
    rank: int,
    group: str,
    entry: Entry,
    seconds: float,
    responses: Mapping[int, Response],
) -> Report:
    """Return a report about a collective that waits.

    Args:
        rank: this rank.
        group: the name of the group.
        entry: the call.
        seconds: the time that it has waited.
        responses: the states of the other ranks that the call needs.
    """
    silent_ranks = [peer for peer, state in responses.items() if state is None]
    ended_ranks = [peer for peer, state in responses.items() if state == PROCESS_ENDED]
    start_time = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
    lines = [
        f"rank {rank} has waited for {seconds:.1f} s, since {start_time}, in {entry}"
    ]
    if group != "world":
        lines[0] += f" of group {group}"
    missing_ranks = []
    for peer, state in responses.items():
        description = _describe_rank(peer, state, entry)
        lines += description
        if not description[0].endswith((_WAITS_TOO, _HAS_COMPLETED)):
            missing_ranks.append(peer)
    text = "\n".join(lines)
    return Report(text, False, silent_ranks, ended_ranks, missing_ranks)


def _describe_rank(rank: int, response: Response, entry: Entry) -> list[str]:
    """Return lines about another rank, which the call in `entry` waits for."""
    if response is None:
        return [
            f"  rank {rank} does not respond: it is stopped or swapping, its machine "
            "failed, or a call blocks its interpreter"
        ]
    if response == PROCESS_ENDED:
        return [f"  rank {rank} is missing: its process has ended"]
    if response["ended"]:
        return [f"  rank {rank} is missing: its script has ended"]
    if "count" not in response:
        return [f"  rank {rank} is missing: it does not have this group"]
    current = parse_entry(response["current"]) if response["current"] else None
    if current is not None and current.number == entry.number:
        if current.operation == entry.operation and current.name == entry.name:
            return [f"  rank {rank} {_WAITS_TOO}"]
        return [
            f"  rank {rank} is in another operation: {current}, at",
            *(f"    {line}" for line in response["stack"]),
        ]
    if entry.number and response["count"] > entry.number:
        return [f"  rank {rank} {_HAS_COMPLETED}"]
    if current is not None:
        state = f"it waits in {current} and is at"
    elif response["last"]:
        last = parse_entry(response["last"])
        state = f"it left {last} {response['left']:.0f} s ago and is at"
    else:
        state = "it has not called this group yet and is at"
    return [
        f"  rank {rank} is missing: {state}",
        *(f"    {s}" for s in response["stack"]),
    ]


def print_report(report: str) -> None:
    """Print a report to the error output."""
    print(f"toolkit: {report}", file=sys.stderr, flush=True)
