"""Programs of generated calls: sections, tables of addresses, one foreign call.

A `NativeProgram` is what consecutive lowered nodes become, once. `bind` puts it on
memory: a `Runner` holds one block of words - the runtime's structures and every call's
table - and enters machine code with a single call.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.backends.base import Moment, Move
from toolkit.backends.numpy.jit.code import Code, load
from toolkit.backends.numpy.jit.lowering import ERROR, Call, Lowered, Reference
from toolkit.backends.numpy.jit.runtime import runtime, workers
from toolkit.backends.numpy.jit.sections import (
    Branches,
    Section,
    Shares,
    sections,
    side_by_side,
)
from toolkit.backends.places import LoopBody, Place
from toolkit.errors import OutOfRangeError

# Words of the runtime's structures.
_PROGRAM, _SECTION, _MOVE, _EVENT, _ERROR = 8, 8, 6, 3, 4

Resolve = Callable[[int, Reference], Place]


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
    def parts(self) -> list[tuple[int, list[int], int, int, list[Code]]]:
        """What is timed by itself: its moment, nodes, flops, bytes, and their code.

        Sections side by side are parts of one moment.
        """
        return [
            (
                moment,
                sorted({i for i, _ in section.calls}),
                sum(call.flops for _, call in section.calls),
                sum(call.nbytes for _, call in section.calls),
                [code for _, call in section.calls for code in call.codes],
            )
            for moment, beside in enumerate(self.sections)
            for section in beside.sections
        ]

    def bind(self, resolve: Resolve, objects: Any) -> Runner:
        """Put the program on memory.

        Args:
            resolve: the place of an operand, by the index of its node.
            objects: a ctypes array in which the caller puts the `id` of each numbered
                array before a run.
        """
        return Runner(self, resolve, objects)


@dataclass(frozen=True)
class Loop(Call):
    """A call that runs a whole program again and again.

    Attributes:
        body: a program that is generated code alone.
        arena: where the body keeps its intermediate values.
        moves: where each array of the body is.
        turns: how often it runs.
    """

    can_branch = False
    body: Any = None
    arena: Reference = ("work", 0)
    moves: tuple[Move, ...] = ()
    turns: int = 1

    @property
    def codes(self) -> list[Code]:
        """The functions of the body's calls."""
        return [code for _, call in self.body.code.calls for code in call.codes]


def lower_loop(
    body: LoopBody, arena: Reference, moves: Sequence[Move], turns: int
) -> Any:
    """A loop over the program of `body` as the one call of a node."""
    places = (place for m in moves for place in (m.base, m.first, m.last) if place)
    operands = tuple(dict.fromkeys((arena, *places)))
    calls = [call for _, call in body.code.calls]
    loop = Loop(
        code=Code(_no_code),
        operands=operands,
        flops=turns * sum(call.flops for call in calls),
        nbytes=turns * sum(call.nbytes for call in calls),
        body=body,
        arena=arena,
        moves=tuple(moves),
        turns=turns,
    )
    # The arena has a place even where nothing is in it.
    return Lowered((loop,), max(1, arena[1] + body.arena_bytes))


def _no_code() -> Any:
    raise NotImplementedError("a loop has no code of its own")


