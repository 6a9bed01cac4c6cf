"""Names that Keras 2 had here; they say what to use instead."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError


class LegacyOptimizer:
    """Not available: the optimizers of Keras 2 are gone, as in Keras 3.

    Raises:
        UnsupportedError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            "optimizers.legacy is not supported; use the optimizer of the same name in "
            "toolkit.optimizers"
        )


Adagrad = Adam = Ftrl = RMSprop = SGD = Optimizer = LegacyOptimizer
