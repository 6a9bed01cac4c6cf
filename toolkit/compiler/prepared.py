"""Values of frozen arrays: computed once, and shared by programs.

A weight is packed when a program first runs with its array, and again when the Variable
has another array. The caller does not write to an array that it passes as frozen, so
the identity of the array determines its content.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, ref

from toolkit.compiler.program import Preparation, Program, Segment
from toolkit.plans.locations import OperandLocations

Array = Any


class Prepared:
    """An array, and references to its sources, which may be released."""

    def __init__(self, array: Array, sources: Sequence[Array]) -> None:
        self.array = array
        self._sources = [ref(source) for source in sources]

    def is_of(self, sources: Sequence[Array]) -> bool:
        """Return whether it was computed from these arrays."""
        pairs = zip(self._sources, sources, strict=True)
        return all(reference() is source for reference, source in pairs)


_lock = Lock()
_cache: WeakValueDictionary[Hashable, Prepared] = WeakValueDictionary()


def prepare(
    recipe: Hashable, sources: Sequence[Array], make: Callable[[], Array]
) -> Prepared:
    """Return the cached result of a recipe on these arrays, or compute it.

    Args:
        recipe: equal where equal sources give equal bytes.
        sources: the source arrays.
        make: computes a new array.
    """
    key = recipe, tuple(map(id, sources))
    with _lock:
        cached = _cache.get(key)
        if cached is None or not cached.is_of(sources):
            cached = _cache[key] = Prepared(make(), sources)
        return cached


class PreparedOperands:
    """Operands of a bound program that are computed before it runs.

    Args:
        program: the bound program.
        objects: the table in which generated code finds the arrays of a call.
    """

    def __init__(self, program: Program, objects: Any) -> None:
        self._memory = program.backend.memory
        self._handle = program.backend.generator.handle
        self._preparations = program.preparations
        self._objects = objects
        self._prepared: dict[int, Prepared] = {}  # by number
        self._bind: dict[int, Callable[[], Any]] = {}
        self._runners: dict[int, Any] = {}  # their return values
        # The frozen inputs that they depend on, by number.
        self._sources: list[tuple[int, Callable[[], Any]]] = []

    def bind(self, segment: Segment, locations: OperandLocations) -> None:
        """Record the addresses of the operands of a segment."""
        for preparation in self._preparations:
            if preparation.node in segment.members:
                index = segment.members.index(preparation.node)
                bind = segment.code.bind_prepared
                self._bind[preparation.number] = partial(
                    bind, index, preparation.call, locations, self._objects
                )

    def settle(self, inputs: Sequence[Array]) -> None:
        """Compute all operands from the inputs of a call.

        Args:
            inputs: inputs of the graph; frozen inputs are represented by their handles.
        """
        for number, reference in self._sources:
            if reference() is not inputs[number]:
                break
        else:
            if self._prepared:
                return
        self._sources = []
        settled: dict[int, Prepared] = {}
        arrays: dict[int, Array] = {}
        for preparation in self._preparations:
            sources = []
            for i in preparation.sources:  # inputs, or values computed from them
                if i not in settled:
                    arrays[i] = inputs[i]
                sources.append(settled[i].array if i in settled else inputs[i])
            make = partial(self._make, preparation)
            value = prepare(preparation.recipe, sources, make)
            settled[preparation.number] = value
            self._objects[preparation.number] = self._handle(value.array)
        self._prepared = settled
        self._sources = [(i, ref(array)) for i, array in arrays.items()]

    def array(self, number: int) -> Array:
        """Return the bytes of the last computed operand with this number."""
        return self._prepared[number].array

    def close(self) -> None:
        """Release all memory."""
        self._prepared, self._sources = {}, []

    def _make(self, preparation: Preparation) -> Array:
        array = self._memory.allocate_aligned((preparation.nbytes,), "uint8")
        number = preparation.number
        self._objects[number] = self._handle(array)
        if number not in self._runners:
            self._runners[number] = self._bind[number]()
        self._runners[number].run()
        return array
