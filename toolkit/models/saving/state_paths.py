"""Layers and optimizers of a model by their paths in files.

The paths are the ones of Keras 3: attribute names, and class names for layers in lists,
tuples and dicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from toolkit.core.naming import to_snake_case
from toolkit.layers.layer import Layer
from toolkit.layers.tracking import StateOwner
from toolkit.optimizers import Optimizer

# Attributes, in addition to `layers`, with the graph of functional and sequential
# models.
_OF_MODELS = {
    *("_functional", "_layers", "_topology", "_operations", "_plan"),
    "_nodes_by_depth",
    *("_inputs_struct", "_outputs_struct", "_inputs", "_outputs", "_result_slots"),
}


def parts_of(model: Any, skip: Any = ()) -> dict[str, Any]:
    """Return path -> layer or optimizer with state, each once, at its first path."""
    paths: dict[str, Any] = {}
    # The values keep lists alive that properties create: the id of a freed list would
    # be reused.
    visited: dict[int, Any] = {id(owner): owner for owner in skip}
    _add_paths(model, "", paths, visited)
    return paths


def _add_paths(
    child: Any, path: str, paths: dict[str, Any], visited: dict[int, Any]
) -> None:
    """Add the path of an object, and the paths of the objects in it."""
    is_owner = isinstance(child, (StateOwner, Optimizer))
    is_container = isinstance(child, (list, tuple, dict))
    if id(child) in visited or not (is_owner or is_container):
        return
    visited[id(child)] = child
    if is_owner:
        paths[path] = child
        children = _children(child)
    else:
        children = _named(child.values() if isinstance(child, dict) else child)
    for name, value in children:
        _add_paths(value, f"{path}/{name}" if path else name, paths, visited)


def _named(values: Any) -> Iterator[tuple[str, Any]]:
    """Return a container's objects by unique class names: layers' names vary."""
    counts: Counter[str] = Counter()
    for value in values:
        if isinstance(value, (StateOwner, Optimizer)):
            name = to_snake_case(type(value).__name__)
        elif isinstance(value, (list, tuple, dict)):
            name = "container"
        else:
            continue
        count = counts[name]
        counts[name] += 1
        yield (f"{name}_{count}" if count else name), value


def _children(owner: Any) -> Iterator[tuple[str, Any]]:
    """Return attributes that can hold layers: graph's `layers` first, private last."""
    is_graph = hasattr(owner, "_functional") or hasattr(owner, "_topology")
    if is_graph:
        yield "layers", owner.layers
    skipped = _machinery(type(owner))  # type: ignore[arg-type]
    for name in sorted(dir(owner), key=lambda name: (name.startswith("_"), name)):
        if name.startswith("__") or name in skipped or (is_graph and name == "layers"):
            continue
        try:
            child = getattr(owner, name)
        except Exception:  # a property without a value is not state
            continue
        yield name, child


@cache
def _machinery(cls: type) -> frozenset[str]:
    """Return the attributes of all layers and models, which hold no user's layers."""
    if issubclass(cls, Optimizer):
        return frozenset(dir(Optimizer))
    names = set(dir(Layer(name="any"))) | _OF_MODELS
    for base in cls.__mro__:
        if base.__module__.startswith("toolkit.models."):
            names |= set(vars(base))
    return frozenset(names - {"layers", "optimizer"})
