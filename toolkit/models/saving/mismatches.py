"""Where file and model differ: told as one error, or as one warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit.console.frames import warn
from toolkit.errors import ModelFileError

_MAX_LINES = 1_000  # of a message


class Mismatch(NamedTuple):
    """Something in which file and model differ."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def misfit(where: str) -> str:
    """What a refusal of a file begins with."""
    return f"load_weights: {where!r} does not fit the model, and nothing was changed"


def tell(mismatches: Sequence[Mismatch], refusal: str | None) -> None:
    """Raise or warn, if there are any.

    Args:
        mismatches: all of them.
        refusal: what the error begins with; None: the rest is loaded, with a warning.

    Raises:
        ModelFileError: listing every mismatch.
    """
    if not mismatches:
        return
    lines = [str(mismatch) for mismatch in mismatches[:_MAX_LINES]]
    if len(mismatches) > _MAX_LINES:
        lines.append(f"and {len(mismatches) - _MAX_LINES:,} more")
    text = "\n  ".join(lines)
    if refusal is not None:
        raise ModelFileError(f"{refusal}:\n  {text}")
    warn(f"load_weights: left as it was:\n  {text}")
