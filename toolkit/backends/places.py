"""Where the operands of generated code are: tables that a compiler gives a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from toolkit.backends.base import Share
from toolkit.definitions.records import record

T = TypeVar("T")

# An operand of a lowered node: ("in", number), ("out", number), ("work", byte), or
# ("kept", number) for what is made once.
Reference = tuple[str, int]
# (None, address), or (number of an array of the call, bytes from its start).
Place = tuple[int | None, int]


class Location(NamedTuple):
    """Where an operand is in every call of a program.

    Attributes:
        array: the number of an array of the call, None: it is not in one.
        offset: from the start of that, of the arena, or of all memory.
        in_arena: whether it is in the arena of the program.
    """

    array: int | None
    offset: int
    in_arena: bool = False


@record
class NodeOperands(Generic[T]):
    """The same fact of each operand of a lowered node, and of its scratch memory."""

    inputs: Sequence[T]
    outputs: Sequence[T]
    work: T
    kept: Sequence[T] = ()

    def of(self, operand: Reference) -> T:
        """The fact of one operand."""
        kind, number = operand
        if kind == "work":
            return self.work
        if kind == "kept":
            return self.kept[number]
        return (self.inputs if kind == "in" else self.outputs)[number]


@record
class Shares:
    """The memory of every operand, by the index of the lowered node."""

    nodes: Sequence[NodeOperands[Share]]

    def __call__(self, index: int, operand: Reference) -> Share:
        return self.nodes[index].of(operand)


@record
class Places:
    """The place of every operand while the arena is at an address: a number, or else
    what becomes an address when numbers are added to it."""

    nodes: Sequence[NodeOperands[Location]]
    arena: Any = 0

    def at(self, arena: Any) -> Places:
        """The places while the arena is at another address."""
        return Places(self.nodes, arena)

    def __call__(self, index: int, operand: Reference) -> Place:
        array, offset, in_arena = self.nodes[index].of(operand)
        if operand[0] == "work":
            offset += operand[1]
        return array, offset + self.arena if in_arena else offset


class LoopBody(Protocol):
    """A program that is generated code alone, as the body of a loop.

    Attributes:
        code: what `Backend.assemble` made.
        preparations: operands that follow from frozen inputs alone; their arrays have
            the numbers behind those of inputs and outputs.
        places: of the operands of its nodes.
        arena_bytes: of its intermediate values.
        located: the places where constants are where a function says.
    """

    @property
    def code(self) -> Any: ...
    @property
    def preparations(self) -> Sequence[Any]: ...
    @property
    def places(self) -> Places: ...
    @property
    def arena_bytes(self) -> int: ...
    def located(self, constant: Callable[[Any], Any]) -> Places: ...
