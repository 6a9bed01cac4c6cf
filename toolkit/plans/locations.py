"""Locations of the operands of generated code: tables from compiler to backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from toolkit.definitions.records import record
from toolkit.plans.operands import OperandMemory

T = TypeVar("T")

# An operand of a lowered node: ("in", number), ("out", number), ("work", byte), or
# ("kept", number) for a cached value.
Reference = tuple[str, int]
# (None, address), or (number of an array of the call, offset in bytes).
ResolvedLocation = tuple[int | None, int]


class Location(NamedTuple):
    """Location of an operand in every call of a program.

    Attributes:
        array: the number of an array of the call; None: the operand is in no such
            array.
        offset: from the start of that array, of the arena, or of all memory.
        in_arena: whether it is in the arena of the program.
    """

    array: int | None
    offset: int
    in_arena: bool = False


@record
class NodeOperands(Generic[T]):
    """One property of each operand of a lowered node, and of its scratch memory."""

    inputs: Sequence[T]
    outputs: Sequence[T]
    work: T
    kept: Sequence[T] = ()

    def of(self, operand: Reference) -> T:
        """Return the property of one operand."""
        kind, number = operand
        if kind == "work":
            return self.work
        if kind == "kept":
            return self.kept[number]
        return (self.inputs if kind == "in" else self.outputs)[number]


@record
class Shares:
    """Memory of every operand, by the index of the lowered node."""

    nodes: Sequence[NodeOperands[OperandMemory]]

    def __call__(self, index: int, operand: Reference) -> OperandMemory:
        return self.nodes[index].of(operand)


@record
class OperandLocations:
    """Location of every operand as (array, address), for an arena address.

    The arena address is a number, or an object that supports the addition of numbers.
    """

    nodes: Sequence[NodeOperands[Location]]
    arena: Any = 0

    def at(self, arena: Any) -> OperandLocations:
        """Return the locations for another arena address."""
        return OperandLocations(self.nodes, arena)

    def __call__(self, index: int, operand: Reference) -> ResolvedLocation:
        array, offset, in_arena = self.nodes[index].of(operand)
        if operand[0] == "work":
            offset += operand[1]
        return array, offset + self.arena if in_arena else offset


class LoopBody(Protocol):
    """Program of generated code only, as the body of a loop.

    Attributes:
        code: the result of `CodeGenerator.assemble`.
        preparations: operands that depend on frozen inputs only; their arrays have the
            numbers after inputs and outputs.
        locations: of the operands of its nodes.
        arena_bytes: of its intermediate values.
        locations_with: returns them, with constants at the addresses from a function.
    """

    @property
    def code(self) -> Any: ...
    @property
    def preparations(self) -> Sequence[Any]: ...
    @property
    def locations(self) -> OperandLocations: ...
    @property
    def arena_bytes(self) -> int: ...
    def locations_with(self, constant: Callable[[Any], Any]) -> OperandLocations: ...
