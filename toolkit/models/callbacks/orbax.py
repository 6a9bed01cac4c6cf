"""OrbaxCheckpoint: an unsupported callback of Keras for files of another framework."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError


class OrbaxCheckpoint:
    """Unavailable callback: Orbax writes the arrays of JAX; see `ModelCheckpoint`.

    Raises:
        UnsupportedError: always.

    Example:
        >>> from toolkit.callbacks import ModelCheckpoint, BackupAndRestore
        >>> callbacks = [ModelCheckpoint("best.keras"), BackupAndRestore("backup")]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            "OrbaxCheckpoint: Orbax files contain JAX arrays; use ModelCheckpoint to "
            "save models, and BackupAndRestore to resume training"
        )
