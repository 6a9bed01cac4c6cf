"""Execution of programs: each call borrows a bound program that no other call uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from toolkit.compiler.bound import BoundProgram
from toolkit.compiler.program import Program

Array = Any


class Executable:
    """Program that several threads can call at the same time.

    Args:
        program: the program to run.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._kernels = program.backend.kernels
        self._idle: list[BoundProgram] = []
        self._is_code = program.code is not None
        self._extents: tuple[int, ...] = ()  # the values of free extents
        program.backend.memory.on_shortage(self._release)

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run the program.

        Args:
            inputs: one array for each input of the graph; never modified.
            outs: for each output an array as destination, or None for a new one.

        Returns:
            One array for each output.
        """
        if self._is_code:  # machine code issues no warnings
            return self.run(inputs, outs)
        with self._kernels.errstate():
            return self.run(inputs, outs)

    def run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run like a call, for callers that have already silenced warnings."""
        return self._on_memory(BoundProgram.run, inputs, outs)

    def update(self, inputs: Sequence[Array], updated: Sequence[Array]) -> list[Array]:
        """Run in place, if the program supports it: see `BoundProgram.update`."""
        if self._is_code:
            return self._update(inputs, updated)
        with self._kernels.errstate():
            return self._update(inputs, updated)

    def call(self, inputs: Sequence[Array]) -> list[Array]:
        """Run a plain program, see `Program.is_plain`, with less time than a call."""
        bound = self._borrow()
        try:
            results = bound.call(inputs)
        except MemoryError:
            bound.close()
            raise
        except BaseException:
            self._idle.append(bound)
            raise
        self._idle.append(bound)
        return results

    def _update(self, inputs: Sequence[Array], updated: Sequence[Array]) -> list[Array]:
        return self._on_memory(BoundProgram.update, inputs, updated)

    def bind(self) -> None:
        """Bind the program to memory before the first call."""
        self._idle.append(self._borrow())

    def at(self, extents: tuple[int, ...]) -> Executable:
        """Return the program for values of its free extents, in the same memory.

        Args:
            extents: valid values.
        """
        other = copy(self)
        other._extents = extents
        return other

    def _on_memory(
        self, call: Callable[..., list[Array]], *arguments: Any
    ) -> list[Array]:
        bound = self._borrow()
        try:
            results = call(bound, *arguments)
        # the bound programs in the pool may hold the memory that the next call needs
        except MemoryError:
            bound.close()
            raise
        except BaseException:
            self._idle.append(bound)
            raise
        self._idle.append(bound)
        return results

    def _release(self) -> None:
        """Release the memory of completed calls."""
        self._idle.clear()

    def _borrow(self) -> BoundProgram:
        try:
            bound = self._idle.pop()
        except IndexError:  # other threads borrow all of them
            bound = BoundProgram(self.program)
        if self._extents:
            bound.set_extents(self._extents)
        return bound
