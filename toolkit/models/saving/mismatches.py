"""Mismatches between file and model, reported as one error or one warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit.console.frames import warn
from toolkit.errors import ModelFileError

_MAX_LINES = 1_000  # of a message


class Mismatch(NamedTuple):
    """Mismatch between file and model."""

    name: str
    description: str

    def __str__(self) -> str:
        return f"{self.name}: {self.description}"


def mismatch_message(path: str) -> str:
    """Return the start of an error message for a file."""
    return f"load_weights: {path!r} does not fit the model. The model is unchanged"


def report_mismatches(mismatches: Sequence[Mismatch], refusal: str | None) -> None:
    """Raise or warn, if there are mismatches.

    Args:
        mismatches: all of them.
        refusal: the start of the error message; None: load the rest, with a warning.

    Raises:
        ModelFileError: with a list of all mismatches.
    """
    if not mismatches:
        return
    lines = [str(mismatch) for mismatch in mismatches[:_MAX_LINES]]
    if len(mismatches) > _MAX_LINES:
        lines.append(f"and {len(mismatches) - _MAX_LINES:,} more")
    text = "\n  ".join(lines)
    if refusal is not None:
        raise ModelFileError(f"{refusal}:\n  {text}")
    warn(f"load_weights: these weights are unchanged:\n  {text}")
