"""Programs: what computes each node of a planned graph, and where its values are.

A program is data. `BoundProgram` puts one on memory, `Executable` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from toolkit.backends.base import Backend
from toolkit.backends.layout import Layouts
from toolkit.backends.places import Location, NodeOperands, Places
from toolkit.compiler.memory import Plan
from toolkit.definitions.records import record
from toolkit.ir import Graph, Value

Array = Any


@record
class Segment:
    """Consecutive nodes that generated code computes together, or one by its kernel.

    Attributes:
        members: the indices of the nodes.
        start: the first of its steps in the memory plan.
        code: what `Backend.assemble` made; None: the kernel of the only member runs.
        starts: the indices of collectives that are started before it.
    """

    members: Sequence[int]
    start: int
    code: Any = None
    starts: Sequence[int] = ()


@record
class Preparation:
    """An operand of a program that follows from frozen inputs alone.

    Attributes:
        number: by which generated code knows the array that it is in.
        nbytes: of it.
        sources: the numbers of the inputs that it is made from.
        recipe: equal where the same sources give the same bytes.
        node, call: what makes it, and for which node.
    """

    number: int
    nbytes: int
    sources: Sequence[int]
    recipe: Hashable
    node: int
    call: Any


@record(eq=False)
class Program:
    """A graph, optimized, scheduled and planned for a backend.

    Attributes:
        graph: in the order in which it runs.
        backend: whose kernels and code compute it.
        layouts: how values lie in memory.
        kernels: of each node.
        lowered: what the backend generates for each node instead, or None.
        segments: in the order in which they run.
        plan: of the arena.
        numbers: by which generated code knows the arrays of a call.
        constants: the arrays of the constants.
        kept: the numbers of the arrays that are written over in place.
        in_place: whether updates may be written over what they are new values of.
        source: the graph as it was traced.
        name: of the function that it comes from.
        made_once: the values that are operands made from frozen inputs.
    """

    graph: Graph
    backend: Backend
    layouts: Layouts
    kernels: Sequence[Any]
    lowered: Sequence[Any]
    segments: Sequence[Segment]
    plan: Plan
    numbers: Mapping[Value, int]
    constants: Mapping[Value, Array]
    kept: frozenset[int]
    in_place: bool
    source: Graph
    name: str = "a graph"
    made_once: frozenset[Value] = frozenset()

    def is_view(self, index: int) -> bool:
        """Whether a node only views what it reads."""
        return self.graph.nodes[index].outputs[0] in self.layouts.views

    @cached_property
    def _computing(self) -> list[Segment]:
        """The segments that are not only views."""
        return [
            segment
            for segment in self.segments
            if segment.code is not None or not self.is_view(segment.members[0])
        ]

    @property
    def last(self) -> Segment | None:
        """The last segment that computes, if there is one."""
        return self._computing[-1] if self._computing else None

    @cached_property
    def whole(self) -> Segment | None:
        """The segment of generated code, if that is all that the program is."""
        found = self._computing
        is_code = len(found) == 1 and found[0].code is not None
        return found[0] if is_code else None

    @property
    def code(self) -> Any:
        """The generated code, if that is all that the program is; else None."""
        return None if self.whole is None else self.whole.code

    @cached_property
    def places(self) -> Places:
        """Of the operands of a program that is generated code alone."""
        assert self.whole is not None
        return self.places_of(self.whole)

    def located(self, constant: Callable[[Array], Any]) -> Places:
        """The same places where constants are elsewhere, at what a function returns."""
        assert self.whole is not None
        return self.places_of(self.whole, constant)

    @cached_property
    def preparations(self) -> list[Preparation]:
        """What is made once and stays until a frozen input is another array."""
        found = []
        for index, k in self._prepared:
            call, node = self.lowered[index].prepared[k], self.graph.nodes[index]
            given = [node.inputs[number] for _, number in call.given]
            places = [self._location(x, self.backend.address) for x in given]
            found.append(
                Preparation(
                    self._prepared[index, k],
                    self.lowered[index].kept[k],
                    [x.array for x in places if x.array is not None],
                    (call.recipe, tuple(place.offset for place in places)),
                    index,
                    call,
                )
            )
        return found

    @cached_property
    def _prepared(self) -> dict[tuple[int, int], int]:
        """The numbers of their arrays, by the node and the number of its operand."""
        operands = [
            (index, k)
            for index, lowered in enumerate(self.lowered)
            for k in range(len(getattr(lowered, "prepared", ())))
        ]
        return {operand: len(self.numbers) + i for i, operand in enumerate(operands)}

    @cached_property
    def _makers(self) -> dict[Value, int]:
        """The numbers of the arrays of the values that are made once."""
        return {
            y: self._prepared[index, 0]
            for index, node in enumerate(self.graph.nodes)
            for y in node.outputs
            if y in self.made_once
        }

    def number_of(self, value: Value) -> int | None:
        """By which generated code knows the array of a value; None: it is in none."""
        return self.numbers.get(value, self._makers.get(value))

    def places_of(
        self, segment: Segment, constant: Callable[[Array], Any] | None = None
    ) -> Places:
        """Where the operands of a segment's nodes are.

        Args:
            segment: one of the program's.
            constant: where the array of a constant is; None: in the backend's memory.
        """
        address = constant or self.backend.address
        return Places([self._operands(index, address) for index in segment.members])

    def _operands(
        self, index: int, address: Callable[[Array], Any]
    ) -> NodeOperands[Location]:
        node = self.graph.nodes[index]
        work = self.plan.work.get(index)  # none for a product of no extent
        return NodeOperands(
            [self._location(x, address) for x in node.inputs],
            [self._location(y, address) for y in node.outputs],
            Location(None, work.offset if work else 0, in_arena=True),
            [
                Location(self._prepared[index, k], 0)
                for k in range(len(getattr(self.lowered[index], "prepared", ())))
            ],
        )

    def _location(self, value: Value, address: Callable[[Array], Any]) -> Location:
        layout = self.layouts[value]
        root = layout.root
        number = self.number_of(root)
        if number is not None:
            return Location(number, layout.offset)
        if root in self.constants:
            start = address(self.constants[root])
            return Location(None, start + layout.offset)
        start = self.plan.buffers[root].offset
        return Location(None, start + layout.offset, in_arena=True)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the program's own intermediate values."""
        return self.plan.nbytes

    @property
    def nbytes(self) -> int:
        """Peak bytes of intermediate values, sub-programs included."""
        inner: int = sum(
            inner.program.nbytes
            for kernel, lowered in zip(self.kernels, self.lowered, strict=True)
            for inner in getattr(kernel, "programs", {}).values()
            if lowered is None
        )
        return self.plan.nbytes + inner
