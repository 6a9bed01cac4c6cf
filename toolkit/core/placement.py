"""What a Variable asks of whoever splits it over the processes of a job."""

from __future__ import annotations

from typing import Any, Protocol

from toolkit.backends.base import on_host, owner_of


class Placement(Protocol):
    """Which part of a Variable's value a process of a job holds."""

    def part(self, array: Any) -> Any:
        """That part of a whole value."""

    def whole(self, array: Any) -> Any:
        """The whole value, from the parts of all processes, which all call this."""

    def box(self) -> tuple[tuple[int, int], ...]:
        """Where that part is: along each axis its first index, and the one behind."""


def held(variable: Any) -> Any:
    """What this process holds of a Variable: the array itself, if it is on the host.

    Whoever reads it has the Variable's lock: programs write into it.
    """
    return on_host(variable.own_buffer())


def hold(variable: Any, part: Any) -> None:
    """Replace what this process holds of a Variable."""
    with variable.lock:
        buffer = variable.own_buffer()
        owner = owner_of(buffer)
        if owner is None:
            buffer[...] = part
        else:
            owner.overwrite(buffer, part)


def move(variable: Any, placement: Placement | None, whole: Any) -> None:
    """Hold another part of a Variable, which has a whole value that is known here."""
    with variable.lock:
        variable._placement = placement
        part = whole if placement is None else placement.part(whole)
        variable._tensor = variable._held(part)
        variable._shared, variable._spare = True, None
