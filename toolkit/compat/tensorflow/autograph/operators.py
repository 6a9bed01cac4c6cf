"""Runtime of rewritten control flow: Python runs it unless a value is traced.

The state is the set of names that a branch or a body assigns. `get` reads them, `set`
assigns them. Their values are split into leaves: numbers and tensors are values of the
graph, all other leaves must not change.
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
    """Return the function with rewritten control flow, or unchanged if that is
    impossible."""
    return sources.convert(function, sys.modules[__name__])


def called(function: Any) -> Any:
    """Return the callable for `function(...)`."""
    return calls.called(function, converted)


def iterated(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the iterable of `for ... in function(...)`."""
    return calls.iterated(function, converted, args, kwargs)


def if_expression(test: Any, body: Any, orelse: Any) -> Any:
    """Evaluate `body() if test else orelse()`."""
    if not unknown(test):
        return body() if test else orelse()
    return ops.cond(test, body, orelse)


def and_(*parts: Callable[[], Any]) -> Any:
    """Join the parts by `and`, with short-circuit evaluation as in Python."""
    first, *rest = parts
    value = first()
    if not rest:
        return value
    if not unknown(value):
        return value and and_(*rest)
    return ops.cond(value, lambda: ops.cast(and_(*rest), "bool"), lambda: False)


def or_(*parts: Callable[[], Any]) -> Any:
    """Join the parts by `or`, with short-circuit evaluation as in Python."""
    first, *rest = parts
    value = first()
    if not rest:
        return value
    if not unknown(value):
        return value or or_(*rest)
    return ops.cond(value, lambda: True, lambda: ops.cast(or_(*rest), "bool"))


def not_(value: Any) -> Any:
    """Evaluate `not value`."""
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
    """Evaluate a chain of comparisons such as `a < b < c`; each value only once."""

    def rest(left: Any, i: int) -> Any:
        right = values[i + 1]()
        here = _COMPARE[kinds[i]](left, right)
        if i + 1 == builtins.len(kinds):
            return here
        return and_(lambda: here, lambda: rest(right, i + 1))

    return rest(values[0](), 0)
