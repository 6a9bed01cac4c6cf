"""Consistent access to several Variables: their locks, and a mark of changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


class Changes:
    """Mark that changes when any Variable of the process gets another buffer.

    A reader stores the mark while it holds the locks of some Variables. If the mark is
    the same later, these Variables have the same buffers, and no lock is needed.
    """

    def __init__(self) -> None:
        self.mark = object()
        # The number of assignments outside of steps. A Variable stores its last one.
        self.num_assignments = 0
        self._assignment_lock = threading.Lock()

    def note(self) -> None:
        """Record that a Variable with a held lock is about to get another buffer."""
        self.mark = object()  # different from every mark that a reader stored

    def note_assignments(self, variables: Iterable[Variable]) -> None:
        """Record that Variables have values from outside of the steps of a job."""
        with self._assignment_lock:
            number = self.num_assignments + 1
            for variable in variables:
                variable.last_assignment = number
            self.num_assignments = number


changes = Changes()


class Locks:
    """Locks of Variables, acquired in one order, so that threads cannot deadlock."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self.locks: list[threading.RLock] = [v.lock for v in sorted(variables, key=id)]
        # A step acquires tens of locks: the lookup of a method costs as much as its
        # call.
        self._take = [lock.acquire for lock in self.locks]
        self._give = [lock.release for lock in self.locks]

    def __enter__(self) -> None:
        acquired = 0
        try:
            for take in self._take:
                take()
                acquired += 1
        except BaseException:  # interrupted while the step of another thread runs
            for give in self._give[:acquired]:
                give()
            raise

    def __exit__(self, *exception: object) -> None:
        for give in self._give:
            give()


def commit_all(variables: list[Variable], arrays: list[Any]) -> None:
    """Commit a new value to every Variable; an interrupt is raised afterwards."""
    try:
        for variable, array in zip(variables, arrays, strict=True):
            variable.commit(array)
    except BaseException:
        # A second commit of the same buffer has no effect, so start over.
        for variable, array in zip(variables, arrays, strict=True):
            variable.commit(array)
        raise
