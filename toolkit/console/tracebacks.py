"""Tracebacks without frames of the package, because the error is in user code."""

from __future__ import annotations

from types import TracebackType

from toolkit import settings
from toolkit.console.frames import is_own


def shorten(error: BaseException) -> None:
    """Remove the package's frames from the traceback, if filtering is enabled.

    A bare `raise` after it adds only the callers' frames.
    """
    if settings.is_traceback_filtering_enabled():
        error.__traceback__ = _filtered(error.__traceback__)


def _filtered(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        if not is_own(traceback.tb_frame):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
