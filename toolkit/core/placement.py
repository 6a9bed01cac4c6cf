"""What a Variable asks of whoever splits it over the processes of a job."""

from __future__ import annotations

from typing import Any, Protocol


class Placement(Protocol):
    """Which part of a Variable's value a process of a job holds."""

    def part(self, array: Any) -> Any:
        """That part of a whole value."""

    def whole(self, array: Any) -> Any:
        """The whole value, from the parts of all processes, which all call this."""
