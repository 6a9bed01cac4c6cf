"""`tf.saved_model`: a model in a folder, in the format of toolkit."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

from toolkit.compat.tensorflow.arguments import refuse
from toolkit.errors import ArgumentTypeError, MissingFileError
from toolkit.models import Model
from toolkit.saving import load_model


def save(
    obj: Any,
    export_dir: str | PathLike[str],
    signatures: Any = None,
    options: Any = None,
) -> None:
    """Save a Keras model as a folder for `load` and `tf.keras.models`.

    Args:
        obj: a model; other objects raise an error.
        export_dir: the folder.
        signatures, options: only None.
    """
    refuse("saved_model.save", signatures=(signatures, None), options=(options, None))
    if not isinstance(obj, Model):
        raise ArgumentTypeError(
            "saved_model.save: expected a Keras model, whose configuration can be "
            f"saved; received {type(obj).__name__}: save its Variables with "
            "tf.train.Checkpoint"
        )
    obj.save(os.fspath(export_dir), zipped=False)


def load(export_dir: str | PathLike[str], tags: Any = None, options: Any = None) -> Any:
    """Load a model from a folder of `save`.

    Args:
        export_dir: the folder.
        tags, options: only None.
    """
    refuse("saved_model.load", tags=(tags, None), options=(options, None))
    if not os.path.exists(export_dir):
        raise MissingFileError(
            f"saved_model.load: {os.fspath(export_dir)} does not exist"
        )
    return load_model(os.fspath(export_dir))
