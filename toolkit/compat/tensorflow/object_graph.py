"""The objects of a checkpoint, by the paths of attributes to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from toolkit.compat.tensorflow.modules import Module
from toolkit.compat.tensorflow.variables import Variable
from toolkit.data import DatasetIterator
from toolkit.layers import Layer

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
STATE = ".ATTRIBUTES/ITERATOR_STATE"


def named_leaves(root: Any) -> dict[str, tuple[Any, list[str]]]:
    """Return each Variable and iterator by its key in files, with alternative keys.

    The key is the shortest path of attributes, items and indices from the root.
    """
    found: dict[int, tuple[str, Any]] = {}
    leaves: dict[str, tuple[Any, list[str]]] = {}
    queue: deque[tuple[str, Any]] = deque([("", root)])
    while queue:
        path, owner = queue.popleft()
        for name, part in children(owner):
            key = f"{path}/{name}" if path else name
            if identity(part) in found:
                first = found[identity(part)][0]
                if first in leaves and key != first:
                    leaves[first][1].append(_key(key, part))
            elif is_leaf(part):
                found[identity(part)] = _key(key, part), part
                leaves[_key(key, part)] = part, []
            else:
                found[identity(part)] = key, part
                queue.append((key, part))
    return leaves


def identity(x: Any) -> int:
    """Return a key for an object that is not always hashable."""
    return id(x)


def _key(path: str, leaf: Any) -> str:
    return f"{path}/{STATE if isinstance(leaf, DatasetIterator) else VALUE}"


def is_leaf(x: Any) -> bool:
    """Return whether an object has a value in a checkpoint: a Variable, or an
    iterator."""
    return isinstance(x, (Variable, DatasetIterator))


def is_trackable(x: Any) -> bool:
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
        parts = list(owner.tracked_parts().items())
    elif isinstance(owner, dict):
        parts = [(str(key), part) for key, part in owner.items()]
    elif isinstance(owner, (list, tuple)):
        parts = [(str(i), part) for i, part in enumerate(owner)]
    elif isinstance(owner, Layer):
        parts = list(_parts_of_layer(owner))
    elif type(owner).__module__ != "builtins" and isinstance(owner, Module):
        parts = [part for part in vars(owner).items() if part[0] != "_name"]
    else:
        parts = [("_variables", list(getattr(owner, "variables", ())))]
    return ((name, part) for name, part in parts if is_trackable(part))


def _parts_of_layer(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Return the attributes of a layer, then layers and Variables without an
    attribute."""
    seen: set[int] = set()
    for name, part in vars(layer).items():
        public = name.lstrip("_")
        if name.startswith("_") and not isinstance(part, Variable):
            continue
        if is_trackable(part):
            seen.add(identity(part))
            yield public, part
    inner = layer._flatten_layers(include_self=False, recursive=False)
    for number, part in enumerate(inner):
        yield f"layer-{number}", part
    rest = [v for v in layer._owned_of(Variable) if identity(v) not in seen]
    for number, v in enumerate(rest):
        yield f"_variables/{number}", v
