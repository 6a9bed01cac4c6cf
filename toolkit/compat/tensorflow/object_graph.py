"""The objects of a checkpoint, by the paths of attributes to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from toolkit.compat.tensorflow.modules import Module
from toolkit.compat.tensorflow.variables import Variable
from toolkit.data import DatasetIterator
from toolkit.layers import Layer
from toolkit.layers.tracking import owned_layers, owned_state
from toolkit.type_aliases import TensorLike

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
STATE = ".ATTRIBUTES/ITERATOR_STATE"


def named_leaves(root: Any) -> dict[str, tuple[Any, list[str]]]:
    """Return each Variable and iterator by its key in files, with alternative keys.

    The key is the shortest path of attributes, items and indices from the root.
    """
    keys_by_id: dict[int, tuple[str, Any]] = {}
    leaves: dict[str, tuple[Any, list[str]]] = {}
    queue: deque[tuple[str, Any]] = deque([("", root)])
    while queue:
        path, owner = queue.popleft()
        for name, child in children(owner):
            key = f"{path}/{name}" if path else name
            if identity_key(child) in keys_by_id:
                first = keys_by_id[identity_key(child)][0]
                if first in leaves and key != first:
                    leaves[first][1].append(_key(key, child))
            elif is_leaf(child):
                keys_by_id[identity_key(child)] = _key(key, child), child
                leaves[_key(key, child)] = child, []
            else:
                keys_by_id[identity_key(child)] = key, child
                queue.append((key, child))
    return leaves


def identity_key(x: TensorLike) -> int:
    """Return a key for an object that is not always hashable."""
    return id(x)


def _key(path: str, leaf: Any) -> str:
    return f"{path}/{STATE if isinstance(leaf, DatasetIterator) else VALUE}"


def is_leaf(x: TensorLike) -> bool:
    """Return whether an object has a value in a checkpoint: a Variable, or an
    iterator."""
    return isinstance(x, (Variable, DatasetIterator))


def is_trackable(x: TensorLike) -> bool:
    """Return whether an object can contain values of a checkpoint."""
    if is_leaf(x) or isinstance(x, (Layer, Module)) or hasattr(x, "tracked_parts"):
        return True
    if isinstance(x, dict):
        return any(map(is_trackable, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(is_trackable, x))
    return not isinstance(x, type) and hasattr(x, "variables")


def children(owner: Any) -> Iterator[tuple[str, Any]]:
    """Return (name, object) of the parts of an object."""
    if hasattr(owner, "tracked_parts"):  # a Checkpoint
        members = list(owner.tracked_parts().items())
    elif isinstance(owner, dict):
        members = [(str(key), member) for key, member in owner.items()]
    elif isinstance(owner, (list, tuple)):
        members = [(str(i), member) for i, member in enumerate(owner)]
    elif isinstance(owner, Layer):
        members = list(_members_of_layer(owner))
    elif type(owner).__module__ != "builtins" and isinstance(owner, Module):
        members = [member for member in vars(owner).items() if member[0] != "_name"]
    else:
        members = [("_variables", list(getattr(owner, "variables", ())))]
    return ((name, member) for name, member in members if is_trackable(member))


def _members_of_layer(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Return the attributes of a layer, then layers and Variables without an
    attribute."""
    visited: set[int] = set()
    for name, value in vars(layer).items():
        public = name.lstrip("_")
        if name.startswith("_") and not isinstance(value, Variable):
            continue
        if is_trackable(value):
            visited.add(identity_key(value))
            yield public, value
    for number, value in enumerate(owned_layers(layer)):
        yield f"layer-{number}", value
    unnamed = [
        v for v in owned_state(layer, Variable) if identity_key(v) not in visited
    ]
    for number, v in enumerate(unnamed):
        yield f"_variables/{number}", v
