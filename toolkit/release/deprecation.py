"""Warnings for deprecated names: docs/versions.md has the rules.

A warning has the line of the user's code as its location, so Python shows it once for
each line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from toolkit.console.frames import warn

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def warn_deprecated(
    subject: str, advice: str, *, since: str, removal: str | None = None
) -> None:
    """Issue a DeprecationWarning at the innermost line of user code.

    Args:
        subject: the deprecated name or argument, in the words of the message.
        advice: the replacement, such as "use `ops.abs`".
        since: the version that deprecates the name.
        removal: the version that removes the name; None keeps it as long as Keras 3
            accepts it.
    """
    end = f", and version {removal} removes it" if removal else ""
    warn(
        f"{subject} is deprecated since version {since}{end}; {advice}",
        DeprecationWarning,
    )


def deprecated(
    advice: str, *, since: str, removal: str | None = None
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Return a decorator for a deprecated function or method.

    The function works as before, and a call of it warns.

    Args:
        advice: the replacement, such as "use `ops.abs`".
        since: the version that deprecates the function.
        removal: the version that removes it; None keeps it as long as Keras 3 has it.
    """

    def decorate(
        function: Callable[_Parameters, _Result],
    ) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            warn_deprecated(
                f"`{function.__name__}`", advice, since=since, removal=removal
            )
            return function(*args, **kwargs)

        return call

    return decorate
