"""What follows from arrays that stay the same: made once, and shared by programs.

A packed weight is made when a program first runs with the array of that weight, and
again once the Variable has another one. Whoever gives a program an array as frozen does
not write to it any more, so which array it is tells what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, ref

from toolkit.backends.places import Places
from toolkit.compiler.program import Preparation, Program, Segment

Array = Any


class Prepared:
    """An array, and what it was made from, which others may let go of."""

    def __init__(self, array: Array, sources: Sequence[Array]) -> None:
        self.array = array
        self._sources = [ref(source) for source in sources]

    def is_of(self, sources: Sequence[Array]) -> bool:
        """Whether it was made from these arrays."""
        pairs = zip(self._sources, sources, strict=True)
        return all(known() is source for known, source in pairs)


_lock = Lock()
_made: WeakValueDictionary[Hashable, Prepared] = WeakValueDictionary()


def prepared(
    recipe: Hashable, sources: Sequence[Array], make: Callable[[], Array]
) -> Prepared:
    """What any program has made of these arrays by this recipe; else it is made now.

    Args:
        recipe: equal where equal sources give equal bytes.
        sources: the arrays that it is made from.
        make: returns a new array of it.
    """
    key = recipe, tuple(map(id, sources))
    with _lock:
        found = _made.get(key)
        if found is None or not found.is_of(sources):
            found = _made[key] = Prepared(make(), sources)
        return found


class PreparedOperands:
    """The operands of a bound program that are made before it runs.

    Args:
        program: that is bound.
        objects: where its generated code finds the arrays of a call.
    """

    def __init__(self, program: Program, objects: Any) -> None:
        self._backend = program.backend
        self._preparations = program.preparations
        self._objects = objects
        self._held: dict[int, Prepared] = {}  # by number
        self._bind: dict[int, Callable[[], Any]] = {}
        self._runners: dict[int, Any] = {}  # what they returned
        # The frozen inputs that they follow from, by number.
        self._known: list[tuple[int, Callable[[], Any]]] = []

    def bind(self, segment: Segment, places: Places) -> None:
        """Learn where the operands of a segment are."""
        for preparation in self._preparations:
            if preparation.node in segment.members:
                index = segment.members.index(preparation.node)
                bind = segment.code.bind_prepared
                self._bind[preparation.number] = partial(
                    bind, index, preparation.call, places, self._objects
                )

    def settle(self, inputs: Sequence[Array]) -> None:
        """Have all of them follow from the inputs of a call.

        Args:
            inputs: of the graph; the handles of the frozen ones are in their places.
        """
        for number, known in self._known:
            if known() is not inputs[number]:
                break
        else:
            if self._held:
                return
        self._known = []
        held: dict[int, Prepared] = {}
        given: dict[int, Array] = {}
        for preparation in self._preparations:
            sources = []
            for i in preparation.sources:  # inputs, or what is made from such
                if i not in held:
                    given[i] = inputs[i]
                sources.append(held[i].array if i in held else inputs[i])
            make = partial(self._make, preparation)
            found = prepared(preparation.recipe, sources, make)
            held[preparation.number] = found
            self._objects[preparation.number] = self._backend.handle(found.array)
        self._held = held
        self._known = [(i, ref(array)) for i, array in given.items()]

    def array(self, number: int) -> Array:
        """The bytes of an operand, by its number, as they were settled last."""
        return self._held[number].array

    def close(self) -> None:
        """Let go of all memory."""
        self._held, self._known = {}, []

    def _make(self, preparation: Preparation) -> Array:
        array = self._backend.aligned((preparation.nbytes,), "uint8")
        number = preparation.number
        self._objects[number] = self._backend.handle(array)
        if number not in self._runners:
            self._runners[number] = self._bind[number]()
        self._runners[number].run()
        return array
