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


def with_seed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of toolkit, with a seed of Keras."""

    @wraps(function)
    def wrapper(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("dtype", "") is None:
            kwargs["dtype"] = floatx()
        return function(*args, seed=draw_seed(seed), **kwargs)

    return wrapper


beta = with_seed(random.beta)
binomial = with_seed(random.binomial)
categorical = with_seed(random.categorical)
dropout = with_seed(random.dropout)
gamma = with_seed(random.gamma)
normal = with_seed(random.normal)
randint = with_seed(random.randint)
shuffle = with_seed(random.shuffle)
truncated_normal = with_seed(random.truncated_normal)
uniform = with_seed(random.uniform)
