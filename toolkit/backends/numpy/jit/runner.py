"""Programs bound to memory, run with a single foreign call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkit.backends.numpy.jit.code import load
from toolkit.backends.numpy.jit.image import Base, Image, Resolve
from toolkit.backends.numpy.jit.runtime import runtime, workers
from toolkit.ir.extents import Domain, hashable_extents
from toolkit.plans.loops.iteration_space import format_problem

if TYPE_CHECKING:
    from toolkit.backends.numpy.jit.program import NativeProgram

_EVENT = 3  # words
_MAX_VARIANTS = 64  # tuples of free extents whose words are stored


class Runner:
    """A program bound to memory; it is not thread-safe.

    Args:
        program: the program to run.
        resolve: returns the location of an operand, by the index of its node.
        objects: a ctypes array of the `id` of each array of a call.
    """

    def __init__(self, program: NativeProgram, resolve: Resolve, objects: Any) -> None:
        self.program = program
        self.objects = objects
        self._runtime = runtime()
        table, shift = ctypes.addressof(objects), self._runtime.address_offset
        with hashable_extents():
            self.image = Image(program, resolve, table, shift)
        kernels = load(self.image.codes)
        self._words: Any = (ctypes.c_int64 * len(self.image.words))()
        start = ctypes.addressof(self._words)
        words: Any = self.image.at({Base.IMAGE: start}, kernels)
        self._words[:] = words
        self.address: int = start + 8 * self.image.header
        # The words for each tuple of free extents.
        self._variants: dict[tuple[int, ...], Any] = {}
        self._evaluate: Callable[..., tuple[int | float, ...]] | None = None

    def set_extents(self, domain: Domain, values: tuple[int, ...]) -> None:
        """Set the words that depend on free extents.

        Args:
            domain: the free extents of the program.
            values: their values.
        """
        variant = self._variants.get(values)
        if variant is None:
            if len(self._variants) >= _MAX_VARIANTS:
                del self._variants[next(iter(self._variants))]
            variant = self._variants[values] = self._variant(domain, values)
        ctypes.memmove(self._words, variant, ctypes.sizeof(variant))

    def _variant(
        self, domain: Domain, values: tuple[int, ...]
    ) -> ctypes.Array[ctypes.c_int64]:
        """Return all words for these values of the free extents."""
        if self._evaluate is None:
            self._evaluate = domain.evaluator(list(self.image.extents.values()))
        variant: ctypes.Array[ctypes.c_int64]
        variant = type(self._words).from_buffer_copy(self._words)
        words = self._evaluate(*values)
        for number, word in zip(self.image.extents, words, strict=True):
            variant[number] = int(word)
        return variant

    def run(self) -> None:
        """Run the program.

        Raises:
            ArgumentError: if an index in an operand is out of range, or a matrix has no
                result. It is the `error` of the call.
        """
        threads = workers() if self.image.is_shared else None
        if self._runtime.run(self.address, threads.pool if threads else 0):
            first = self.image.error_word
            _, index, limit, section = self._words[first : first + 4]
            word_number = (section - ctypes.addressof(self._words)) // 8
            call = self.image.problems[word_number]
            raise call.error(format_problem(call.problem, index, limit))

    def timed(self) -> list[tuple[int, int, int, int]]:
        """Run; return (part, start, end, thread) of each task, in clock ticks."""
        events = (ctypes.c_int64 * (_EVENT * len(self.image.part_numbers)))()
        self._words[self.image.events] = ctypes.addressof(events)
        try:
            self.run()
        finally:
            self._words[self.image.events] = 0
        columns = events[0::3], events[1::3], events[2::3]
        rows = zip(self.image.part_numbers, *columns, strict=True)
        return [row for row in rows if row[2]]  # sections of branches note nothing
