"""The variables of a model as nested dicts that follow their paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.console.frames import warn
from toolkit.core.variable import assign_all
from toolkit.errors import ArgumentError, unknown_choice

Tree = dict[str, Any]
_READ: dict[str, Callable[[Any], Any]] = {
    "backend_tensor": lambda v: v.value,
    "numpy_array": np.asarray,
}
_GROUPS = (
    *("trainable_variables", "non_trainable_variables"),
    *("optimizer_variables", "metrics_variables"),
)


def state_tree(model: Any, value_format: str) -> Tree:
    """Return group -> nested dicts of names -> the values of a model's variables."""
    if value_format not in _READ:
        raise unknown_choice("get_state_tree: value_format", value_format, _READ)
    tree: Tree = {}
    for group in _GROUPS:
        tree[group] = {}
        for path, variable in _by_path(model, group).items():
            *prefix, name = path.split("/")
            inner = tree[group]
            for component in prefix:
                inner = inner.setdefault(component, {})
            inner[name] = _READ[value_format](variable)
    return tree


def assign_state_tree(model: Any, tree: Tree) -> None:
    """Assign the values of a tree to variables; other variables stay unchanged.

    Names of optimizers and models are components of the paths: values under other names
    are ignored, with a warning.
    """
    pairs, unknown = [], []
    for group, values in tree.items():
        if group not in _GROUPS:
            raise unknown_choice("set_state_tree: group", group, _GROUPS)
        variables = _by_path(model, group)
        for path, value in _flat(values, ""):
            if path in variables:
                pairs.append((variables[path], value))
            else:
                unknown.append(path)
    assign_all(pairs)
    if unknown:
        warn(
            f"set_state_tree: the model has no variables {', '.join(unknown)}; their "
            "values are ignored"
        )


def _by_path(model: Any, group: str) -> dict[str, Any]:
    if group == "optimizer_variables":
        variables = model.optimizer.variables if model.optimizer is not None else []
    else:
        variables = getattr(model, group)
    by_path: dict[str, Any] = {}
    for variable in variables:
        if by_path.setdefault(variable.path, variable) is not variable:
            raise ArgumentError(
                "get_state_tree: expected unique paths; the variable path "
                f"{variable.path!r} occurs twice in the model. Give its layers "
                "unique names"
            )
    return by_path


def _flat(tree: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        return [(path, tree)]
    pairs = ((f"{path}/{key}" if path else key, value) for key, value in tree.items())
    return [leaf for inner, value in pairs for leaf in _flat(value, inner)]
