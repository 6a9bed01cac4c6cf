"""Static arguments of traced functions, and specs that arguments must match."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.ir import Spec


def static_key(leaf: object) -> tuple[type, object]:
    """Return a key for a static argument:

    Python values by value, all else by identity.
    """
    if leaf is None or isinstance(leaf, (bool, int, float, str, bytes)):
        return type(leaf), repr(leaf)
    return type(leaf), id(leaf)


def matches_spec(spec: Spec, expected: Any) -> bool:
    """Return whether a tensor's spec fits an expected one; None fits any extent."""
    if spec.ndim != len(expected.shape) or spec.dtype != dtypes.standardize(
        expected.dtype
    ):
        return False
    extents = zip(spec.shape, expected.shape, strict=True)
    return all(n is None or m == n for m, n in extents)
