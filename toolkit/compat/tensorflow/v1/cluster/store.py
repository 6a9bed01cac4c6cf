"""The values of Variables on a task, shared by all its sessions."""

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
    """The value of one Variable: an immutable array, or None.

    Args:
        name: of the Variable.
        spec: of its values.
    """

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.array: Any = None
        self.changed: threading.Condition = threading.Condition(threading.RLock())

    def read(self) -> Any:
        """Return the value.

        Raises:
            FailedPreconditionError: if there is no value.
        """
        if self.array is None:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value {self.name}; run its "
                "initializer or tf.global_variables_initializer() first"
            )
        return self.array

    def write(self, array: Any) -> None:
        """Replace the value, within `locked`."""
        spec = Spec(array.shape, array.dtype.name)
        if spec != self.spec:
            raise ShapeError(
                f"variable {self.name}: expected a value of {self.spec}; received one "
                f"of {spec}"
            )
        self.array = array
        self.changed.notify_all()

    def wait_above(
        self, value: int, patience: float, check: Callable[[], None]
    ) -> None:
        """Wait until the value is above a number.

        Args:
            value: the number.
            patience: the timeout in seconds.
            check: called repeatedly; raises to stop the wait.

        Raises:
            StalledError: the wait timed out.
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
                    "other workers of this step are late or lost"
                )


class Store:
    """The Variables of a task, by name."""

    def __init__(self) -> None:
        self._cells: dict[str, Cell] = {}
        self._lock = threading.Lock()

    def cell(self, name: str, spec: Spec) -> Cell:
        """Return the Variable with this name; create it if it does not exist.

        Raises:
            ShapeError: if the existing one has another shape or dtype.
        """
        with self._lock:
            if len(self._cells) >= MOST and name not in self._cells:
                raise FrameError(f"a task holds at most {MOST:,} Variables")
            cell = self._cells.setdefault(name, Cell(name, spec))
        if cell.spec != spec:
            raise ShapeError(
                f"variable {name}: expected {cell.spec}, as in another session; "
                f"received {spec}"
            )
        return cell

    def existing(self, name: str) -> Cell:
        """Return the Variable with this name.

        Raises:
            FailedPreconditionError: if it does not exist.
        """
        if name not in self._cells:
            raise FailedPreconditionError(f"Variable {name} does not exist")
        return self._cells[name]

    def are_initialized(self, names: Iterable[str]) -> list[bool]:
        """Return for each Variable whether it has a value."""
        cells = [self._cells.get(name) for name in names]
        return [cell is not None and cell.array is not None for cell in cells]

    def forget(self, prefix: str) -> None:
        """Remove the Variables whose names have a prefix."""
        with self._lock:
            for name in [name for name in self._cells if name.startswith(prefix)]:
                del self._cells[name]


@contextmanager
def lock_cells(cells: Iterable[Cell]) -> Iterator[None]:
    """Lock Variables in a fixed order, to prevent deadlocks."""
    locks = []
    try:
        for cell in sorted(set(cells), key=lambda cell: cell.name):
            cell.changed.acquire()
            locks.append(cell)
        yield
    finally:
        for cell in locks:
            cell.changed.release()
