"""Seeds: where the keys of random numbers come from."""

from __future__ import annotations

import random as python_random
from typing import Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.convert import convert
from toolkit.core.naming import auto_name, name_scope, root_scope
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable
from toolkit.data.randomness import set_elements
from toolkit.errors import ArgumentError
from toolkit.random.elements import STATE_NAME, Elements, ElementScope

set_elements(Elements)

# What each draw adds to the state of a generator: the number of keys given is second.
_ONE_MORE = np.array([0, 1], "uint32")


class SeedGenerator:
    """A source of keys: each call of `next` gives another one.

    Args:
        seed: an integer in [0, 2 ** 32); drawn from Python's `random` if None.
        name: made up if not given.

    Example:
        >>> import toolkit
        >>> seeds = toolkit.random.SeedGenerator(1)
        >>> seeds.next().numpy().tolist(), seeds.next().numpy().tolist()
        ([1, 0], [1, 1])
    """

    def __init__(self, seed: int | None = None, name: str | None = None) -> None:
        self.name: str = name or auto_name(type(self).__name__)
        self._initial_seed = seed
        words = [make_default_seed() if seed is None else _checked(seed), 0]
        with name_scope(self.name):
            self.state: Variable = Variable(
                lambda shape, dtype: convert(words, dtype),
                shape=(2,),
                dtype="uint32",
                trainable=False,
                name=STATE_NAME,
            )
        if isinstance(state.overlay, ElementScope):
            state.overlay.keep(self.state)

    def next(self, ordered: bool = True) -> Tensor:
        """A key that was not given before: (seed, number of keys given).

        Args:
            ordered: whether keys must come in a fixed order; they do in any case.
        """
        key = self.state.read()
        self.state.assign(key + convert(_ONE_MORE))
        return key

    def get_config(self) -> dict[str, Any]:
        """The arguments that make a generator like this one when it was new."""
        return {"seed": self._initial_seed, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """A generator from what `get_config` returned."""
        return cls(**config)


def as_generator(seed: int | SeedGenerator | None) -> SeedGenerator:
    """A generator that is given, or a new one from an integer or None."""
    return seed if isinstance(seed, SeedGenerator) else SeedGenerator(seed)


_global_generator: SeedGenerator | None = None


def global_state() -> list[int] | None:
    """The state of the generator that is used where `seed` is None, if there is one."""
    found = _global_generator
    return None if found is None else found.state.numpy().tolist()


def set_global_state(state: list[int] | None) -> None:
    """Go on where `global_state` was asked for, in another process perhaps."""
    global _global_generator
    if state is None:
        _global_generator = None
    elif state != global_state():
        global_seed_generator().state.assign(state)


def global_seed_generator() -> SeedGenerator:
    """The generator that is used where `seed` is None."""
    global _global_generator
    if _global_generator is None:
        # It may be asked for in any trace, and belongs to none of them.
        with no_trace(), root_scope():
            _global_generator = SeedGenerator(name="global_seed_generator")
    return _global_generator


def set_random_seed(seed: int) -> None:
    """Make all that is drawn from now on repeatable.

    Seeds Python's `random`, NumPy's legacy generator, and the global generator of
    toolkit.

    Args:
        seed: an integer in [0, 2 ** 32).

    Example:
        >>> import toolkit
        >>> toolkit.random.set_random_seed(0)
        >>> x = toolkit.random.normal((3,))
        >>> toolkit.random.set_random_seed(0)
        >>> bool(toolkit.ops.all(x == toolkit.random.normal((3,))))
        True
    """
    seed = _checked(seed)
    python_random.seed(seed)
    np.random.seed(seed)
    forget_global_seed()


def forget_global_seed() -> None:
    """Have the next draw without a seed make a new global generator."""
    global _global_generator
    _global_generator = None


def make_default_seed() -> int:
    """A seed from Python's `random`."""
    return python_random.randint(1, 10**9)


def _checked(seed: Any) -> int:
    if not is_int(seed) or not 0 <= seed < 2**32:
        raise ArgumentError(
            "Expected `seed` argument to be an integer in [0, 2 ** 32); received "
            f"{seed!r}"
        )
    return int(seed)


def draw_seed(seed: Any) -> Tensor:
    """The key for one draw: uint32 of shape (2,).

    Args:
        seed: an integer, a SeedGenerator, None for the global generator, or a key that
            was drawn before, to draw the same again.
    """
    if seed is None:
        return global_seed_generator().next(ordered=False)
    if isinstance(seed, Tensor) and seed.dtype == "uint32" and seed.shape == (2,):
        return seed
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if is_int(seed):
        return convert([_checked(seed), 0], "uint32")
    raise ArgumentError(
        f"seed: expected an integer, a SeedGenerator or None; received {seed!r}"
    )
