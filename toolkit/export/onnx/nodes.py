"""Nodes and constants of an ONNX graph, before serialization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass(eq=False)
class Operation:
    """Node of an ONNX graph.

    Attributes:
        name: the name of the node, or its prefix (`assign_unique_names`).
        operator: the name of the operator.
        inputs: the names of tensors; "" for an omitted one.
        outputs: the same.
        attrs: numbers, strings, lists of these, or a `Body`.
    """

    name: str
    operator: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename tensors, also in nested bodies."""
        self.inputs = [names.get(x, x) for x in self.inputs]
        self.outputs = [names.get(x, x) for x in self.outputs]
        for key, value in self.attrs.items():
            if isinstance(value, Body):
                self.attrs[key] = value.with_names(names)

    def reads(self) -> Iterable[str]:
        """Return the names of all tensors that it reads, also in nested bodies."""
        yield from self.inputs
        for value in self.attrs.values():
            if isinstance(value, Body):
                yield from value.reads()


@dataclass(eq=False)
class Body:
    """Subgraph of a node: a loop body or a branch.

    Attributes:
        inputs: (name, dtype, rank) of each.
        outputs: the same.
        nodes: in order. They can read tensors of the outer graph.
    """

    inputs: Sequence[tuple[str, str, int]]
    outputs: Sequence[tuple[str, str, int]]
    nodes: list[Operation]

    def with_names(self, names: Mapping[str, str]) -> Body:
        """Return the body with renamed tensors; its nodes change in place."""
        for node in self.nodes:
            node.rename(names)
        inputs, outputs = (
            [(names.get(name, name), dtype, rank) for name, dtype, rank in ports]
            for ports in (self.inputs, self.outputs)
        )
        return Body(inputs, outputs, self.nodes)

    def reads(self) -> Iterable[str]:
        """Return the names that its nodes read, and the names of its results."""
        for node in self.nodes:
            yield from node.reads()
        yield from (name for name, _, _ in self.outputs)


class Names:
    """Generator of unique names."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, base: str) -> str:
        """Return `base`, with a number appended if it is in use."""
        name = base
        while name in self._counts:
            self._counts[base] += 1
            name = f"{base}_{self._counts[base]}"
        self._counts[name] = 0
        return name


class Constants:
    """Arrays by their names; equal small ones share a name.

    A function can compute an array on demand, only if a node reads it.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._arrays: dict[str, Array | Callable[[], Array]] = {}
        self._names_by_key: dict[Any, str] = {}

    def add(self, array: Array, name: str = "") -> str:
        """Return the name of a constant with this data."""
        array = np.asarray(array)
        key: Any = (array.dtype.str, array.shape, array.tobytes())
        if array.nbytes > 256:
            key = (id(array), name)  # the array stays alive, so its id is unique
        if key not in self._names_by_key:
            self._names_by_key[key] = self._names(name or "constant")
            self._arrays[self._names_by_key[key]] = array
        return self._names_by_key[key]

    def add_lazy(self, compute: Callable[[], Array], name: str) -> str:
        """Return the name of a constant that is computed on demand."""
        name = self._names(name)
        self._arrays[name] = compute
        return name

    def add_shared(self, key: Any, compute: Callable[[], Array], name: str) -> str:
        """Return the same, with one computation for all equal keys."""
        if key not in self._names_by_key:
            self._names_by_key[key] = self.add_lazy(compute, name)
        return self._names_by_key[key]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> Array:
        """Return the data of a constant."""
        array = self._arrays[name]
        if callable(array):
            array = self._arrays[name] = array()
        return array

    def select(self, names: set[str]) -> dict[str, Array]:
        """Return the constants with these names."""
        return {name: self.array(name) for name in self._arrays if name in names}


def prune_nodes(nodes: Sequence[Operation], results: Iterable[str]) -> list[Operation]:
    """Return the nodes that the results depend on, also in nested bodies."""
    needed = set(results)
    needed_nodes = []
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs):
            continue
        for name, value in node.attrs.items():
            if isinstance(value, Body):
                inner = prune_nodes(value.nodes, [x for x, _, _ in value.outputs])
                node.attrs[name] = Body(value.inputs, value.outputs, inner)
        node.outputs = [
            x if x in needed else _omit_unread_result(node, i)
            for i, x in enumerate(node.outputs)
        ]
        needed.update(node.reads())
        needed_nodes.append(node)
    return needed_nodes[::-1]


def assign_unique_names(
    nodes: Sequence[Operation],
    constants: Mapping[str, Array],
    fixed_names: Iterable[str],
) -> dict[str, Array]:
    """Give each node and its results unique names.

    Args:
        nodes: the nodes, which change in place.
        constants: arrays by name.
        fixed_names: names that do not change: inputs and outputs.

    Returns:
        The constants by their new names.
    """
    names, tensors = Names(), Names()
    new_names = {tensors(name): name for name in fixed_names}
    renamed_constants = {}
    for name, array in constants.items():
        head, _, number = name.rpartition("_")
        stem = head if head and number.isdecimal() else name
        new_names[name] = tensors(stem if "/" not in name else name)
        renamed_constants[new_names[name]] = array
    for node in _all_nodes(nodes):
        node.name = names(node.name)
        for i, output in enumerate(node.outputs):
            if output:
                output_name = f"{node.name}:{i}" if i else node.name
                new_names.setdefault(output, tensors(output_name))
    for node in nodes:
        node.rename(new_names)
    return renamed_constants


def _all_nodes(nodes: Sequence[Operation]) -> Iterator[Operation]:
    for node in nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, Body):
                yield from _all_nodes(value.nodes)


# Operators with optional results after this index: unread ones are omitted.
_OPTIONAL_RESULTS = {"MaxPool": 1, "LSTM": 0, "GRU": 0, "RNN": 0}


def _omit_unread_result(node: Operation, i: int) -> str:
    first = _OPTIONAL_RESULTS.get(node.operator)
    return node.outputs[i] if first is None or i < first else ""
