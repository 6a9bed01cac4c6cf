"""The values of Variables on a task, which all its sessions share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from toolkit.compat.tensorflow.v1.cluster.frames import FrameError
from toolkit.compat.tensorflow.v1.plan import FailedPreconditionError
from toolkit.errors import ShapeError, StalledError
from toolkit.ir import Spec

MOST = 1_000_000


class Cell:
    """The value of one Variable: an array that nobody changes, or None.

    Args:
        name: of the Variable.
        spec: of its values.
    """

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.array: Any = None
        self.changed: threading.Condition = threading.Condition(threading.RLock())

    def read(self) -> Any:
        """The value.

        Raises:
            FailedPreconditionError: if there is none.
        """
        if self.array is None:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {self.name}; run its "
                "initializer or tf.global_variables_initializer() first"
            )
        return self.array

    def write(self, array: Any) -> None:
        """Replace the value, inside of `locked`."""
        found = Spec(array.shape, array.dtype.name)
        if found != self.spec:
            raise ShapeError(
                f"variable {self.name}: expected a value of {self.spec}; received one "
                f"of {found}"
            )
        self.array = array
        self.changed.notify_all()

    def wait_above(
        self, value: int, patience: float, check: Callable[[], None]
    ) -> None:
        """Return as soon as its number is above another one.

        Args:
            value: that one.
            patience: seconds to wait for it.
            check: called now and then, to raise what ends the waiting.

        Raises:
            StalledError: it did not come.
        """
        end = time.monotonic() + patience
        while True:
            with self.changed:
                if self.read() > value:
                    return
                self.changed.wait(0.05)
            check()
            if time.monotonic() > end:
                raise StalledError(
                    f"waited {patience:g} s for {self.name} to be above {value}: "
                    "other workers that take part in this step are late or lost"
                )


class Store:
    """The Variables of a task, by name."""

    def __init__(self) -> None:
        self._cells: dict[str, Cell] = {}
        self._lock = threading.Lock()

    def cell(self, name: str, spec: Spec) -> Cell:
        """The Variable of this name, made if there is none.

        Raises:
            ShapeError: if there is one of another shape or dtype.
        """
        with self._lock:
            if len(self._cells) >= MOST and name not in self._cells:
                raise FrameError(f"a task holds at most {MOST:,} Variables")
            found = self._cells.setdefault(name, Cell(name, spec))
        if found.spec != spec:
            raise ShapeError(
                f"variable {name}: expected {found.spec}, as another session made it; "
                f"received {spec}"
            )
        return found

    def existing(self, name: str) -> Cell:
        """The Variable of this name.

        Raises:
            FailedPreconditionError: if there is none.
        """
        if name not in self._cells:
            raise FailedPreconditionError(f"there is no Variable {name}")
        return self._cells[name]

    def known(self, names: Iterable[str]) -> list[bool]:
        """Which Variables have a value."""
        cells = [self._cells.get(name) for name in names]
        return [cell is not None and cell.array is not None for cell in cells]

    def forget(self, prefix: str) -> None:
        """Let go of the Variables whose names begin so."""
        with self._lock:
            for name in [name for name in self._cells if name.startswith(prefix)]:
                del self._cells[name]


@contextmanager
def locked(cells: Iterable[Cell]) -> Iterator[None]:
    """Hold Variables, in one order, so that no two threads block each other."""
    taken = []
    try:
        for cell in sorted(set(cells), key=lambda cell: cell.name):
            cell.changed.acquire()
            taken.append(cell)
        yield
    finally:
        for cell in taken:
            cell.changed.release()