class Runner:
    """A program bound to memory; one caller at a time may run it.

    Args:
        program: what to run.
        resolve: the place of an operand, by the index of its node.
        objects: a ctypes array of the `id` of each array of a call.
        error: the address of the error block of the program around this one.
    """

    def __init__(
        self, program: NativeProgram, resolve: Resolve, objects: Any, error: int = 0
    ) -> None:
        self.program = program
        self.objects = objects
        self._runtime = runtime()
        self._block = _Block()
        self._header = self._block.take(_PROGRAM)
        own_error = self._block.take(_ERROR)
        self._error = error or self._block.address(own_error)
        self._patches: list[tuple[int, int, int]] = []
        self._inner: list[Runner] = []
        self._kept: list[Any] = []  # memory that only addresses point to
        self._events_of: list[int] = []  # the number of the part of each event
        self._sections = self._block.take(_SECTION * len(program.sections))
        plain = [call.code for _, call in program.calls if not isinstance(call, Loop)]
        codes = dict(zip(plain, load(plain), strict=True))
        part = 0
        for number, section in enumerate(program.sections):
            at = self._sections + _SECTION * number
            self._block.write(at, self._section(section, part, codes, resolve))
            part += len(section.sections)
        flat = [word for patch in self._patches for word in patch]
        header = [
            len(self._patches),
            self._block.address(self._block.put(flat)),
            len(program.sections),
            self._block.address(self._sections),
            ctypes.addressof(objects),
            self._runtime.address_offset,
            self._error,
            0,
        ]
        self._block.write(self._header, header)
        self.address: int = self._block.address(self._header)
        self._needs_threads = any(s.is_shared for s in program.sections)
        self._needs_threads |= any(runner._needs_threads for runner in self._inner)

    def _section(
        self,
        section: Section | Branches,
        part: int,
        codes: dict[Code, int],
        resolve: Resolve,
    ) -> list[int]:
        """The words of a section, after those of its calls."""
        first_event = len(self._events_of)
        if isinstance(section, Branches):
            count = section.tasks
            self._events_of += range(part, part + count)
            branches = self._block.take(_SECTION * count)
            for k, branch in enumerate(section.sections):
                words = self._section(branch, part + k, codes, resolve)
                self._block.write(branches + _SECTION * k, words)
            address = self._block.address(branches)
            return [count, 1, count, 1, -1, address, True, first_event]
        self._events_of += [part] * section.tasks
        calls = []
        for (i, call), factor in zip(section.calls, section.factors, strict=True):
            places = {o: resolve(i, o) for o in call.operands if o != ERROR}
            if isinstance(call, Loop):
                loop = self._loop(call, places)
                return [1, 1, 1, 1, 0, self._block.address(loop), 0, first_event]
            operands = [places.get(o, (None, self._error)) for o in call.operands]
            table = self._table(operands, call.numbers)
            calls += [codes[call.code], self._block.address(table), factor]
        return [
            section.tasks,
            section.grain,
            section.rows,
            section.group,
            len(section.calls),
            self._block.address(self._block.put(calls)),
            section.is_shared,
            first_event,
        ]

    def _table(self, places: Sequence[Place], numbers: Sequence[int]) -> int:
        """Put down addresses and numbers; the number of the first word."""
        table = self._block.take(len(places) + len(numbers))
        self._fill(table, places, numbers)
        return table

    def _fill(
        self, table: int, places: Sequence[Place], numbers: Sequence[int]
    ) -> None:
        """Write addresses and numbers; each run fills in those that move."""
        self._block.write(table, [*(offset for _, offset in places), *numbers])
        for k, (number, offset) in enumerate(places):
            if number is not None:
                self._patches.append((self._block.address(table + k), number, offset))

    def _loop(self, loop: Loop, places: dict[Reference, Place]) -> int:
        """Put down a loop and bind its body; the body's arrays are words that move."""
        _, arena = places[loop.arena]
        moved = (ctypes.c_int64 * max(1, len(loop.moves)))()
        objects = (ctypes.c_int64 * max(1, len(loop.moves)))()
        for k in range(len(loop.moves)):
            word = ctypes.addressof(moved) + 8 * k
            objects[k] = word - self._runtime.address_offset
        places_inside = loop.body.places.at(arena)
        inner = Runner(loop.body.code, places_inside, objects, self._error)
        self._inner.append(inner)
        self._kept.append(moved)
        moves = self._block.take(_MOVE * len(loop.moves))
        for k, move in enumerate(loop.moves):
            first = places[move.first] if move.first else (None, 0)
            last = places[move.last] if move.last else (None, 0)
            number, offset = places[move.base]
            row = [first, last, (number, offset + move.offset)]
            numbers = [move.stride, move.phase, move.delta]
            self._fill(moves + _MOVE * k, row, numbers)
        addresses = [self._block.address(moves), ctypes.addressof(moved)]
        words = [inner.address, loop.turns, len(loop.moves), *addresses]
        return self._block.put(words)

    def run(self) -> None:
        """Compute.

        Raises:
            OutOfRangeError: if an index that a call was given is out of range.
        """
        pool = workers().pool if self._needs_threads else 0
        if self._runtime.run(self.address, pool):
            words = (ctypes.c_int64 * _ERROR).from_address(self._error)
            _, index, limit, section = words
            problem = self._problem(section)
            raise OutOfRangeError(problem.format(index=index, limit=limit))

    def _problem(self, address: int) -> str:
        """What to say of an error in the section at an address."""
        first = self._block.address(self._sections)
        number = (address - first) // (8 * _SECTION)
        if 0 <= number < len(self.program.sections):
            calls = self.program.sections[number].calls
            return next(call.problem for _, call in calls if ERROR in call.operands)
        found = (runner._problem(address) for runner in self._inner)
        return next((problem for problem in found if problem), "")

    def timed(self) -> list[tuple[int, int, int, int]]:
        """Run; (part, start, end, thread) of each task, in ticks of the clock."""
        events = (ctypes.c_int64 * (_EVENT * len(self._events_of)))()
        self._block.write(self._header + 7, [ctypes.addressof(events)])
        try:
            self.run()
        finally:
            self._block.write(self._header + 7, [0])
        columns = events[0::3], events[1::3], events[2::3]
        rows = zip(self._events_of, *columns, strict=True)
        return [row for row in rows if row[2]]  # sections of branches note nothing


class _Block:
    """Words in memory that keep their addresses as more are put down."""

    _PIECE = 4096

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._starts: list[int] = []
        self._used = 0
        self._size = 0

    def take(self, count: int) -> int:
        """Reserve consecutive words; the number of the first."""
        if not self._pieces or self._used + count > len(self._pieces[-1]):
            piece = (ctypes.c_int64 * max(self._PIECE, count))()
            self._starts.append(self._size)
            self._pieces.append(piece)
            self._size += len(piece)
            self._used = 0
        start = self._starts[-1] + self._used
        self._used += count
        return start

    def put(self, words: Sequence[int]) -> int:
        """Put words down; the number of the first."""
        start = self.take(len(words))
        self.write(start, words)
        return start

    def write(self, start: int, words: Sequence[int]) -> None:
        """Set consecutive words."""
        piece, first = self._find(start)
        piece[first : first + len(words)] = list(words)

    def address(self, number: int) -> int:
        """Where a word is."""
        piece, first = self._find(number)
        return ctypes.addressof(piece) + 8 * first

    def _find(self, number: int) -> tuple[Any, int]:
        k = bisect_right(self._starts, number) - 1
        return self._pieces[k], number - self._starts[k]
