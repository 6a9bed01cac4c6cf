"""Test whether functions draw random numbers."""

from __future__ import annotations

import inspect
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import numpy as np

from toolkit.core.trace import StatelessScope
from toolkit.random.seeds import global_state, set_global_state


class Factory(Protocol):
    """An object that functions create.

    Attributes:
        functions: the functions, possibly none.
    """

    @property
    def functions(self) -> Sequence[Callable[..., Any]]: ...

    def make(self) -> Any:
        """Create the object."""


def draws_random_numbers(factory: Factory) -> bool:
    """Return whether functions draw random numbers, or change Variables.

    They draw if they change the generator of Python, NumPy or toolkit, the generator of
    a layer, or a NumPy or Python generator that a function references by name. They are
    called once. All generators and Variables are restored afterwards; errors are
    ignored.
    """
    if not factory.functions:
        return False
    states = [
        _GeneratorState(*accessors) for accessors in _generators(factory.functions)
    ]
    outer_state = global_state()
    with StatelessScope() as scope, suppress(Exception):
        factory.make()
    has_drawn = [state.restore() for state in states]
    set_global_state(outer_state)
    return any(has_drawn) or bool(scope.writes)


class _GeneratorState:
    """Saved state of a generator."""

    def __init__(
        self, get: Callable[[], Any], set_state: Callable[[Any], object]
    ) -> None:
        self._get, self._set = get, set_state
        self._state = get()

    def restore(self) -> bool:
        """Restore the state; return whether it had changed."""
        if pickle.dumps(self._get()) == pickle.dumps(self._state):
            return False
        self._set(self._state)
        return True


def _generators(
    functions: Sequence[Callable[..., Any]],
) -> Iterator[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Yield the getter and the setter of each generator's state."""
    yield random.getstate, random.setstate
    yield lambda: np.random.get_state(legacy=False), np.random.set_state
    for generator in {id(x): x for f in functions for x in _outer_values(f)}.values():
        if isinstance(generator, random.Random):
            yield generator.getstate, generator.setstate
        elif isinstance(generator, np.random.RandomState):
            yield generator.get_state, generator.set_state
        elif isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            yield partial(getattr, bits, "state"), partial(setattr, bits, "state")


def _outer_values(function: Callable[..., Any]) -> Sequence[Any]:
    """Return the values of the outer names that a function uses."""
    try:
        names = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:  # it is not a Python function
        return ()
    return [*names.nonlocals.values(), *names.globals.values()]
