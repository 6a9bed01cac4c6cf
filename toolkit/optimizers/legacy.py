"""Names of Keras 2, whose errors name the replacement."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError


class LegacyOptimizer:
    """Unavailable optimizers of Keras 2; Keras 3 has removed them, too.

    Raises:
        UnsupportedError: always.

    Example:
        >>> import toolkit
        >>> try:
        ...     toolkit.optimizers.legacy.Adam()
        ... except toolkit.errors.UnsupportedError:
        ...     print("use toolkit.optimizers.Adam")
        use toolkit.optimizers.Adam
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            "optimizers.legacy is not supported; use the optimizer of the same name in "
            "toolkit.optimizers"
        )


Adagrad = Adam = Ftrl = RMSprop = SGD = Optimizer = LegacyOptimizer
