"""Seeds: the sources of keys of random numbers."""

from __future__ import annotations

import random as python_random
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.call_arguments import PendingKey
from toolkit.core.convert import convert
from toolkit.core.naming import auto_name, name_scope, root_scope
from toolkit.core.operation_replays import call_operation
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable
from toolkit.data.randomness import set_draws_factory
from toolkit.errors import ArgumentError
from toolkit.random.elements import STATE_NAME, Elements, ElementScope
from toolkit.type_aliases import SeedLike

set_draws_factory(Elements)


@cache
def _state_increment() -> Tensor:
    """Return the increment of a generator's state for each draw."""
    return Tensor(np.array([0, 1], "uint32"))  # the second number counts the keys


class SeedGenerator:
    """A source of keys: each call of `next` returns a new one.

    Args:
        seed: an integer in [0, 2 ** 32); drawn from Python's `random` if None.
        name: generated if not given.

    Example:
        >>> import toolkit
        >>> seeds = toolkit.random.SeedGenerator(1)
        >>> seeds.next().numpy().tolist(), seeds.next().numpy().tolist()
        ([1, 0], [1, 1])
    """

    def __init__(self, seed: int | None = None, name: str | None = None) -> None:
        self.name: str = name or auto_name(type(self).__name__)
        self._initial_seed = seed
        initial_state = [make_default_seed() if seed is None else _check_seed(seed), 0]
        with name_scope(self.name):
            self.state: Variable = Variable(
                lambda shape, dtype: convert(initial_state, dtype),
                shape=(2,),
                dtype="uint32",
                trainable=False,
                name=STATE_NAME,
            )
        if isinstance(state.overlay, ElementScope):
            state.overlay.keep_outer_state(self.state)

    def __repr__(self) -> str:
        return f"<SeedGenerator name={self.name}, seed={self._initial_seed}>"

    def next(self, ordered: bool = True) -> Tensor:
        """Return a new key: (seed, number of earlier keys).

        Args:
            ordered: has no effect: keys always have a fixed order.
        """
        key, increment = self.state.read(), _state_increment()
        if type(key) is Tensor and type(key._array) is np.ndarray and not state.marks:
            following = Tensor(np.add(key._array, increment._array), key.spec)
        else:
            following = key + increment
        self.state.assign(following)
        return key

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create a generator in its initial state."""
        return {"seed": self._initial_seed, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        """Create a generator from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The generator.
        """
        return cls(**config)


def as_generator(seed: int | SeedGenerator | None) -> SeedGenerator:
    """Return a given generator, or create one from an integer or None."""
    return seed if isinstance(seed, SeedGenerator) else SeedGenerator(seed)


_global_generator: SeedGenerator | None = None


def global_state() -> list[int] | None:
    """Return the state of the generator for `seed=None`, if it exists."""
    generator = _global_generator
    return None if generator is None else generator.state.numpy().tolist()


def set_global_state(state: list[int] | None) -> None:
    """Restore a state from `global_state`, for example in another process."""
    global _global_generator
    if state is None:
        _global_generator = None
    elif state != global_state():
        global_seed_generator().state.assign(state)


def global_seed_generator() -> SeedGenerator:
    """Return the generator that functions use for the seed None.

    Returns:
        The global `SeedGenerator`; each call returns the same object.

    Example:
        >>> from toolkit import random
        >>> seeds = random.global_seed_generator()
        >>> seeds is random.global_seed_generator()
        True
    """
    global _global_generator
    if _global_generator is None:
        # Any trace may use it first, and it belongs to no trace.
        with no_trace(), root_scope():
            _global_generator = SeedGenerator(name="global_seed_generator")
    return _global_generator


def set_random_seed(seed: int) -> None:
    """Make all later draws repeatable.

    It sets the seeds of Python's `random`, of NumPy's legacy generator, and of the
    global generator of toolkit.

    Args:
        seed: an integer in [0, 2 ** 32).

    Example:
        >>> from toolkit import ops, random
        >>> random.set_random_seed(0)
        >>> x = random.normal((3,))
        >>> random.set_random_seed(0)
        >>> bool(ops.all(x == random.normal((3,))))
        True
    """
    seed = _check_seed(seed)
    python_random.seed(seed)
    np.random.seed(seed)
    reset_global_seed()


def reset_global_seed() -> None:
    """Drop the global generator; the next draw without a seed creates a new one."""
    global _global_generator
    _global_generator = None


def make_default_seed() -> int:
    """Draw a seed from Python's `random`.

    Returns:
        An integer in [1, 10 ** 9].

    Example:
        >>> from toolkit import random
        >>> 1 <= random.make_default_seed() <= 10**9
        True
    """
    return python_random.randint(1, 10**9)


def _check_seed(seed: SeedLike) -> int:
    if not is_int(seed) or not 0 <= seed < 2**32:
        raise ArgumentError(
            "Expected `seed` argument to be an integer in [0, 2 ** 32); received "
            f"{seed!r}"
        )
    return int(seed)


def draw_seed(seed: Any) -> Tensor:
    """Return the key for one draw: uint32 of shape (2,).

    Args:
        seed: an integer, a SeedGenerator, None for the global generator, or a key from
            an earlier draw, to repeat that draw.
    """
    if seed is None:
        return global_seed_generator().next(ordered=False)
    if isinstance(seed, Tensor) and seed.dtype == "uint32" and seed.shape == (2,):
        return seed
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if type(seed) is PendingKey:
        return seed.draw()
    if is_int(seed):
        return convert([_check_seed(seed), 0], "uint32")
    raise ArgumentError(
        f"seed: expected an integer, a SeedGenerator or None; received {seed!r}"
    )


P = ParamSpec("P")
T = TypeVar("T")


def drawing(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function with an argument `seed` repeat earlier calls with new keys.

    Args:
        function: a function of this package that draws with `draw_seed`.

    Returns:
        The function with replays.
    """

    call: Callable[..., T] = function
    seed_index = function.__code__.co_varnames.index("seed")

    @wraps(function)
    def wrapper(*args: object, **kwargs: object) -> T:
        if state.trace is None and not state.marks and state.overlay is None:
            if len(args) == seed_index + 1:
                args, kwargs["seed"] = args[:-1], args[-1]
            seed = kwargs.get("seed")
            replayed: dict[str, object] = dict(kwargs)
            pending = PendingKey(draw_seed, seed)
            if seed is None or type(seed) is SeedGenerator:
                replayed["seed"] = pending
            outputs = call_operation(function, args, replayed)
            if outputs is not None:
                return cast(T, outputs)
            if pending.drawn:  # the call failed after its draw: repeat it with this key
                kwargs["seed"] = pending.drawn[0]
        return call(*args, **kwargs)

    vars(wrapper)["draws"] = True
    return wrapper
