"""Programs of generated calls, divided into sections.

A `NativeProgram` is compiled once from consecutive lowered nodes. Its `Image` contains
the words that the runtime reads. `bind` binds the program to memory and returns a
`Runner`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from toolkit.backends.numpy.jit.calls import Call, Lowered
from toolkit.backends.numpy.jit.code import Code, load
from toolkit.backends.numpy.jit.image import Resolve
from toolkit.backends.numpy.jit.runner import Runner
from toolkit.backends.numpy.jit.sections import (
    Branches,
    Section,
    Shares,
    parallelize,
    sections,
)
from toolkit.plans.locations import Reference
from toolkit.plans.operands import OperandMemory, StepSpan


class NativeProgram:
    """Consecutive lowered nodes, with their calls divided into sections.

    Args:
        lowered: the calls of each node.
        shares: returns the memory that an operand occupies.
        barrier: the index of the node that starts after all earlier nodes end.
    """

    def __init__(
        self, lowered: Sequence[Lowered], shares: Shares, barrier: int = 1 << 62
    ) -> None:
        self.lowered = lowered
        calls = [
            (i, call)
            for i, node in enumerate(lowered)
            for call in node.calls
            if call.rows
        ]
        self.sections: list[Section | Branches] = parallelize(
            sections(calls, shares, barrier)
        )

    @property
    def moments(self) -> dict[int, StepSpan]:
        """The sections during which each node runs."""
        all_of: defaultdict[int, list[int]] = defaultdict(list)
        writing: dict[int, int] = {}
        for moment, section in enumerate(self.sections):
            for i, call in section.calls:
                all_of[i].append(moment)
                if any(kind == "out" for kind, _ in call.operands):
                    writing.setdefault(i, moment)
        return {
            i: StepSpan(moments[0], writing.get(i, moments[0]), moments[-1])
            for i, moments in all_of.items()
        }

    @property
    def calls(self) -> list[tuple[int, Call]]:
        """Every call with the index of its node, in order."""
        return [pair for section in self.sections for pair in section.calls]

    @property
    def timed_sections(self) -> list[tuple[int, list[int], int, int, list[Code], bool]]:
        """The timed parts: section, nodes, flops, bytes, code, and whether shared.

        Concurrent branches are parts of one section.
        """
        return [
            (
                moment,
                sorted({i for i, _ in section.calls}),
                sum(call.flops for _, call in section.calls),
                sum(call.nbytes for _, call in section.calls),
                [code for _, call in section.calls for code in call.codes],
                group.is_shared,
            )
            for moment, group in enumerate(self.sections)
            for section in group.sections
        ]

    @property
    def prepared(self) -> list[tuple[int, Call, int]]:
        """Calls that run once: the node, the call, and the size of its result in bytes.

        Call k of a node computes the node's operand ("kept", k).
        """
        return [
            (i, call, nbytes)
            for i, node in enumerate(self.lowered)
            for call, nbytes in zip(node.prepared, node.kept_sizes, strict=True)
        ]

    def bind(self, resolve: Resolve, objects: Any) -> Runner:
        """Bind the program to memory.

        Args:
            resolve: returns the location of an operand, by the index of its node.
            objects: a ctypes array for the `id` of each numbered array; the caller
                fills it before a run.
        """
        load(code for _, call, _ in self.prepared for code in call.codes)
        return Runner(self, resolve, objects)

    def bind_prepared(
        self, index: int, call: Call, resolve: Resolve, objects: Any
    ) -> Runner:
        """Bind one prepared call of a node to memory; see `bind`."""

        def share(_: int, operand: Reference) -> OperandMemory:
            is_made = operand == call.destination
            return OperandMemory(operand, call.prepares if is_made else 0, False)

        return NativeProgram([Lowered([call])], share).bind(
            lambda _, operand: resolve(index, operand), objects
        )
