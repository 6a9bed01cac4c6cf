"""Load budget: the memory and time to load one file and the objects from it.

Separate limits multiply: a ZIP can expand to a thousand times its size, and an HDF5
file in it again. One account therefore covers a whole load. Code that allocates memory
from the content of a file reserves it there first. Time is an estimate from the number
of objects, weights and graph nodes, so that all machines accept the same files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from toolkit.errors import ArgumentError, LoadBudgetError
from toolkit.thread_state import ThreadState

_MIN_RATIO = 8  # times the file size: reading needs this if memory is short
# Seconds of work for each byte of the memory budget. The smallest budget, 64 MB, allows
# 2 seconds. A layer with weights takes 2 KB of a file, so it has 4 ms; it needs 1 to 3.
_SECONDS_PER_BYTE = 2 / (1 << 26)
# A JSON config has no weights. Its length bounds the number of layers, of at least 200
# bytes each. The constant covers slow initializers, such as Orthogonal.
_TEXT_SECONDS_PER_BYTE = 2 * _SECONDS_PER_BYTE  # for each byte of the smallest budget
_SECONDS_PER_CHARACTER = 1e-5
_SECONDS_PER_VARIABLE = 3e-4
_COPIES_PER_VALUE = 3  # temporary arrays of the initial value's size in an initializer


@dataclass
class _Limits:
    ratio: float = 64
    share: float = 0.5
    minimum: int = 1 << 26


@dataclass
class Budget:
    """Remaining budget of a load."""

    label: str
    size: int
    total: int
    remaining: int
    seconds: float

    def spend(self, nbytes: int, description: str) -> None:
        """Subtract bytes from the budget, or raise an error."""
        self.check(nbytes, description)
        self.remaining -= nbytes

    def check(self, nbytes: int, description: str) -> None:
        """Raise an error if these bytes exceed the remaining budget."""
        if nbytes > self.remaining:
            raise LoadBudgetError(
                f"{self.label}: {description} takes {nbytes:,} bytes, far more than "
                f"the size of the file. Loading one of {self.size:,} bytes "
                f"may take {self.total:,} in all, of which {self.remaining:,} "
                "remain. To change the limit, call toolkit.saving.set_load_budget"
            )

    def spend_time(self, seconds: float, description: str) -> None:
        """Subtract an estimated time from the budget, or raise an error."""
        if seconds > self.seconds:
            raise LoadBudgetError(
                f"{self.label}: {description} would need far more time than "
                f"{self.size:,} bytes allow. The time limit of a load is "
                "proportional to its memory limit. To change it, call "
                "toolkit.saving.set_load_budget"
            )
        self.seconds -= seconds


class _Account(ThreadState):
    """Budget of the current load of this thread."""

    budget: Budget | None = None


_limits = _Limits()
_account = _Account()


def set_load_budget(
    ratio: float = 64, share: float = 0.5, least: int = 1 << 26
) -> None:
    """Set the memory budget to load one file; without arguments, restore the default.

    The budget covers all memory of a load: decompressed data, arrays, the weights of a
    config, and vocabularies. It limits the estimated time in proportion: 2 seconds for
    each 64 MB of the budget. JSON text has 4 seconds for each 64 MB of `least`.

    Args:
        ratio: the multiple of the file size. With `float("inf")`, only `share` is a
            limit.
        share: the maximum fraction of the machine's memory, in (0, 1]. Eight times the
            file size is always allowed.
        least: the minimum budget in bytes, for small files.

    Raises:
        ArgumentError: a value is negative or not a number.

    Example:
        >>> import toolkit
        >>> toolkit.saving.set_load_budget(ratio=1000)  # a file that packs very well
        >>> toolkit.saving.load_budget(1 << 20) == 1000 << 20
        True
        >>> toolkit.saving.set_load_budget()
    """
    if not (ratio >= 1 and 0 < share <= 1 and least >= 0):
        raise ArgumentError(
            "set_load_budget: expected ratio >= 1, 0 < share <= 1 and least >= 0; "
            f"received {ratio!r}, {share!r} and {least!r}"
        )
    _limits.ratio, _limits.share, _limits.minimum = ratio, share, int(least)


def load_budget(size: int) -> int:
    """Return the memory budget in bytes for a file of a size.

    Args:
        size: the size of the file on disk.

    Returns:
        The number of bytes.

    Example:
        >>> import toolkit
        >>> toolkit.saving.load_budget(16 << 10) >> 20
        64
    """
    maximum = int(min(_limits.ratio * size, _memory_share()))
    return max(_limits.minimum, _MIN_RATIO * size, maximum)


def load_limit() -> int:
    """Return the total memory budget of this thread's load, or the share."""
    budget = _account.budget
    return _memory_share() if budget is None else budget.total


