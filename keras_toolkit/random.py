"""The functions of `keras.random`: toolkit draws by the keys of Keras's generators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from keras.src.backend.config import floatx
from keras.src.random.seed_generator import (
    SeedGenerator as SeedGenerator,
    draw_seed as draw_seed,
    make_default_seed as make_default_seed,
)

from toolkit import random


def _seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of toolkit, with a seed of Keras."""

    @wraps(function)
    def wrapper(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("dtype", "") is None:
            kwargs["dtype"] = floatx()
        return function(*args, seed=draw_seed(seed), **kwargs)

    return wrapper


beta = _seeded(random.beta)
binomial = _seeded(random.binomial)
categorical = _seeded(random.categorical)
dropout = _seeded(random.dropout)
gamma = _seeded(random.gamma)
normal = _seeded(random.normal)
randint = _seeded(random.randint)
shuffle = _seeded(random.shuffle)
truncated_normal = _seeded(random.truncated_normal)
uniform = _seeded(random.uniform)
