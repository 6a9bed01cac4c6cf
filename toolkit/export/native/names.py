"""Names of the files and functions of a native library."""

from __future__ import annotations

import re
from pathlib import PurePath

from toolkit.errors import ArgumentError

OBJECT, STATIC, SHARED, MODULE = "object", "static", "shared", "wasm"

# Ending -> kind of file.
KINDS = {
    ".o": OBJECT,
    ".a": STATIC,
    ".so": SHARED,
    ".dylib": SHARED,
    ".wasm": MODULE,
}
_WITH_LIB = (".a", ".so", ".dylib")  # linkers find libdigits.so for -ldigits


def stem_of(path: PurePath) -> str:
    """Return the common stem of the file names: digits for libdigits.so."""
    stem = path.stem
    if path.suffix.lower() in _WITH_LIB and stem.startswith("lib") and len(stem) > 3:
        return stem[3:]
    return stem


def prefix_of(path: PurePath) -> str:
    """Return the prefix of the functions: the stem as a C identifier."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", stem_of(path))
    # C reserves identifiers that start with an underscore.
    return name if re.match("[A-Za-z]", name) else f"m{name}"


def validate_prefix(label: str, prefix: str) -> str:
    """Return a valid prefix, or raise an error."""
    if not re.fullmatch("[A-Za-z][0-9A-Za-z_]*", prefix):
        raise ArgumentError(
            f"{label}: prefix: expected a name in C; received {prefix!r}"
        )
    return prefix
