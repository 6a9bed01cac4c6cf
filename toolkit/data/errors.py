"""Notes on errors: the stage, element and file where an error occurred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.errors import ArgumentTypeError

MARK = "data set: "


def describe_location(
    stage: str, index: int, origin: str | None, detail: str = ""
) -> str:
    """Return the text for a stage and an element; `detail` describes the arguments."""
    where = f", from {origin}" if origin else ""
    return f"stage {stage}, element {index:,}{where}" + (detail and f", in {detail}")


def add_location_note(error: BaseException, where: str) -> None:
    """Add a note with the location to an error; only the innermost one is kept."""
    if not any(text.startswith(MARK) for text in getattr(error, "__notes__", ())):
        error.add_note(MARK + where)


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name for messages."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def missing_result_error(predicate: Callable[..., Any]) -> ArgumentTypeError:
    """Return the error for a predicate that returned None."""
    return ArgumentTypeError(
        f"{name_of(predicate)}: expected a boolean; received None, which is the "
        "result of a function without `return`"
    )


def unpack_tuple(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function of an element that unpacks a tuple into arguments.

    A named tuple or a dict is one argument.
    """

    def call(element: Any) -> Any:
        try:
            if type(element) is tuple:
                return function(*element)
            return function(element)
        except StopIteration as error:  # would look like the end of the elements
            raise RuntimeError(f"{name_of(function)} raised StopIteration") from error

    return call
