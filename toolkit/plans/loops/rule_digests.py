"""Digests of scalar rules: if a formula changes, the cached machine code is stale.

A rule is defined next to its operation, possibly in another package. The source of the
code generators therefore does not identify it. A digest evaluates the rule once on
symbolic names and hashes the recorded operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.ir import Node
from toolkit.ir.scalars import SCALARS, Rule, summarize_rule

_DIGITS = 16


def rule_digest(rule: Rule | None, count: int, attrs: tuple[Any, ...]) -> str:
    """Return a digest of the computation of a scalar rule; "" without a rule.

    Args:
        rule: the scalar rule of a primitive.
        count: the number of inputs.
        attrs: pairs of names and values.
    Example:
        >>> square = rule_digest(lambda s, x: s.multiply(x, x), 1, ())
        >>> square == rule_digest(lambda s, x: s.multiply(x, s.abs(x)), 1, ())
        False
    """
    if rule is None:
        return ""
    summary = summarize_rule(rule, ("",) * count, attrs)
    llvm_rules = (SCALARS[name].llvm for name, _ in summary.words)
    texts = [summary.text, *(source_digest(f) for f in llvm_rules if callable(f))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_DIGITS]


@cache
def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source file, or of its code without a file."""
    code = function.__code__
    path = Path(code.co_filename)
    content = path.read_bytes() if path.is_file() else code.co_code
    facts = code.co_qualname, code.co_firstlineno, code.co_consts
    return hashlib.sha256(content + repr(facts).encode()).hexdigest()


def scalar_operations_of(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the scalar operations of a node's rule, each with its last dtype."""
    dtypes = tuple(x.spec.dtype for x in node.inputs)
    return summarize_rule(node.op.scalar, dtypes, tuple(node.attrs.items())).words
