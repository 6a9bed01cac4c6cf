"""Tracebacks without frames of the package, because the error is in user code."""

from __future__ import annotations

from types import TracebackType

from toolkit import settings
from toolkit.console.frames import is_package_frame


def filter_traceback(error: BaseException) -> None:
    """Remove the package's frames from the traceback, if filtering is enabled.

    A bare `raise` after it adds only the callers' frames.
    """
    if settings.is_traceback_filtering_enabled():
        error.__traceback__ = _filter_frames(error.__traceback__)


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
