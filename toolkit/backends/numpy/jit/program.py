"""Programs of generated calls: sections, tables of addresses, one foreign call.

A `NativeProgram` is what consecutive lowered nodes become, once. `bind` puts it on
memory: a `Runner` holds one block of words - the runtime's structures and every call's
table - and enters machine code with a single call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from toolkit.backends.numpy.jit.code import load
from toolkit.backends.numpy.jit.lowering import ERROR, Call, Lowered, Reference
from toolkit.backends.numpy.jit.runtime import runtime, workers
from toolkit.backends.numpy.jit.sections import Section, Shares, sections

_PROGRAM, _SECTION, _CALL, _PATCH, _EVENT, _ERROR = 8, 8, 3, 3, 3, 4

# Where an operand lies: (None, address), or (number of an array, bytes from its start).
Place = tuple[int | None, int]
Resolve = Callable[[int, Reference], Place]


class NativeProgram:
    """Consecutive lowered nodes, their calls divided into sections.

    Args:
        lowered: the calls of each node.
        shares: what memory each of their operands lies in.
    """

    def __init__(self, lowered: Sequence[Lowered], shares: Shares) -> None:
        calls = [
            (i, call)
            for i, node in enumerate(lowered)
            for call in node.calls
            if call.rows
        ]
        self.sections = sections(calls, shares)

    @property
    def moments(self) -> dict[int, tuple[int, int]]:
        """The first and the last section that runs calls of each node."""
        found: dict[int, tuple[int, int]] = {}
        for moment, section in enumerate(self.sections):
            for i, _ in section.calls:
                found[i] = (found.get(i, (moment, moment))[0], moment)
        return found

    @property
    def calls(self) -> list[tuple[int, Call]]:
        """Every call with the index of its node, in order."""
        return [pair for section in self.sections for pair in section.calls]

    def bind(self, resolve: Resolve, objects: Any) -> Runner:
        """Put the program on memory.

        Args:
            resolve: the place of an operand, by the index of its node.
            objects: a ctypes array in which the caller puts the `id` of each numbered
                array before a run.
        """
        return Runner(self, resolve, objects)


class Runner:
    """A program bound to memory; one caller at a time may run it."""

    def __init__(self, program: NativeProgram, resolve: Resolve, objects: Any) -> None:
        self.program = program
        self.objects = objects
        self._runtime = runtime()
        self._events: Any = None
        self._needs_threads = any(section.is_shared for section in program.sections)
        calls = program.calls
        codes = load(call.code for _, call in calls)
        sizes = [len(call.operands) + len(call.numbers) for _, call in calls]
        places = [
            [
                (None, 0) if operand == ERROR else resolve(i, operand)
                for operand in call.operands
            ]
            for i, call in calls
        ]
        moving = sum(number is not None for row in places for number, _ in row)
        starts = _Starts()
        self._error = starts.take(_ERROR, _PROGRAM)
        patches = starts.take(_PATCH * moving)
        section_words = starts.take(_SECTION * len(program.sections))
        call_words = starts.take(_CALL * len(calls))
        tables = [starts.take(size) for size in sizes]
        self._words = (ctypes.c_int64 * starts.total)()
        self._address = address = ctypes.addressof(self._words)
        words: Any = self._words
        words[0:_PROGRAM] = [
            moving,
            address + 8 * patches,
            len(program.sections),
            address + 8 * section_words,
            ctypes.addressof(objects),
            self._runtime.address_offset,
            address + 8 * self._error,
            0,
        ]
        for (_, call), row, table in zip(calls, places, tables, strict=True):
            fixed = []
            for k, (operand, (number, offset)) in enumerate(
                zip(call.operands, row, strict=True)
            ):
                if operand == ERROR:
                    offset = address + 8 * self._error
                if number is not None:
                    word = address + 8 * (table + k)
                    words[patches : patches + _PATCH] = [word, number, offset]
                    patches += _PATCH
                fixed.append(offset)
            entries = [*fixed, *call.numbers]
            words[table : table + len(entries)] = entries
        event, k = 0, 0
        for section in program.sections:
            first = address + 8 * (call_words + _CALL * k)
            words[section_words : section_words + _SECTION] = [
                section.tasks,
                section.grain,
                section.rows,
                section.group,
                len(section.calls),
                first,
                section.is_shared,
                event,
            ]
            section_words += _SECTION
            event += section.tasks
            for factor in section.factors:
                at = call_words + _CALL * k
                table_address = address + 8 * tables[k]
                words[at : at + _CALL] = [codes[k], table_address, factor]
                k += 1
        self._event_count = event

    def run(self) -> None:
        """Compute.

        Raises:
            IndexError: if an index that a call was given is out of range.
        """
        pool = workers().pool if self._needs_threads else 0
        if self._runtime.run(self._address, pool):
            _, index, limit, section = self._words[self._error : self._error + _ERROR]
            number = (section - self._words[3]) // (8 * _SECTION)
            calls = self.program.sections[number].calls
            (problem,) = {call.problem for _, call in calls if ERROR in call.operands}
            raise IndexError(problem.format(index=index, limit=limit))

    def timed(self) -> list[tuple[Section, int, int, int]]:
        """Run; (section, start, end, thread) of each task, in ticks of the clock."""
        events = (ctypes.c_int64 * (_EVENT * self._event_count))()
        self._words[7] = ctypes.addressof(events)
        try:
            self.run()
        finally:
            self._words[7] = 0
        owners = [s for s in self.program.sections for _ in range(s.tasks)]
        rows = zip(owners, events[0::3], events[1::3], events[2::3], strict=True)
        return list(rows)


class _Starts:
    """Where each part of a block of words starts."""

    def __init__(self) -> None:
        self.total = 0

    def take(self, words: int, at_least: int = 0) -> int:
        start = max(self.total, at_least)
        self.total = start + words
        return start
