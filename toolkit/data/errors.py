"""What an error is told on its way to the user: which stage, element and file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.errors import ArgumentTypeError

MARK = "data set: "


def place(stage: str, index: int, origin: str | None, detail: str = "") -> str:
    """A stage and an element in words; `detail` is what the stage was given."""
    where = f", from {origin}" if origin else ""
    return f"stage {stage}, element {index:,}{where}" + (detail and f", in {detail}")


def note(error: BaseException, where: str) -> None:
    """Note on an error where it happened; only the innermost place is noted."""
    if not any(text.startswith(MARK) for text in getattr(error, "__notes__", ())):
        error.add_note(MARK + where)


def name_of(function: Callable[..., Any]) -> str:
    """A function's name, for messages."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def no_answer(predicate: Callable[..., Any]) -> ArgumentTypeError:
    """The error of a predicate that gave None."""
    return ArgumentTypeError(
        f"{name_of(predicate)}: expected a boolean; received None, which a function "
        "without `return` gives"
    )


def spread(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of an element whose parts, if it is a tuple, become arguments.

    A named tuple is one argument, as a dict is.
    """

    def call(element: Any) -> Any:
        try:
            if type(element) is tuple:
                return function(*element)
            return function(element)
        except StopIteration as error:  # it would pass for the end of the elements
            raise RuntimeError(f"{name_of(function)} raised StopIteration") from error

    return call
