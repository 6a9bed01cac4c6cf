"""Classification of stack frames: code of the package or of the user."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_FOLDER) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep  # counts as user code


def is_package_frame(frame: FrameType) -> bool:
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
    while is_package_frame(frame) and frame.f_back is not None:
        frame = frame.f_back
    module_globals = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module_globals.get("__name__", "<string>"),
        module_globals.setdefault("__warningregistry__", {}),
    )
