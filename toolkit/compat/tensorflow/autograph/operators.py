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
from toolkit.compat.tensorflow.autograph import calls, conversion
from toolkit.compat.tensorflow.autograph.assignment_targets import (
    read,
    set_attribute,
    set_item,
)
from toolkit.compat.tensorflow.autograph.branches import if_
from toolkit.compat.tensorflow.autograph.loops import for_, while_
from toolkit.compat.tensorflow.autograph.values import Undefined, is_dynamic

__all__ = ["Undefined", "and_", "called", "compare", "for_", "if_", "if_expression"]
__all__ += ["iterated", "not_", "or_", "read", "set_attribute", "set_item", "while_"]


def converted(function: Any) -> Any:
    """Return the function with rewritten control flow, or unchanged if that is
    impossible."""
    return conversion.convert(function, sys.modules[__name__])


def called(function: Any) -> Any:
    """Return the callable for `function(...)`."""
    return calls.resolve_call(function, converted)


def iterated(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the iterable of `for ... in function(...)`."""
    return calls.resolve_iterable(function, converted, args, kwargs)


def if_expression(test: Any, body: Any, orelse: Any) -> Any:
    """Evaluate `body() if test else orelse()`."""
    if not is_dynamic(test):
        return body() if test else orelse()
    return ops.cond(test, body, orelse)


def and_(*operands: Callable[[], Any]) -> Any:
    """Join the parts by `and`, with short-circuit evaluation as in Python."""
    first, *remaining = operands
    value = first()
    if not remaining:
        return value
    if not is_dynamic(value):
        return value and and_(*remaining)
    return ops.cond(value, lambda: ops.cast(and_(*remaining), "bool"), lambda: False)


def or_(*operands: Callable[[], Any]) -> Any:
    """Join the parts by `or`, with short-circuit evaluation as in Python."""
    first, *remaining = operands
    value = first()
    if not remaining:
        return value
    if not is_dynamic(value):
        return value or or_(*remaining)
    return ops.cond(value, lambda: True, lambda: ops.cast(or_(*remaining), "bool"))


def not_(value: Any) -> Any:
    """Evaluate `not value`."""
    return ops.logical_not(value) if is_dynamic(value) else not value


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

    def compare_from(lhs: Any, i: int) -> Any:
        right = values[i + 1]()
        result = _COMPARE[kinds[i]](lhs, right)
        if i + 1 == builtins.len(kinds):
            return result
        return and_(lambda: result, lambda: compare_from(right, i + 1))

    return compare_from(values[0](), 0)
