"""Classification of stack frames: code of the package or of the user."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_HERE) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep  # counts as user code


def is_own(frame: FrameType) -> bool:
    """Return whether a frame runs code of the package."""
    path = os.path.abspath(frame.f_code.co_filename)
    return path.startswith(_PACKAGE) and not path.startswith(_EXAMPLES)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning with the innermost line of user code as its location.

    Args:
        message: the text of the warning.
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
