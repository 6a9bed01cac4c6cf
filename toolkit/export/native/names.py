"""How the files and functions of a native library are called."""

from __future__ import annotations

import re
from pathlib import PurePath

from toolkit.errors import ArgumentError

OBJECT, STATIC, SHARED, MODULE = "object", "static", "shared", "wasm"

# Ending -> what kind of file it is.
KINDS = {
    ".o": OBJECT,
    ".a": STATIC,
    ".so": SHARED,
    ".dylib": SHARED,
    ".wasm": MODULE,
}
_WITH_LIB = (".a", ".so", ".dylib")  # which linkers call libdigits.so for -ldigits


def stem_of(path: PurePath) -> str:
    """The name that the files beside it share: digits of libdigits.so."""
    stem = path.stem
    if path.suffix.lower() in _WITH_LIB and stem.startswith("lib") and len(stem) > 3:
        return stem[3:]
    return stem


def prefix_of(path: PurePath) -> str:
    """What its functions begin with: the stem, as C writes names."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", stem_of(path))
    # Names of C that begin with an underscore are not for programs.
    return name if re.match("[A-Za-z]", name) else f"m{name}"


def checked_prefix(label: str, prefix: str) -> str:
    """A prefix that is given."""
    if not re.fullmatch("[A-Za-z][0-9A-Za-z_]*", prefix):
        raise ArgumentError(
            f"{label}: prefix: expected a name in C; received {prefix!r}"
        )
    return prefix
