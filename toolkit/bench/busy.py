"""Process that only uses a processor, beside a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.processes import exit_with_parent

_INPUT = 0  # the file descriptor of the standard input, which the parent keeps open


def main(arguments: Sequence[str]) -> None:
    """Compute until the standard input is closed; `arguments` have no effect."""
    exit_with_parent(_INPUT)
    while True:
        pass
