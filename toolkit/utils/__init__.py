"""Helpers around models: files from the network, labels, seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.utils.files import get_file
from toolkit.utils.numerical import normalize, to_categorical

if TYPE_CHECKING:
    from toolkit.random import set_random_seed

__all__ = ["get_file", "normalize", "set_random_seed", "to_categorical"]


def __getattr__(name: str) -> Any:
    """Load `set_random_seed` on first use: data sets need none of the core."""
    if name == "set_random_seed":
        from toolkit.random import set_random_seed

        return set_random_seed
    raise AttributeError(f"module 'toolkit.utils' has no attribute {name!r}")
