"""Calls of generated functions: the result of a lowering.

A lowering is a function `lower(node, inputs, outputs)`. It returns a `Lowered`, or None
if no generated function supports the node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from toolkit.backends.numpy.jit.code import Code
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, OutOfRangeError
from toolkit.ir import Graph
from toolkit.ir.extents import has_extent, share_of, value_of
from toolkit.plans.loops.planner import TASKS
from toolkit.plans.operands import Operand, align_up

# ("in" | "out" | "work" | "error", the operand's number or the offset in bytes).
Reference = tuple[str, int]
ERROR: Reference = ("error", 0)


@record
class Call:
    """A call of one generated function, and the division of its work.

    Attributes:
        code: the function.
        operands: the operands with an address in the table, in this order.
        numbers: the integers after the addresses in the table.
        rows: the independent units of work; 0: no work.
        grain: the rows of one task. It depends on shapes only.
        row_operands: operands of which rows [low, high) access only the same fraction
            of the leading extent. Chains of calls on such operands run a few rows at a
            time.
        flops, nbytes: arithmetic and memory traffic of all rows.
        prepares: nonzero if the call only computes one operand from its inputs, and
            later calls only read this operand. It is then the operand's size in bytes.
        is_stream: whether the rows are consecutive in memory, so that a single thread
            runs all rows as one task. The result of a row must not depend on its task.
        problem: the message for a bad index, with {index} and {limit}, equal to the
            message of the NumPy kernel.
        error: the class of the exception with this message.
    """

    code: Code
    operands: tuple[Reference, ...]
    numbers: tuple[int, ...] = ()
    rows: int = 1
    grain: int = 1
    row_operands: frozenset[Reference] = frozenset()
    flops: int = 0
    nbytes: int = 0
    prepares: int = 0
    is_stream: bool = False
    problem: str = "index {index} is out of range for {limit} elements"
    error: type[ArgumentError] = OutOfRangeError

    # Whether it can run in parallel with other calls.
    can_branch = True

    @property
    def codes(self) -> list[Code]:
        """The functions that it runs."""
        return [self.code]

    @property
    def inputs(self) -> list[Reference]:
        """The operands that are inputs."""
        return [operand for operand in self.operands if operand[0] == "in"]

    @property
    def has_single_destination(self) -> bool:
        """Whether the call computes one operand from inputs only."""
        return len(self.operands) - len(self.inputs) == 1

    @property
    def destination(self) -> Reference:
        """The operand that a preparing call writes."""
        (destination,) = (operand for operand in self.operands if operand[0] != "in")
        return destination

    @property
    def recipe(self) -> Hashable:
        """A key that is equal for calls with equal results for equal operands."""
        return self.code, self.numbers, self.rows

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return -(-self.rows // self.grain)


def name_calls(lowered: Lowered, layer: str) -> Lowered:
    """Return the calls of a node with its layer in the messages of bad indices.

    Args:
        lowered: the calls.
        layer: the path of the layer, or "".
    """
    if not layer:
        return lowered
    text = f" in {layer}".replace("{", "{{").replace("}", "}}")
    calls = [
        replace(call, problem=call.problem + text)
        if isinstance(call, Call) and call.problem != Call.problem
        else call
        for call in lowered.calls
    ]
    return replace(lowered, calls=calls)


@record
class Lowered:
    """The calls of a node, in order, and their scratch memory.

    Attributes:
        calls: the calls of each run.
        work: the size of the shared scratch memory in bytes.
        prepared: calls that run once, before the first run.
        kept_sizes: the size in bytes of the result of each prepared call: the operands
            ("kept", number).
    """

    calls: Sequence[Call] = field(default_factory=tuple)
    work: int = 0
    prepared: Sequence[Call] = ()
    kept_sizes: Sequence[int] = ()


Lowering = Callable[[Any, Sequence[Operand], Sequence[Operand]], Lowered | None]


def partition(rows: int, maximum: int = TASKS) -> int:
    """Return the rows of a task, for at most `maximum` tasks.

    Consecutive calls on the rows of a batch share one partition.
    """
    tasks = max(1, min(TASKS, value_of(maximum)))
    task_rows: int = share_of(rows, tasks)
    return task_rows


def operands_of(body: Graph) -> tuple[Reference, ...]:
    """Return the references of the inputs and outputs of a body."""
    inputs: list[Reference] = [("in", i) for i in range(len(body.inputs))]
    return (*inputs, *(("out", i) for i in range(len(body.outputs))))


def prepared(lowered: Lowered, frozen: Collection[int], result: int = 0) -> Lowered:
    """Move calls that depend on frozen inputs only out of the calls of each run.

    Args:
        lowered: the calls of a node.
        frozen: the numbers of the inputs that never change.
        result: the size in bytes of the only output if it can be computed once, too;
            otherwise 0. If one call computes it, it becomes the operand ("kept", 0),
            and each run has no calls.
    """
    if result and len(lowered.calls) == 1 and not lowered.work:
        call = lowered.calls[0]
        if isinstance(call, Call) and all(o[0] in ("in", "out") for o in call.operands):
            lowered = Lowered([replace(call, prepares=result)])
    calls: list[Call] = []
    prepared_calls: list[Call] = []
    references: dict[Reference, Reference] = {}
    gaps: dict[int, int] = {}
    for call in lowered.calls:
        is_known = all(number in frozen for _, number in call.inputs)
        is_known = is_known and not has_extent((call.numbers, call.rows, call.prepares))
        # A call that packs a copy runs again whenever the copy runs.
        if call.prepares and call.has_single_destination and is_known:
            destination = call.destination
            references[destination] = "kept", len(prepared_calls)
            if destination[0] == "work":
                gaps[destination[1]] = align_up(call.prepares)
            # It runs alone and not in a chain of rows.
            prepared_calls.append(replace(call, row_operands=frozenset()))
        else:
            calls.append(call)
    if not prepared_calls:
        return lowered
    for call in calls:
        for kind, start in call.operands:
            if kind == "work" and start not in gaps:
                before = sum(size for gap, size in gaps.items() if gap < start)
                references[kind, start] = kind, start - before
    return Lowered(
        [redirect_operands(call, references) for call in calls],
        lowered.work - sum(gaps.values()),
        [redirect_operands(call, references) for call in prepared_calls],
        [call.prepares for call in prepared_calls],
    )


def redirect_operands(call: Call, references: Mapping[Reference, Reference]) -> Call:
    """Return the call with some of its operands replaced."""
    return replace(
        call,
        operands=tuple(references.get(o, o) for o in call.operands),
        row_operands=frozenset(references.get(o, o) for o in call.row_operands),
    )
