"""The images of a library's programs, with one pool of kernels and constants."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toolkit.backends.library import LibraryProgram, LibrarySource, StoredWeight
from toolkit.backends.numpy.jit.calls import Call, Lowered
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.image import (
    Address,
    Base,
    Image,
    OperandLocation,
    Resolve,
)
from toolkit.backends.numpy.jit.loop import Loop
from toolkit.backends.numpy.jit.native.layout import (
    ERROR_WORD,
    HEADER_WORDS,
    Layout,
    raw,
)
from toolkit.backends.numpy.jit.program import NativeProgram
from toolkit.plans.locations import Reference
from toolkit.plans.operands import ALIGNMENT, OperandMemory

# A tag of the stream: the word is in a separate table. The other tags are a `Base`.
_WIDE = 7
_WIDEST = 1 << 58


def constant_arrays(program: Any) -> Iterator[np.ndarray]:
    """Yield the constants of a program and of the bodies of its loops."""
    yield from program.constants.values()
    for _, call in program.code.calls:
        if isinstance(call, Loop):
            yield from constant_arrays(call.body)


def zero_bytes(programs: Sequence[LibraryProgram]) -> int:
    """Return the size of the largest constant that contains only zeros."""
    bodies = (body for program in programs for body in program.bodies)
    arrays = (x for body in bodies for x in constant_arrays(body))
    return max((x.nbytes for x in arrays if not _has_bits(x)), default=0)


def _has_bits(array: np.ndarray) -> bool:
    """Return whether a bit is set; -0.0 has a set bit."""
    return bool(np.frombuffer(raw(array), np.uint8).any())


class Constants:
    """The constant arrays of all programs, without duplicates.

    Args:
        zeros: the offset of a block of zeros in a workspace.
    """

    def __init__(self, zeros: int) -> None:
        self.zeros = zeros
        self.chunks: list[bytes] = []
        self.nbytes = 0
        self._offsets_by_key: dict[tuple[int, bytes], int] = {}

    def address(self, array: np.ndarray) -> Address:
        """Return the address of the bytes of an array; store them if they are new."""
        if not _has_bits(array):
            return Address(Base.WORKSPACE, self.zeros)
        content = bytes(raw(array))
        key = len(content), hashlib.sha256(content).digest()
        if key not in self._offsets_by_key:
            self._offsets_by_key[key] = self.nbytes
            padding = -len(content) % ALIGNMENT
            self.chunks += [content, bytes(padding)]
            self.nbytes += len(content) + padding
        return Address(Base.CONSTANTS, self._offsets_by_key[key])


class Images:
    """The images of programs: a stream of words, and the objects that it refers to.

    Attributes:
        codes: the kernels, by number.
        constants: the constant arrays of programs.
        wide: the words that do not fit in the stream.
    """

    def __init__(
        self, source: LibrarySource, layout: Layout, stored: list[StoredWeight]
    ) -> None:
        self.source, self.layout = source, layout
        self.codes: dict[Code, int] = {}
        self.constants = Constants(layout.zeros[0])
        self.wide: list[int] = []
        # Offsets of prepared operands, in order: of the current program, and by the
        # recipe of any program.
        self.prepared_offsets: dict[tuple[int, Reference], int] = {}
        self._offsets_by_key: dict[Any, int] = {}
        numbers = {id(weight): i for i, weight in enumerate(source.weights)}
        self._offsets = {numbers[id(s.weight)]: s.offset for s in stored}

    def reset(self) -> None:
        """Reset the prepared operands: memory after the shared layout is reused."""
        self._offsets_by_key.clear()

    def image(self, program: LibraryProgram, number: int) -> Image:
        """Return the image of a program's body; prepared operands have offsets."""
        body = program.bodies[number]
        return self._image(body.code, self._resolve(program, body))

    def preparation_image(self, program: LibraryProgram, number: int) -> Image:
        """Return the image of the calls to prepare that earlier bodies do not share."""
        body = program.bodies[number]
        code = body.code
        resolve = self._resolve(program, body)
        calls: dict[int, list[Call]] = defaultdict(list)
        sizes: dict[tuple[int, Reference], int] = {}
        self.prepared_offsets = {}
        for index, call, nbytes in code.prepared:
            destination = call.destination
            sources = tuple(resolve(index, operand) for operand in call.inputs)
            key = call.recipe, sources
            if key not in self._offsets_by_key:
                self._offsets_by_key[key] = self.layout.take(nbytes)
                calls[index].append(call)
                sizes[index, destination] = nbytes
            self.prepared_offsets[index, destination] = self._offsets_by_key[key]
        lowered = [Lowered(calls[i]) for i in range(len(code.lowered))]

        def share(index: int, operand: Reference) -> OperandMemory:
            owner = resolve(index, operand)  # a prepared call can read another's result
            return OperandMemory(owner, sizes.get((index, operand), 0), False)

        return self._image(NativeProgram(lowered, share), resolve)

    def _image(self, code: NativeProgram, resolve: Resolve) -> Image:
        return Image(
            code,
            resolve,
            Address(Base.WORKSPACE, 8 * HEADER_WORDS),
            error=Address(Base.WORKSPACE, 8 * ERROR_WORD),
            constant=self.constants.address,
        )

    def _resolve(self, program: LibraryProgram, body: Any) -> Resolve:
        locate = body.locations_with(self.constants.address).at(Address(Base.ARENA))
        operands = list(self._operands(program))

        def resolve(index: int, operand: Reference) -> OperandLocation:
            if operand[0] == "kept":
                return None, Address(
                    Base.WORKSPACE, self.prepared_offsets[index, operand]
                )
            number, offset = locate(index, operand)
            if number is not None and number >= len(operands):
                start = list(self.prepared_offsets.values())[number - len(operands)]
                return None, Address(Base.WORKSPACE, start) + offset
            slot = None if number is None else operands[number]
            if isinstance(slot, Address):
                return None, slot + offset
            return slot, offset

        return resolve

    def _operands(self, program: LibraryProgram) -> Iterator[int | Address]:
        """Yield the slot of each array, or its address in the weights."""
        source, states = self.source, self.layout.state_slots
        yield from range(len(source.inputs))
        for weight in program.weights:
            if weight in states:
                yield states[weight]
            else:
                yield Address(Base.WEIGHTS, self._offsets[weight])
        yield from range(len(source.inputs), len(source.inputs) + len(source.outputs))
        yield from (states[weight] + 1 for weight in program.updates)

    def stream(self, image: Image) -> bytes:
        """Serialize the words for library.ll: seven bits of a number in each byte."""
        codes = list(image.codes)
        numbers = [self.codes.setdefault(code, len(self.codes)) for code in codes]
        content = bytearray()
        for number, word in enumerate(image.words):
            base = int(image.bases.get(number, Base.NOTHING))
            if base == Base.KERNEL:
                word = numbers[word]
            elif not -_WIDEST < word < _WIDEST:
                base, word = _WIDE, self._wide(word)
            folded = 2 * word if word >= 0 else -2 * word - 1
            content.extend(_septets(folded << 3 | base))
        return bytes(content)

    def _wide(self, word: int) -> int:
        if word not in self.wide:
            self.wide.append(word)
        return self.wide.index(word)


def _septets(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number
