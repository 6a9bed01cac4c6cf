"""Tracebacks without the package's own frames, as the user's mistake is elsewhere."""

from __future__ import annotations

import os
from types import TracebackType

from toolkit import config

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep  # as good as the user's


def shorten(error: BaseException) -> None:
    """Drop the package's frames from the traceback, if filtering is enabled.

    A bare `raise` after it adds the callers' frames alone.
    """
    if config.is_traceback_filtering_enabled():
        error.__traceback__ = _filtered(error.__traceback__)


def _filtered(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        path = os.path.abspath(traceback.tb_frame.f_code.co_filename)
        if not path.startswith(_PACKAGE) or path.startswith(_EXAMPLES):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
