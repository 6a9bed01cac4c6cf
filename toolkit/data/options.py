"""What holds for a whole data set."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

from toolkit.errors import ArgumentError


@dataclass(frozen=True)
class Options:
    """What holds for a whole data set; None leaves the default.

    Args:
        deterministic: whether parallel stages give their elements in the order in which
            they took them; True by default. Otherwise: as they become ready.
        threads: at most so many threads for each parallel stage; 64 by default.
        cpu_budget: for how many processors AUTOTUNE plans; all by default.
        ram_budget: how many bytes the buffers that AUTOTUNE sizes may take in all; a
            quarter of the free memory by default.
        autotune: whether AUTOTUNE changes what it has begun with; True by default.

    Example:
        >>> from toolkit.data import Dataset, Options
        >>> dataset = Dataset.range(3).with_options(Options(deterministic=False))
        >>> dataset.options().deterministic
        False
    """

    deterministic: bool | None = None
    threads: int | None = None
    cpu_budget: int | None = None
    ram_budget: int | None = None
    autotune: bool | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "cpu_budget", "ram_budget"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentError(f"Options: expected {name} >= 1; received {value}")

    def updated(self, other: Options) -> Options:
        """These options, with those of the other that are not None."""
        given: dict[str, Any] = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(self, **{k: v for k, v in given.items() if v is not None})

    @property
    def is_ordered(self) -> bool:
        """`deterministic`, or its default."""
        return self.deterministic is not False

    @property
    def most_threads(self) -> int:
        """`threads`, or its default."""
        return self.threads or 64

    @property
    def processors(self) -> int:
        """`cpu_budget`, or its default."""
        return self.cpu_budget or free_processors()

    @property
    def memory(self) -> int:
        """`ram_budget`, or its default."""
        return self.ram_budget or free_memory() // 4


def free_processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Bytes of memory that are free now; 4 GB where the system does not tell."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        return 4 << 30
