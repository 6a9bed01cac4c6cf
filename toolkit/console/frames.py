"""Whose code a frame of the stack is: the package's own, or the user's."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_HERE) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep  # as good as the user's


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs the package's own code."""
    path = os.path.abspath(frame.f_code.co_filename)
    return path.startswith(_PACKAGE) and not path.startswith(_EXAMPLES)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that led here, however many of the package's are between.

    Args:
        message: what the user should know.
        category: the class of the warning.
    """
    frame = sys._getframe(1)
    while is_own(frame) and frame.f_back is not None:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__", "<string>"),
        names.setdefault("__warningregistry__", {}),
    )
