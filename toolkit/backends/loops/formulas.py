"""What a scalar rule says, as a digest: other formulas, other machine code.

Rules stand beside their operations, or in other packages, so the source of the
generators does not tell them apart. A rule is run once on names, and what it asks of
the vocabulary is written down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.ir import Node
from toolkit.ir.scalars import SCALARS, Rule, said

_DIGITS = 16


def formula(rule: Rule | None, count: int, attrs: tuple[Any, ...]) -> str:
    """A digest of what a rule computes; "" for what is not elementwise.

    Args:
        rule: the scalar rule of a primitive.
        count: how many inputs it has.
        attrs: pairs of names and values.

    Example:
        >>> square = formula(lambda s, x: s.multiply(x, x), 1, ())
        >>> square == formula(lambda s, x: s.multiply(x, s.abs(x)), 1, ())
        False
    """
    if rule is None:
        return ""
    found = said(rule, ("",) * count, attrs)
    written = (SCALARS[name].llvm for name, _ in found.words)
    texts = [found.text, *(source_digest(f) for f in written if callable(f))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_DIGITS]


@cache
def source_digest(function: Callable[..., Any]) -> str:
    """A digest of the file that a function is written in; without one, of its code."""
    code = function.__code__
    path = Path(code.co_filename)
    content = path.read_bytes() if path.is_file() else code.co_code
    known = code.co_qualname, code.co_firstlineno, code.co_consts
    return hashlib.sha256(content + repr(known).encode()).hexdigest()


def words_of(node: Node) -> tuple[tuple[str, str], ...]:
    """The words of a node's scalar rule, each with the dtype of its last operand."""
    dtypes = tuple(x.spec.dtype for x in node.inputs)
    return said(node.op.scalar, dtypes, tuple(node.attrs.items())).words
