"""ExportArchive: archives of several functions, which Keras writes for TensorFlow."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError


class ExportArchive:
    """Unsupported archive: a SavedModel contains TensorFlow graphs.

    Raises:
        UnsupportedError: always.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
        >>> model.save("model.keras")  # doctest: +SKIP
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            "ExportArchive: a SavedModel contains TensorFlow graphs, which are "
            "unsupported; use `Model.save` to write a file that Keras loads and "
            "exports"
        )
