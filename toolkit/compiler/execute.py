"""Running programs: each call borrows a bound program that no other call uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.backends.base import Backend
from toolkit.compiler.bound import BoundProgram
from toolkit.compiler.program import Program

Array = Any


class Executable:
    """A program that can be called, from several threads at once.

    Args:
        program: what to run.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.backend: Backend = program.backend
        self._idle: list[BoundProgram] = []
        self._is_code = program.code is not None
        self.backend.on_shortage(self._release)

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run.

        Args:
            inputs: one array for each input of the graph; never modified.
            outs: for each output an array to write it to, or None for a new one.

        Returns:
            One array for each output.
        """
        if self._is_code:  # machine code warns of nothing
            return self.run(inputs, outs)
        with self.backend.errstate():
            return self.run(inputs, outs)

    def run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Like a call, for callers that have silenced warnings already."""
        return self._on_memory(BoundProgram.run, inputs, outs)

    def update(self, inputs: Sequence[Array], kept: Sequence[Array]) -> list[Array]:
        """Run in place, for a program that may: see `BoundProgram.update`."""
        if self._is_code:
            return self._update(inputs, kept)
        with self.backend.errstate():
            return self._update(inputs, kept)

    def _update(self, inputs: Sequence[Array], kept: Sequence[Array]) -> list[Array]:
        return self._on_memory(BoundProgram.update, inputs, kept)

    def _on_memory(
        self, call: Callable[..., list[Array]], *arguments: Any
    ) -> list[Array]:
        bound = self._borrow()
        try:
            found = call(bound, *arguments)
        except MemoryError:  # what it holds may be what the next call lacks
            bound.close()
            raise
        except BaseException:
            self._idle.append(bound)
            raise
        self._idle.append(bound)
        return found

    def _release(self) -> None:
        """Let go of the memory of calls that are over."""
        self._idle.clear()

    def _borrow(self) -> BoundProgram:
        try:
            return self._idle.pop()
        except IndexError:  # all are lent to other threads
            return BoundProgram(self.program)
