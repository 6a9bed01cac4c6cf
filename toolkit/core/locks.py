"""Several Variables at one moment: their locks, and whether any has changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


class Changes:
    """Whether any Variable of the process has got another buffer.

    Who has seen a mark while it held the locks of some Variables, and sees the same one
    later, knows without locks that these have the buffers that they had.
    """

    def __init__(self) -> None:
        self.mark = object()

    def note(self) -> None:
        """A Variable, whose lock is held, is about to get another buffer."""
        self.mark = object()  # unlike every mark that somebody still knows


changes = Changes()


class Locks:
    """The locks of Variables, taken in one order, so that no two threads block."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self.locks: list[threading.RLock] = [v.lock for v in sorted(variables, key=id)]
        # A step takes tens of them: to look the methods up takes as long as to call.
        self._take = [lock.acquire for lock in self.locks]
        self._give = [lock.release for lock in self.locks]

    def __enter__(self) -> None:
        taken = 0
        try:
            for take in self._take:
                take()
                taken += 1
        except BaseException:  # interrupted while another thread's step runs
            for give in self._give[:taken]:
                give()
            raise

    def __exit__(self, *exception: object) -> None:
        for give in self._give:
            give()


def commit_all(variables: list[Variable], arrays: list[Any]) -> None:
    """Give every Variable its new value; an interrupt finishes the job first."""
    try:
        for variable, array in zip(variables, arrays, strict=True):
            variable.commit(array)
    except BaseException:
        # Committing the same buffer twice changes nothing, so start over.
        for variable, array in zip(variables, arrays, strict=True):
            variable.commit(array)
        raise
