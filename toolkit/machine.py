"""The machine that programs run on, and the resources that this process may use."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

# Linux lists the control groups of a process in the first file, and shows them in the
# second.
_MEMBERSHIP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cpu_model() -> str:
    """Return the processor's name from the operating system."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()  # `platform.processor` starts a program on PATH


def available_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    This is the number of cores that it is bound to (for example, by `taskset`), limited
    by the CPU quota of its control groups (`--cpus` of a container), rounded down. If
    the quota is used up, all threads stop, and threads that wait for them lose time.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, int(min(cores, core_quota())))


def core_quota(membership: Path = _MEMBERSHIP, groups: Path = _GROUPS) -> float:
    """Return the cores that control groups allow; infinite without a limit.

    Args:
        membership: the file with the list of groups.
        groups: the folder of the groups, for version 1 or 2 of the Linux interface.
    """
    try:
        lines = membership.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return float("inf")
    quotas = [quota for line in lines for quota in _quotas(line, groups)]
    return min(quotas, default=float("inf"))


def _quotas(line: str, groups: Path) -> Iterator[float]:
    """Yield the limits of a group and of its parents.

    A container sees its group as the root, whatever its name is outside.
    """
    _, controllers, name = line.split(":", 2)
    if "cpu" in controllers.split(","):
        root = groups / "cpu"
        files: tuple[str, ...] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    elif not controllers:
        root, files = groups, ("cpu.max",)
    else:
        return
    group = root / name.lstrip("/")
    while True:
        with contextlib.suppress(OSError, ValueError):
            words = " ".join((group / file).read_text() for file in files).split()
            quota, period = map(int, words)  # "max" and -1: no limit
            if quota > 0 < period:
                yield quota / period
        if group == root:
            return
        group = group.parent
