"""Placement: the interface of a Variable whose value is split over processes."""

from __future__ import annotations

from typing import Any, Protocol

from toolkit.backends.memory import memory_of, to_host


class Placement(Protocol):
    """The part of a Variable's value that a process of a job holds."""

    def take_local(self, array: Any) -> Any:
        """Return the local part of a whole value."""

    def gather(self, array: Any) -> Any:
        """Return the whole value from the parts of all processes; all call this."""

    def local_bounds(self) -> tuple[tuple[int, int], ...]:
        """Return the range of the local part along each axis: start and stop."""


def local_shard(variable: Any) -> Any:
    """Return the local shard of a Variable: the array itself, if it is on the host.

    The caller must hold the Variable's lock, because programs write to the array.
    """
    return to_host(variable.exclusive_buffer())


def set_local_shard(variable: Any, shard: Any) -> None:
    """Replace the local shard of a Variable."""
    with variable.lock:
        buffer = variable.exclusive_buffer()
        memory = memory_of(buffer)
        if memory is None:
            buffer[...] = shard
        else:
            memory.overwrite(buffer, shard)


def change_placement(variable: Any, placement: Placement | None, value: Any) -> None:
    """Change the placement of a Variable whose whole value is given."""
    with variable.lock:
        variable._placement = placement
        shard = value if placement is None else placement.take_local(value)
        variable._tensor = variable._wrap_value(shard)
        variable._shared, variable._spare = True, None
