"""Classification of stack frames: code of the package or of the user."""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from types import FrameType, FunctionType

_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_FOLDER) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep  # counts as user code
_ISSUED = "_issued_warnings"  # an attribute of owners of warnings


def is_package_frame(frame: FrameType) -> bool:
    """Return whether a frame runs code of the package."""
    path = os.path.abspath(frame.f_code.co_filename)
    return path.startswith(_PACKAGE) and not path.startswith(_EXAMPLES)


def is_user_file(path: str) -> bool:
    """Return whether a file is neither of the package nor of the standard library."""
    if path.startswith("<frozen "):
        return False
    path = os.path.abspath(path)
    if path.startswith(_PACKAGE):
        return path.startswith(_EXAMPLES)
    in_library = path.startswith(_LIBRARY)
    return not in_library or f"{os.sep}site-packages{os.sep}" in path


def is_package_function(function: object) -> bool:
    """Return whether the code of a function, and of all that it wraps, is ours."""
    while isinstance(function, FunctionType):
        if is_user_file(function.__code__.co_filename):
            return False
        wrapped = vars(function).get("__wrapped__")
        if wrapped is None:
            return True
        function = wrapped
    return False


_num_warnings = 0


def num_warnings() -> int:
    """Return the number of warnings so far."""
    return _num_warnings


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning with the innermost line of user code as its location.

    Args:
        message: the text of the warning.
        category: the class of the warning.
    """
    global _num_warnings
    _num_warnings += 1
    frame = sys._getframe(1)
    while not is_user_file(frame.f_code.co_filename) and frame.f_back is not None:
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


def warn_once(owner: object, message: str, topic: str = "") -> None:
    """Issue a warning that an object or a class has not issued yet.

    A later copy of the owner does not repeat the warning.

    Args:
        owner: the object that stores which warnings it has issued; None: no object, so
            the warning is repeated.
        message: the text of the warning.
        topic: the key under which the warning counts as issued, if the text can differ.
    """
    if owner is not None:
        issued = _issued_warnings(owner)
        if (topic or message) in issued:
            return
        issued.add(topic or message)
    warn(message)


def _issued_warnings(owner: object) -> set[str]:
    """Return the warnings that an object or a class itself has issued."""
    issued: set[str] | None = vars(owner).get(_ISSUED)
    if issued is None:
        issued = set()
        if isinstance(owner, type):
            setattr(owner, _ISSUED, issued)
        else:  # without the `__setattr__` of layers, which would track the set
            vars(owner)[_ISSUED] = issued
    return issued
