"""Keys for elements of data sets that are made side by side.

Threads and processes come to elements in any order. So generators do not go on from one
element to the next there: what an element draws follows from the state that a generator
has when it is first asked in a pass, and from the number of the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Overlay
from toolkit.core.variable import Variable

# The name of the Variables that generators have, in copies of them too.
STATE_NAME = "seed_generator_state"


class Elements:
    """The elements that a stage makes in one pass, each with keys of its own.

    Args:
        words: what tells the pass from others: integers, 0 or more.
    """

    def __init__(self, words: Sequence[int]) -> None:
        self._words = [*words]
        self._begins: dict[Variable, list[int]] = {}  # what generators began with
        self._lock = RLock()

    def draws(self) -> ElementScope:
        """What a thread needs for its elements."""
        return ElementScope(self)

    def state_of(self, variable: Variable, number: int) -> Tensor:
        """The first state of a generator for an element."""
        with self._lock:
            begin = self._begins.get(variable)
            if begin is None:
                begin = self._begins[variable] = variable.numpy().tolist()
                # Later passes begin with another one.
                variable.assign_add(np.array([0, 1], "uint32"))
        sequence = np.random.SeedSequence([*begin, *self._words, number])
        return convert(sequence.generate_state(2, np.uint32), "uint32")


class ElementScope(Overlay):
    """Gives generators of keys the states of an element; see `Elements`."""

    def __init__(self, elements: Elements) -> None:
        super().__init__()
        self._elements, self._number = elements, 0

    def of(self, number: int) -> ElementScope:
        """A context in which generators give the keys of an element."""
        self._number = number
        if self.writes:
            self.writes = {}
        return self

    def __enter__(self) -> None:
        self.parent = state.overlay
        state.overlay = self

    def __exit__(self, *exception: object) -> None:
        state.overlay = self.parent

    def read(self, variable: Variable) -> Tensor:
        if variable.name != STATE_NAME:
            return super().read(variable)
        if variable not in self.writes:
            with state.inside(overlay=self.parent):
                found = self._elements.state_of(variable, self._number)
            self.writes[variable] = found
        return self.writes[variable]

    def write(self, variable: Variable, tensor: Tensor) -> None:
        if variable.name == STATE_NAME:
            self.writes[variable] = tensor
            return
        with state.inside(overlay=self.parent):
            variable.assign(tensor)

    def keep(self, variable: Variable) -> None:
        """Let a generator that was made for the element be what it is elsewhere."""
        self.writes[variable] = super().read(variable)