def _memory_share() -> int:
    """Return the share of the machine's memory for loads, in bytes."""
    return int(_limits.share * _memory_limit())


@cache
def _memory_limit() -> int:
    """Return the memory limit of this process in bytes."""
    try:
        nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system
        nbytes = 1 << 34
    try:  # of a container
        return min(nbytes, int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    except (OSError, ValueError):
        return nbytes


def load_within_budget(
    path: Path | str, *extra_paths: Path, extra_size: int = 0
) -> AbstractContextManager[None]:
    """Return a context for a load of a file or folder within its budget.

    Inside another load, it is part of that load.

    Args:
        path: the file or folder.
        *extra_paths: additional files.
        extra_size: the size of more files in bytes.
    """
    size = size_of(Path(path)) + sum(map(size_of, extra_paths)) + extra_size
    total = load_budget(size)
    return _load_within(repr(str(path)), size, total, total * _SECONDS_PER_BYTE)


def load_text_within_budget(label: str, size: int) -> AbstractContextManager[None]:
    """Return a context for a load of text; the memory share is its limit."""
    total = _memory_share()
    seconds = _limits.minimum * _TEXT_SECONDS_PER_BYTE + size * _SECONDS_PER_CHARACTER
    return _load_within(label, size, total, seconds)


def _load_within(
    label: str, size: int, total: int, seconds: float
) -> AbstractContextManager[None]:
    current = _account.budget
    return _account.override(
        budget=current or Budget(label, size, total, total, seconds)
    )


def size_of(path: Path) -> int:
    """Return the size of a file, or of a folder's regular files; 0 if missing."""
    if path.is_dir():
        files = (p for p in path.rglob("*") if not p.is_symlink())
        return sum(p.stat().st_size for p in files if p.is_file())
    return path.stat().st_size if path.is_file() else 0


def spend(nbytes: int, description: str) -> None:
    """Subtract bytes from the budget of this thread's load, if there is one."""
    if _account.budget is not None:
        _account.budget.spend(nbytes, description)


def check_temporary(nbytes: int, description: str) -> None:
    """Raise an error if temporary memory exceeds the remaining budget.

    Args:
        nbytes: the size of all arrays that exist at the same time.
        description: the operation and its size, for the message.
    """
    if _account.budget is not None:
        _account.budget.check(nbytes, description)


def spend_time(seconds: float, description: str) -> None:
    """Subtract an estimated time from the budget of this thread's load, if any.

    Args:
        seconds: the time on one core of a common processor.
        description: the operation and its size, for the message.
    """
    if _account.budget is not None:
        _account.budget.spend_time(seconds, description)


def spend_variable(path: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Reserve a Variable in the budget of this thread's load, before its allocation.

    Args:
        path: the path of the Variable, for the message.
        shape: the shape of its initial value.
        itemsize: the size of an element in bytes.
    """
    if _account.budget is not None:
        nbytes = prod(shape) * itemsize
        label = f"the variable {path!r} of shape {shape}"
        check_temporary(_COPIES_PER_VALUE * nbytes, f"making {label}")
        spend(nbytes, label)
        spend_time(_SECONDS_PER_VARIABLE, label)


@contextmanager
def refund_at_end() -> Iterator[None]:
    """Return a context that refunds its memory at the end, for temporary objects."""
    budget = _account.budget
    remaining = 0 if budget is None else budget.remaining
    try:
        yield
    finally:
        if budget is not None:
            budget.remaining = remaining
