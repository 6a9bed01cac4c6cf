"""What is written: nodes and constants, before they become a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass(eq=False)
class Operation:
    """A node of an ONNX graph.

    Attributes:
        name: of the node, or what its name begins with (`numbered`).
        operator: the name of the operator.
        inputs: the names of tensors; "" for one that is left out.
        outputs: the same.
        attrs: numbers, texts, lists of these, or a `Body`.
    """

    name: str
    operator: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give tensors other names, in its bodies too."""
        self.inputs = [names.get(x, x) for x in self.inputs]
        self.outputs = [names.get(x, x) for x in self.outputs]
        for key, value in self.attrs.items():
            if isinstance(value, Body):
                self.attrs[key] = value.renamed(names)

    def reads(self) -> Iterable[str]:
        """The names of all tensors that it reads, in its bodies too."""
        yield from self.inputs
        for value in self.attrs.values():
            if isinstance(value, Body):
                yield from value.reads()


@dataclass(eq=False)
class Body:
    """A graph inside of a node: of a loop, or of a branch.

    Attributes:
        inputs: (name, dtype, rank) of each.
        outputs: the same.
        nodes: in order. They may read what is outside.
    """

    inputs: Sequence[tuple[str, str, int]]
    outputs: Sequence[tuple[str, str, int]]
    nodes: list[Operation]

    def renamed(self, names: Mapping[str, str]) -> Body:
        """The body with other names of tensors; its nodes are changed."""
        for node in self.nodes:
            node.rename(names)
        inputs, outputs = (
            [(names.get(name, name), dtype, rank) for name, dtype, rank in ports]
            for ports in (self.inputs, self.outputs)
        )
        return Body(inputs, outputs, self.nodes)

    def reads(self) -> Iterable[str]:
        """The names that its nodes read, and those of its results."""
        for node in self.nodes:
            yield from node.reads()
        yield from (name for name, _, _ in self.outputs)


class Names:
    """Names that are used once each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, wanted: str) -> str:
        """`wanted`, or with a number behind it if that is taken."""
        name = wanted
        while name in self._counts:
            self._counts[wanted] += 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._counts[name] = 0
        return name


class Constants:
    """Arrays by their names; equal small ones have one name.

    An array may be given as a function that makes it, which is called only if
    something reads it.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._arrays: dict[str, Array | Callable[[], Array]] = {}
        self._known: dict[Any, str] = {}

    def add(self, array: Array, name: str = "") -> str:
        """The name of a constant of these data."""
        array = np.asarray(array)
        key: Any = (array.dtype.str, array.shape, array.tobytes())
        if array.nbytes > 256:
            key = (id(array), name)  # the array is kept, so its identity is its own
        if key not in self._known:
            self._known[key] = self._names(name or "constant")
            self._arrays[self._known[key]] = array
        return self._known[key]

    def later(self, make: Callable[[], Array], name: str) -> str:
        """The name of a constant that is made if something reads it."""
        name = self._names(name)
        self._arrays[name] = make
        return name

    def shared(self, key: Any, make: Callable[[], Array], name: str) -> str:
        """The same, made once for all that ask with an equal key."""
        if key not in self._known:
            self._known[key] = self.later(make, name)
        return self._known[key]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> Array:
        """The data of a constant."""
        found = self._arrays[name]
        if callable(found):
            found = self._arrays[name] = found()
        return found

    def used(self, names: set[str]) -> dict[str, Array]:
        """Those that are among `names`."""
        return {name: self.array(name) for name in self._arrays if name in names}


def pruned(nodes: Sequence[Operation], wanted: Iterable[str]) -> list[Operation]:
    """The nodes that the wanted tensors depend on, in their order; in bodies too."""
    needed = set(wanted)
    kept = []
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs):
            continue
        for name, value in node.attrs.items():
            if isinstance(value, Body):
                inner = pruned(value.nodes, [x for x, _, _ in value.outputs])
                node.attrs[name] = Body(value.inputs, value.outputs, inner)
        node.outputs = [
            x if x in needed else _left_out(node, i) for i, x in enumerate(node.outputs)
        ]
        needed.update(node.reads())
        kept.append(node)
    return kept[::-1]


def numbered(
    nodes: Sequence[Operation], constants: Mapping[str, Array], keep: Iterable[str]
) -> dict[str, Array]:
    """Give each node a name of its own, and what it makes that name.

    Args:
        nodes: what is kept; they are changed.
        constants: arrays by name.
        keep: names that stay: those of inputs and outputs.

    Returns:
        The constants by their new names.
    """
    names, tensors = Names(), Names()
    renamed = {tensors(name): name for name in keep}
    found = {}
    for name, array in constants.items():
        head, _, number = name.rpartition("_")
        stem = head if head and number.isdecimal() else name
        renamed[name] = tensors(stem if "/" not in name else name)
        found[renamed[name]] = array
    for node in _all_nodes(nodes):
        node.name = names(node.name)
        for i, output in enumerate(node.outputs):
            if output:
                wanted = f"{node.name}:{i}" if i else node.name
                renamed.setdefault(output, tensors(wanted))
    for node in nodes:
        node.rename(renamed)
    return found


def _all_nodes(nodes: Sequence[Operation]) -> Iterator[Operation]:
    for node in nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, Body):
                yield from _all_nodes(value.nodes)


# Operators whose results count by position: what nothing reads is left out.
_OPTIONAL_RESULTS = {"MaxPool": 1, "LSTM": 0, "GRU": 0, "RNN": 0}


def _left_out(node: Operation, i: int) -> str:
    first = _OPTIONAL_RESULTS.get(node.operator)
    return node.outputs[i] if first is None or i < first else ""
