"""Random numbers from explicit keys, with the names and signatures of `keras.random`.

Every function takes `seed`: an integer gives the same numbers at each call, a
SeedGenerator gives new ones, and None gives new ones from the global generator, which
`set_random_seed` makes repeatable. The same key gives the same bits, traced or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.definitions.namespaces import lazy_namespace
from toolkit.random.draws import (
    categorical,
    dropout,
    normal,
    randint,
    shuffle,
    truncated_normal,
    uniform,
)
from toolkit.random.seeds import (
    SeedGenerator,
    global_seed_generator,
    make_default_seed,
    set_random_seed,
)

if TYPE_CHECKING:
    from toolkit.random.rejection import beta, binomial, gamma, poisson

__all__ = [
    "SeedGenerator",
    "beta",
    "binomial",
    "categorical",
    "dropout",
    "gamma",
    "global_seed_generator",
    "make_default_seed",
    "normal",
    "poisson",
    "randint",
    "set_random_seed",
    "shuffle",
    "truncated_normal",
    "uniform",
]

# These use loops, so control flow is imported on first use.
__getattr__, __dir__ = lazy_namespace(
    __name__, {"toolkit.random.rejection": ["beta", "binomial", "gamma", "poisson"]}
)
