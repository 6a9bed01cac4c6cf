"""How much memory and time loading one file may take, with all that the file has made.

Limits of parts multiply: a ZIP may unpack to a thousand times its size, and the HDF5
file in it again. So there is one account for a whole load; whatever makes bytes of what
a file says asks for them here first. Time is an estimate from the number of objects,
weights and graph nodes, so a file is refused on every machine or on none.
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

_NEVER_LESS = 8  # times the file: what reading it takes where memory is short
# Seconds of work for each byte of the memory budget. The smallest budget, 64 MB, allows
# 2 seconds. A layer with weights takes 2 KB of a file, so it has 4 ms; it needs 1 to 3.
_SECONDS = 2 / (1 << 26)
# A JSON config has no weights. Its length says how many layers it has, of 200 bytes or
# more; the constant is for initializers that take long, such as Orthogonal.
_SECONDS_OF_TEXT = 2 * _SECONDS  # for each byte of the smallest budget
_SECONDS_OF_CHARACTER = 1e-5
_SECONDS_OF_VARIABLE = 3e-4
_COPIES_OF_VALUE = 3  # arrays of the size of a first value while an initializer runs


@dataclass
class _Limits:
    ratio: float = 64
    share: float = 0.5
    least: int = 1 << 26


@dataclass
class Budget:
    """What is left of the bytes that a load may take."""

    label: str
    size: int
    total: int
    left: int
    seconds: float

    def spend(self, nbytes: int, what: str) -> None:
        """Take bytes from it, or raise."""
        self.check(nbytes, what)
        self.left -= nbytes

    def check(self, nbytes: int, what: str) -> None:
        """Raise if these bytes are more than the budget has left."""
        if nbytes > self.left:
            raise LoadBudgetError(
                f"{self.label}: {what} takes {nbytes:,} bytes, far more than the file "
                f"holds: refused. Loading one of {self.size:,} bytes may take "
                f"{self.total:,} in all, of which {self.left:,} are left; "
                "toolkit.saving.set_load_budget sets that"
            )

    def spend_time(self, seconds: float, what: str) -> None:
        """Take an estimated time from the budget, or raise."""
        if seconds > self.seconds:
            raise LoadBudgetError(
                f"{self.label}: {what} would make loading take far longer than "
                f"{self.size:,} bytes allow: refused. The time of a load is in "
                "proportion to its memory, which toolkit.saving.set_load_budget sets"
            )
        self.seconds -= seconds


class _Account(ThreadState):
    """The budget of the load that this thread is in the middle of."""

    budget: Budget | None = None


_limits = _Limits()
_account = _Account()


def set_load_budget(
    ratio: float = 64, share: float = 0.5, least: int = 1 << 26
) -> None:
    """Set how much memory loading one file may take; without arguments, the default.

    Everything that a load makes counts: what is unpacked, arrays, the weights that a
    config asks for, and vocabularies. The estimated time of a load is limited in
    proportion: 2 seconds for each 64 MB of the budget. JSON text has 4 seconds for
    each 64 MB of `least`.

    Args:
        ratio: how many times the size of the file. `float("inf")` is no limit but
            `share`.
        share: the part of the machine's memory, in (0, 1], that is never exceeded; but
            eight times the size of the file is always allowed.
        least: bytes that are allowed for the smallest file.

    Raises:
        ArgumentError: a number is negative or none.

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
    _limits.ratio, _limits.share, _limits.least = ratio, share, int(least)


def load_budget(size: int) -> int:
    """How many bytes loading a file of this many bytes may take.

    Args:
        size: of the file, as it lies on disk.

    Example:
        >>> import toolkit
        >>> toolkit.saving.load_budget(16 << 10) >> 20
        64
    """
    most = int(min(_limits.ratio * size, _share()))
    return max(_limits.least, _NEVER_LESS * size, most)


def limit_of_load() -> int:
    """Bytes that all of this thread's load may take; outside of one, the share."""
    budget = _account.budget
    return _share() if budget is None else budget.total


def _share() -> int:
    """Bytes that loads may take of the machine's memory."""
    return int(_limits.share * _memory())


@cache
def _memory() -> int:
    """Bytes of memory that this process can have."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system
        found = 1 << 34
    try:  # of a container
        return min(found, int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    except (OSError, ValueError):
        return found


def limited_load(
    path: Path | str, *others: Path, more: int = 0
) -> AbstractContextManager[None]:
    """A load of a file, or of all files in a folder, within its budget.

    Inside of another load it is a part of that.

    Args:
        path: of the file or folder.
        *others: files that belong to it.
        more: bytes of further files that do.
    """
    size = size_of(Path(path)) + sum(map(size_of, others)) + more
    total = load_budget(size)
    return _load_within(repr(str(path)), size, total, total * _SECONDS)


def limited_text(label: str, size: int) -> AbstractContextManager[None]:
    """A load of what no file holds: it may take the share of the machine's memory."""
    total = _share()
    seconds = _limits.least * _SECONDS_OF_TEXT + size * _SECONDS_OF_CHARACTER
    return _load_within(label, size, total, seconds)


def _load_within(
    label: str, size: int, total: int, seconds: float
) -> AbstractContextManager[None]:
    known = _account.budget
    return _account.inside(budget=known or Budget(label, size, total, total, seconds))


def size_of(path: Path) -> int:
    """The bytes of a file, or of the plain files in a folder; 0 if there is none."""
    if path.is_dir():
        inside = (p for p in path.rglob("*") if not p.is_symlink())
        return sum(p.stat().st_size for p in inside if p.is_file())
    return path.stat().st_size if path.is_file() else 0


def spend(nbytes: int, what: str) -> None:
    """Take bytes from the budget of this thread's load; outside of one, do nothing."""
    if _account.budget is not None:
        _account.budget.spend(nbytes, what)


def check_temporary(nbytes: int, what: str) -> None:
    """Raise if memory for a moment does not fit into what this thread's load has left.

    Args:
        nbytes: of the arrays that exist at the same time.
        what: the operation and its size, for the message.
    """
    if _account.budget is not None:
        _account.budget.check(nbytes, what)


def spend_time(seconds: float, what: str) -> None:
    """Take an estimated time from the budget of this thread's load, if there is one.

    Args:
        seconds: on one core of a common processor.
        what: the operation and its size, for the message.
    """
    if _account.budget is not None:
        _account.budget.spend_time(seconds, what)


def spend_variable(path: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Take a Variable from the budget of this thread's load, before it has memory.

    Args:
        path: of the Variable, for the message.
        shape: of its first value.
        itemsize: bytes of an element.
    """
    if _account.budget is not None:
        nbytes = prod(shape) * itemsize
        label = f"the variable {path!r} of shape {shape}"
        check_temporary(_COPIES_OF_VALUE * nbytes, f"making {label}")
        spend(nbytes, label)
        spend_time(_SECONDS_OF_VARIABLE, label)


@contextmanager
def refunded() -> Iterator[None]:
    """Give memory back to the budget at the end, for objects that only last as long."""
    budget = _account.budget
    left = 0 if budget is None else budget.left
    try:
        yield
    finally:
        if budget is not None:
            budget.left = left
