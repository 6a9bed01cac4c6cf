"""Items and attributes that branches and loops assign: `d["a"] = x`, `self.n += 1`.

They are state, as names are: read before the branches, restored for the second branch,
and joined. An item that did not exist is deleted again. Its object and index must not
change: if a loop assigns `d` and `d["a"]`, the state is `d`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Any

from toolkit.compat.tensorflow.autograph.early_exits import walk
from toolkit.compat.tensorflow.autograph.values import Undefined

Part = ast.Attribute | ast.Subscript
_MISSING = (AttributeError, LookupError, TypeError, UnboundLocalError)


def assigned_targets(
    nodes: Sequence[ast.AST], names: Collection[str]
) -> dict[str, Part]:
    """Return the items and attributes that statements assign, by their source text.

    Args:
        nodes: the statements.
        names: the names that the statements assign.
    """
    targets: dict[str, Part] = {}
    for node in walk(nodes):
        if isinstance(node, Part) and isinstance(node.ctx, ast.Store):
            targets[ast.unparse(node)] = node
    changed = {*names, *targets}
    return {
        text: targets[text]
        for text in sorted(targets)
        if _is_fixed(targets[text], changed)
    }


def _is_fixed(target: Part, changed: Collection[str]) -> bool:
    """Return whether the object and the index of a part are not state themselves."""
    if isinstance(target, ast.Subscript) and not _is_constant(target.slice, changed):
        return False
    return _is_constant(target.value, changed)


def _is_constant(node: ast.expr, changed: Collection[str]) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple):
        return all(_is_constant(element, changed) for element in node.elts)
    if not isinstance(node, ast.Name | Part) or ast.unparse(node) in changed:
        return False
    return isinstance(node, ast.Name) or _is_fixed(node, changed)


def read(getter: Callable[[], Any], text: str) -> Any:
    """Return the value of an item or attribute, or an `Absent`."""
    try:
        return getter()
    except _MISSING:
        return Absent(text)


class Absent(Undefined):
    """An item or attribute that does not exist."""


def set_item(owner: Any, index: Any, value: Any) -> None:
    """Assign `owner[index] = value`, or delete the item if the value is absent."""
    if not isinstance(value, Absent):
        owner[index] = value
    elif not isinstance(read(lambda: owner[index], ""), Absent):
        del owner[index]


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """Assign `owner.name = value`, or delete the attribute if the value is absent."""
    if not isinstance(value, Absent):
        setattr(owner, name, value)
    elif hasattr(owner, name):
        delattr(owner, name)
