"""Import of the package ray, with an error that names its installation."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError
from toolkit.release import install_command


def import_ray_train(caller: str) -> Any:
    """Return the module `ray.train`.

    Args:
        caller: the public name that needs it, for messages.

    Raises:
        UnsupportedError: it is not installed, or its current API is switched off.
    """
    try:
        from ray import train
        from ray.train.v2.api import data_parallel_trainer
    except ImportError as error:
        raise UnsupportedError(
            f"{caller}: expected the package ray with Ray Train, version 2.60 or "
            f"newer; {error}. Install it: {install_command('ray')}"
        ) from error
    assert data_parallel_trainer is not None
    if not hasattr(train, "CheckpointUploadMode"):
        raise UnsupportedError(
            f"{caller}: expected the current API of Ray Train; received "
            "RAY_TRAIN_V2_ENABLED=0. Remove this variable"
        )
    return train
