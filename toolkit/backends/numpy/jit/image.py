"""The image of a program: the relocatable words that the runtime reads.

The words are the runtime's structures and the table of every call. Some words are
addresses: of other words of the image, of kernels, or of memory of the image's user.
Such a word contains the offset from a `Base`. It becomes an address when the base is
allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from toolkit.backends.numpy.jit.calls import ERROR, Call, Reference
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.loop import Loop
from toolkit.backends.numpy.jit.sections import Branches, Section
from toolkit.definitions.records import record
from toolkit.ir.extents import Extent, upper_bound

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.program import NativeProgram

# Sizes of the runtime's structures, in words.
_PROGRAM, _SECTION, _MOVE, _ERROR = 8, 8, 6, 4
_EVENTS = 7  # the word of a program that contains the address of its events


class Base(IntEnum):
    """The base of an address in an image."""

    NOTHING = 0
    IMAGE = 1  # the first word of the image
    KERNEL = 2  # the offset is the number of a function
    ARENA = 3
    WEIGHTS = 4
    CONSTANTS = 5
    WORKSPACE = 6


@record
class Address:
    """An offset in bytes from a base; `address + n` adds n bytes."""

    base: Base
    offset: int = 0

    def __add__(self, distance: int) -> Address:
        return Address(self.base, self.offset + distance)

    __radd__ = __add__


Word = int | Address | Extent
# The number of an array of the call or None, and the offset of the operand.
OperandLocation = tuple[int | None, Any]
Resolve = Callable[[int, Reference], OperandLocation]


class Image:
    """The words of a program.

    Args:
        program: the program to run.
        resolve: returns the location of an operand, by the index of its node.
        objects: the address of a table with one word for each numbered array of a call.
            The word is the address of the object that holds the array's data pointer.
        shift: the offset of the data pointer in that object, in bytes.
        error: the address of the words for an index error; None: words of the image.
        constant: returns the address of a constant array in the bodies of loops; None:
            its address in this process.

    Attributes:
        words: numbers, or offsets from the bases in `bases`.
        bases: the base of each word that is an address, by its number.
        extents: the words that depend on free extents, by their numbers.
        codes: the functions and their numbers.
        problems: a call that can note an error, by the number of a section's first
            word.
        error_word: the number of the image's first word for an index error.
        part_numbers: the number of the part that each event belongs to.
        is_shared: whether several threads are worthwhile for a section.
    """

    def __init__(
        self,
        program: NativeProgram,
        resolve: Resolve,
        objects: Word,
        shift: int = 0,
        error: Word | None = None,
        constant: Callable[[Any], Word] | None = None,
    ) -> None:
        self.words: list[int] = []
        self.bases: dict[int, Base] = {}
        self.extents: dict[int, Extent] = {}
        self.codes: dict[Code, int] = {}
        self.problems: dict[int, Call] = {}
        self.part_numbers: list[int] = []
        self.is_shared = False
        self.shift = shift
        self.constant = constant
        self.header = self.take(_PROGRAM)
        self.error_word = self.take(_ERROR)
        error_address = self.address(self.error_word)
        self.error: Word = error_address if error is None else error
        self.part_numbers = _Program(self, program, resolve).serialize(
            self.header, objects
        )

    @property
    def events(self) -> int:
        """The number of the word for the events' address; 0 there disables events."""
        return self.header + _EVENTS

    def take(self, count: int) -> int:
        """Reserve consecutive words and return the number of the first."""
        start = len(self.words)
        self.words += [0] * count
        return start

    def append(self, words: Sequence[Word]) -> int:
        """Append words and return the number of the first."""
        start = self.take(len(words))
        self.write(start, words)
        return start

    def write(self, start: int, words: Iterable[Word]) -> None:
        """Set consecutive words."""
        for number, word in enumerate(words, start):
            if isinstance(word, Address):
                self.bases[number] = word.base
                word = int(word.offset)
            elif isinstance(word, Extent):
                self.extents[number] = word
                word = int(word.value)
            self.words[number] = word

    def address(self, number: int) -> Address:
        """Return the address of a word."""
        return Address(Base.IMAGE, 8 * number)

    def kernel(self, code: Code) -> Address:
        """Return the address of a function."""
        return Address(Base.KERNEL, self.codes.setdefault(code, len(self.codes)))

    def at(self, bases: dict[Base, int], kernels: Sequence[int]) -> list[int]:
        """Return the words with all addresses resolved.

        Args:
            bases: the addresses of all bases except kernels.
            kernels: the addresses of the functions.
        """
        resolved = list(self.words)
        for number, base in self.bases.items():
            if base is Base.KERNEL:
                resolved[number] = kernels[resolved[number]]
            else:
                resolved[number] += bases[base]
        return resolved


