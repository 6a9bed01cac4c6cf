"""Functions that a shell around the package has called at certain moments."""

from __future__ import annotations

from collections.abc import Callable

# Called after layers and optimizers have made their Variables.
on_new_variables: list[Callable[[], None]] = []


def new_variables() -> None:
    """Call the functions that wait for new Variables."""
    for function in on_new_variables:
        function()
