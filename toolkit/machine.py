"""The machine that programs run on, and what this process may use of it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

# Where Linux says which control groups a process is in, and shows them.
_MEMBERSHIP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cpu_model() -> str:
    """The processor's name, as the operating system gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()  # `platform.processor` starts a program on PATH


def available_cores() -> int:
    """How many cores this process may use, at least 1.

    Those that it is bound to (by `taskset`, say), and no more than its control groups
    allow it time of (a container's `--cpus`), rounded down: threads that wait for each
    other all stand still when that time is used up.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, int(min(cores, core_quota())))


def core_quota(membership: Path = _MEMBERSHIP, groups: Path = _GROUPS) -> float:
    """The cores that control groups allow this process; infinite without a limit.

    Args:
        membership: the file that lists the groups.
        groups: the folder where the groups are, of version 1 or 2 of Linux's interface.
    """
    try:
        lines = membership.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return float("inf")
    found = [quota for line in lines for quota in _quotas(line, groups)]
    return min(found, default=float("inf"))


def _quotas(line: str, groups: Path) -> Iterator[float]:
    """The limits of a group and of those that it is in.

    A container sees its own group as the outermost one, whatever it is called outside.
    """
    _, controllers, name = line.split(":", 2)
    if "cpu" in controllers.split(","):
        top = groups / "cpu"
        files: tuple[str, ...] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    elif not controllers:
        top, files = groups, ("cpu.max",)
    else:
        return
    group = top / name.lstrip("/")
    while True:
        with contextlib.suppress(OSError, ValueError):
            words = " ".join((group / file).read_text() for file in files).split()
            quota, period = map(int, words)  # "max" and -1: no limit
            if quota > 0 < period:
                yield quota / period
        if group == top:
            return
        group = group.parent