class _Program:
    """Serializer of a program, or of the body of a loop, into an image."""

    def __init__(self, image: Image, program: NativeProgram, resolve: Resolve) -> None:
        self.image = image
        self.program = program
        self.resolve = resolve
        self.part_numbers: list[int] = []
        self.patches: list[Word] = []

    def serialize(self, header: int, objects: Word) -> list[int]:
        """Write the program; return the part number of each event.

        Args:
            header: the number of the first word of the program's header.
            objects: see `Image`.
        """
        image, program = self.image, self.program
        first, part_number = image.take(_SECTION * len(program.sections)), 0
        for number, section in enumerate(program.sections):
            at = first + _SECTION * number
            image.write(at, self._section(section, part_number))
            image.is_shared |= section.is_shared
            calls = (call for _, call in section.calls if ERROR in call.operands)
            if call := next(calls, None):
                image.problems[at] = call
            part_number += len(section.sections)
        words: list[Word] = [
            len(self.patches) // 3,
            image.address(image.append(self.patches)),
            len(program.sections),
            image.address(first),
            objects,
            image.shift,
            image.error,
            0,
        ]
        image.write(header, words)
        return self.part_numbers

    def _section(self, section: Section | Branches, part_number: int) -> list[Word]:
        """Write the calls of a section and return the words of the section."""
        image, first_event = self.image, len(self.part_numbers)
        if isinstance(section, Branches):
            count = section.tasks
            self.part_numbers += range(part_number, part_number + count)
            branches = image.take(_SECTION * count)
            for k, branch in enumerate(section.sections):
                image.write(
                    branches + _SECTION * k, self._section(branch, part_number + k)
                )
            address = image.address(branches)
            return [count, 1, count, 1, -1, address, True, first_event]
        self.part_numbers += [part_number] * upper_bound(section.tasks)
        calls: list[Word] = []
        for (i, call), factor in zip(section.calls, section.factors, strict=True):
            locations = {o: self.resolve(i, o) for o in call.operands if o != ERROR}
            if isinstance(call, Loop):
                loop = self._loop(call, locations)
                return [1, 1, 1, 1, 0, image.address(loop), 0, first_event]
            operands = [locations.get(o, (None, image.error)) for o in call.operands]
            table = self._table(operands, call.numbers)
            calls += [image.kernel(call.code), image.address(table), factor]
        return [
            section.tasks,
            section.grain,
            section.rows,
            section.group,
            len(section.calls),
            image.address(image.append(calls)),
            section.is_shared + 2 * section.is_stream,
            first_event,
        ]

    def _table(
        self, locations: Sequence[OperandLocation], numbers: Sequence[Word]
    ) -> int:
        """Append addresses and numbers; return the number of the first word."""
        table = self.image.take(len(locations) + len(numbers))
        self._fill(table, locations, numbers)
        return table

    def _fill(
        self, table: int, locations: Sequence[OperandLocation], numbers: Sequence[Word]
    ) -> None:
        """Write addresses and numbers; add patches for addresses that vary by run."""
        self.image.write(table, [*(offset for _, offset in locations), *numbers])
        for k, (number, offset) in enumerate(locations):
            if number is not None:
                self.patches += [self.image.address(table + k), number, offset]

    def _loop(self, loop: Loop, locations: dict[Reference, OperandLocation]) -> int:
        """Append a loop and its body, whose array addresses vary by iteration."""
        image = self.image
        _, arena = locations[loop.arena]
        moved = image.take(len(loop.moves))
        objects = image.append(
            [image.address(moved + k) + -image.shift for k in range(len(loop.moves))]
        )
        body = loop.body
        body_places = (
            body.locations
            if image.constant is None
            else body.locations_with(image.constant)
        )
        header = image.take(_PROGRAM)
        inner = _Program(image, body.code, body_places.at(arena))
        inner.serialize(header, image.address(objects))
        moves = image.take(_MOVE * len(loop.moves))
        for k, move in enumerate(loop.moves):
            first = locations[move.first] if move.first else (None, 0)
            last = locations[move.last] if move.last else (None, 0)
            number, offset = locations[move.base]
            row = [first, last, (number, offset + move.offset)]
            numbers = [move.stride, move.phase, move.delta]
            self._fill(moves + _MOVE * k, row, numbers)
        flags = (
            locations[o] if o else (None, 0)
            for o in (loop.condition, loop.iteration_count)
        )
        words: list[Word] = [
            int(loop.expected),
            image.address(header),
            loop.iterations,
            len(loop.moves),
            image.address(moves),
            image.address(moved),
        ]
        return self._table(list(flags), words)
