"""Tracebacks without frames of the package, because the error is in user code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from toolkit import settings
from toolkit.console.frames import is_package_frame

Function = TypeVar("Function", bound=Callable[..., Any])


def filter_traceback(error: BaseException) -> None:
    """Remove the package's frames from the traceback, if filtering is enabled.

    A bare `raise` after it adds only the callers' frames.
    """
    if settings.is_traceback_filtering_enabled():
        error.__traceback__ = _filter_frames(error.__traceback__)


def without_frames(function: Function) -> Function:
    """Let errors of a public function have no frames of the package."""

    @wraps(function)
    def wrapper(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    return wrapper  # type: ignore[return-value]


def _filter_frames(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        if not is_package_frame(traceback.tb_frame):
            frames.append(traceback)
        traceback = traceback.tb_next
    filtered = None
    for frame in reversed(frames):
        filtered = TracebackType(
            filtered, frame.tb_frame, frame.tb_lasti, frame.tb_lineno
        )
    return filtered
