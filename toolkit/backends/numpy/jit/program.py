"""Programs of generated calls, divided into sections.

A `NativeProgram` is what consecutive lowered nodes become, once. An `Image` of it is
the words that the runtime reads; `bind` puts them on memory: a `Runner`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from toolkit.backends.base import Moment, Share
from toolkit.backends.numpy.jit.code import Code, load
from toolkit.backends.numpy.jit.image import Resolve
from toolkit.backends.numpy.jit.lowering import Call, Lowered
from toolkit.backends.numpy.jit.runner import Runner
from toolkit.backends.numpy.jit.sections import (
    Branches,
    Section,
    Shares,
    sections,
    side_by_side,
)
from toolkit.backends.places import Reference


class NativeProgram:
    """Consecutive lowered nodes, their calls divided into sections.

    Args:
        lowered: the calls of each node.
        shares: what memory each of their operands is in.
        barrier: the node before which all earlier ones end.
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
        self.sections: list[Section | Branches] = side_by_side(
            sections(calls, shares, barrier)
        )

    @property
    def moments(self) -> dict[int, Moment]:
        """When each node runs, in sections."""
        all_of: defaultdict[int, list[int]] = defaultdict(list)
        writing: dict[int, int] = {}
        for moment, section in enumerate(self.sections):
            for i, call in section.calls:
                all_of[i].append(moment)
                if any(kind == "out" for kind, _ in call.operands):
                    writing.setdefault(i, moment)
        return {
            i: Moment(found[0], writing.get(i, found[0]), found[-1])
            for i, found in all_of.items()
        }

    @property
    def calls(self) -> list[tuple[int, Call]]:
        """Every call with the index of its node, in order."""
        return [pair for section in self.sections for pair in section.calls]

    @property
    def parts(self) -> list[tuple[int, list[int], int, int, list[Code], bool]]:
        """What is timed by itself: its moment, nodes, flops, bytes, code, if shared.

        Sections side by side are parts of one moment.
        """
        return [
            (
                moment,
                sorted({i for i, _ in section.calls}),
                sum(call.flops for _, call in section.calls),
                sum(call.nbytes for _, call in section.calls),
                [code for _, call in section.calls for code in call.codes],
                beside.is_shared,
            )
            for moment, beside in enumerate(self.sections)
            for section in beside.sections
        ]

    @property
    def prepared(self) -> list[tuple[int, Call, int]]:
        """Calls that one run is enough for: the node, the call, and the bytes it makes.

        The k-th one of a node makes its operand ("kept", k).
        """
        return [
            (i, call, nbytes)
            for i, node in enumerate(self.lowered)
            for call, nbytes in zip(node.prepared, node.kept, strict=True)
        ]

    def bind(self, resolve: Resolve, objects: Any) -> Runner:
        """Put the program on memory.

        Args:
            resolve: the place of an operand, by the index of its node.
            objects: a ctypes array in which the caller puts the `id` of each numbered
                array before a run.
        """
        load(code for _, call, _ in self.prepared for code in call.codes)
        return Runner(self, resolve, objects)

    def bind_prepared(
        self, index: int, call: Call, resolve: Resolve, objects: Any
    ) -> Runner:
        """Put one of the prepared calls of a node on memory; see `bind`."""

        def share(_: int, operand: Reference) -> Share:
            is_made = operand == call.made
            return Share(operand, call.prepares if is_made else 0, False)

        return NativeProgram([Lowered([call])], share).bind(
            lambda _, operand: resolve(index, operand), objects
        )
