"""Keys for elements of data sets that are computed in parallel.

Threads and processes compute elements in any order. So a generator does not advance
from one element to the next. The draws of an element depend on the state of the
generator at its first use in the pass, and on the index of the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Overlay
from toolkit.core.variable import Variable

# The name of the Variables of generators, also in copies.
STATE_NAME = "seed_generator_state"


class Elements:
    """Elements of one pass of a stage, each with separate keys.

    Args:
        words: integers >= 0 that distinguish the pass from all other passes.
    """

    def __init__(self, words: Sequence[int]) -> None:
        self._words = [*words]
        self._initial_states: dict[Variable, list[int]] = {}  # by generator
        self._lock = RLock()

    def draws(self) -> ElementScope:
        """Return the scope in which a thread computes its elements."""
        return ElementScope(self)

    def state_of(self, variable: Variable, number: int) -> Tensor:
        """Return the initial state of a generator for an element."""
        with self._lock:
            initial_state = self._initial_states.get(variable)
            if initial_state is None:
                initial_state = self._initial_states[variable] = (
                    variable.numpy().tolist()
                )
                # Later passes start from another state.
                variable.assign_add(np.array([0, 1], "uint32"))
        sequence = np.random.SeedSequence([*initial_state, *self._words, number])
        return convert(sequence.generate_state(2, np.uint32), "uint32")


class ElementScope(Overlay):
    """Scope in which generators have the states of an element; see `Elements`."""

    def __init__(self, elements: Elements) -> None:
        super().__init__()
        self._elements, self._number = elements, 0

    def of(self, number: int) -> ElementScope:
        """Return the scope, set to an element."""
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
            with state.override(overlay=self.parent):
                value = self._elements.state_of(variable, self._number)
            self.writes[variable] = value
        return self.writes[variable]

    def write(self, variable: Variable, tensor: Tensor) -> None:
        if variable.name == STATE_NAME:
            self.writes[variable] = tensor
            return
        with state.override(overlay=self.parent):
            variable.assign(tensor)

    def keep_outer_state(self, variable: Variable) -> None:
        """Keep the outer state of a generator that was created for the element."""
        self.writes[variable] = super().read(variable)
