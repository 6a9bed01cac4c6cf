"""What rewritten control flow calls: Python runs it unless a value is only traced.

The names that a branch or a body assigns are its state. `get` reads them all, `set`
assigns them; what they hold is split into leaves, of which the numbers and tensors go
through the graph and everything else must stay the same.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.autograph import calls, sources
from toolkit.compat.tensorflow.autograph.branches import if_
from toolkit.compat.tensorflow.autograph.loops import for_, while_
from toolkit.compat.tensorflow.autograph.parts import read, set_attribute, set_item
from toolkit.compat.tensorflow.autograph.values import Undefined, unknown

__all__ = ["Undefined", "and_", "called", "compare", "for_", "if_", "if_expression"]
__all__ += ["iterated", "not_", "or_", "read", "set_attribute", "set_item", "while_"]


def converted(function: Any) -> Any:
    """The function with its control flow rewritten; it if that cannot be."""
    return sources.convert(function, sys.modules[__name__])


def called(function: Any) -> Any:
    """What is called for `function(...)`."""
    return calls.called(function, converted)


def iterated(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What `for ... in function(...)` iterates over."""
    return calls.iterated(function, converted, args, kwargs)


def if_expression(test: Any, body: Any, orelse: Any) -> Any:
    """`body() if test else orelse()`"""
    if not unknown(test):
        return body() if test else orelse()
    return ops.cond(test, body, orelse)


def and_(*parts: Callable[[], Any]) -> Any:
    """The parts joined by `and`; none is evaluated that Python would not."""
    first, *rest = parts
    value = first()
    if not rest:
        return value
    if not unknown(value):
        return value and and_(*rest)
    return ops.cond(value, lambda: ops.cast(and_(*rest), "bool"), lambda: False)


def or_(*parts: Callable[[], Any]) -> Any:
    """The parts joined by `or`; none is evaluated that Python would not."""
    first, *rest = parts
    value = first()
    if not rest:
        return value
    if not unknown(value):
        return value or or_(*rest)
    return ops.cond(value, lambda: True, lambda: ops.cast(or_(*rest), "bool"))


def not_(value: Any) -> Any:
    """`not value`"""
    return ops.logical_not(value) if unknown(value) else not value


_COMPARE = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda x, y: x in y,
    "NotIn": lambda x, y: x not in y,
}


def compare(kinds: Sequence[str], *values: Callable[[], Any]) -> Any:
    """A chain of comparisons such as `a < b < c`; each value is evaluated once."""

    def rest(left: Any, i: int) -> Any:
        right = values[i + 1]()
        here = _COMPARE[kinds[i]](left, right)
        if i + 1 == builtins.len(kinds):
            return here
        return and_(lambda: here, lambda: rest(right, i + 1))

    return rest(values[0](), 0)
