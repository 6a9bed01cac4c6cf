"""Whole models in files: `.keras`, folders with the same contents, and older `.h5`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from toolkit.compiler import distribution_context
from toolkit.console.frames import warn
from toolkit.console.tracebacks import without_frames
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.models.saving.archives import load_archive, save_archive
from toolkit.models.saving.folders import is_model_folder, load_folder, save_folder
from toolkit.models.saving.legacy_h5 import load_legacy, save_legacy
from toolkit.models.saving.other_folders import refuse_hugging_face
from toolkit.models.saving.other_formats import refuse_other_formats
from toolkit.models.saving.state import all_variables
from toolkit.models.saving.streams import file_for_stream, file_of_stream, is_stream
from toolkit.models.saving.weights import H5, check_free

if TYPE_CHECKING:
    from toolkit.models.model import Model


@without_frames
def save_model(
    model: Any,
    filepath: str | os.PathLike[str] | IO[bytes],
    overwrite: bool = True,
    zipped: bool | None = None,
    include_optimizer: bool = True,
    save_format: str | None = None,
) -> None:
    """Write a model with its config, weights and optimizer, atomically.

    After a failure, even a kill, either the older files or the new files are complete
    on disk. The files contain checksums, which loading verifies. In a job all processes
    call this, and one writes.

    Args:
        model: the model.
        filepath: the path: ".keras"; ".h5" or ".hdf5" for the older format; or, with
            zipped=False, a folder that is new, empty or contains an older model. Or a
            binary file object, such as `io.BytesIO`, which receives a `.keras` file for
            any value of `zipped`, or with `save_format="h5"` an `.h5` file.
        overwrite: whether an existing file can be replaced.
        zipped: whether to write one `.keras` file instead of a folder.
        include_optimizer: whether to write the state of the optimizer, too. An ".h5"
            file then has no compile arguments either.
        save_format: "keras", "keras_v3" or "h5", the format of a file object. The
            ending of a path determines its format.

    Raises:
        ArgumentError: for another ending, or if the file exists and must not be
            replaced.

    Example:
        >>> import tempfile, toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     toolkit.saving.save_model(model, f"{folder}/model.keras")
        ...     toolkit.saving.load_model(f"{folder}/model.keras").output_shape
        (None, 2)
    """
    formats = ("keras", "keras_v3", "h5")
    if save_format not in (None, *formats):
        raise unknown_choice("save_model: save_format", save_format, formats)
    if is_stream(filepath):
        _warn_unbuilt(model)
        write = partial(_save_to_stream, model, filepath, save_format == "h5")
        distribution_context.on_chief(
            partial(write, include_optimizer), all_variables(model)
        )
        return
    path = _checked_path(filepath, zipped)
    _warn_unbuilt(model)

    def write_file() -> None:
        check_free(path, overwrite, "save_model")
        if path.name.endswith(H5):
            save_legacy(model, path, include_optimizer)
        elif zipped is False:
            save_folder(model, path, include_optimizer)
        else:
            save_archive(model, path, include_optimizer)

    distribution_context.on_chief(write_file, all_variables(model))


def _save_to_stream(
    model: Model, stream: Any, is_legacy: bool, include_optimizer: bool
) -> None:
    """Write a model to a file object."""
    with file_for_stream(stream, "model") as path:
        if is_legacy:
            save_legacy(model, path, include_optimizer)
        else:
            save_archive(model, path, include_optimizer)


def _checked_path(filepath: Any, zipped: bool | None) -> Path:
    """Return the path of a model to save; raise if its ending contradicts `zipped`."""
    path = Path(filepath)
    if str(filepath).startswith("hf://"):
        raise ArgumentError(
            "save_model: uploads of models are unsupported; save to a folder with "
            "zipped=False, then call `huggingface_hub.upload_folder("
            f"repo_id={str(filepath).removeprefix('hf://')!r}, folder_path=folder)`"
        )
    legacy = path.name.endswith(H5)
    if zipped is False:
        if path.name.endswith(".keras") or legacy:
            raise ArgumentError(
                "save_model: with zipped=False the path names a folder and must not "
                f"end in .keras or .h5; received {str(path)!r}"
            )
    elif not path.name.endswith(".keras") and not legacy:
        raise ArgumentError(
            "save_model: Invalid filepath extension for saving: expected one that ends "
            f"in .keras or .h5; received {str(path)!r}"
        )
    return path


def _warn_unbuilt(model: Model) -> None:
    if not model.built:
        warn(
            f"save_model: the model {model.name!r} has no weights yet; build it or "
            "call it on data first"
        )


@without_frames
def load_model(
    filepath: str | os.PathLike[str] | IO[bytes],
    custom_objects: Any = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Model:
    """Load a model of `save_model`, of this package or of Keras.

    The file cannot run code, reference other files, or allocate more memory than its
    weights need.

    Args:
        filepath: a `.keras` or `.h5` file, or a folder; or a binary file object with
            the contents of such a file.
        custom_objects: name -> class or function for names in the file. The function of
            a `Lambda` layer has the layer's name.
        compile: whether to compile the model with its saved arguments.
        safe_mode: as in Keras, but False allows no more than True: code in a file
            never runs.

    Returns:
        The model, with its weights; compiled if it was compiled and `compile` is True.

    Raises:
        ModelFileError: if the file is corrupt, suspicious, or does not fit.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> path = Path(tempfile.mkdtemp()) / "model.keras"
        >>> model.save(path)
        >>> toolkit.models.load_model(path).output_shape
        (None, 2)
    """
    if is_stream(filepath):
        with file_of_stream(filepath) as path:
            return _load_path(path, custom_objects, compile)
    return _load_path(filepath, custom_objects, compile)


def _load_path(filepath: Any, custom_objects: Any, compile: bool) -> Model:
    """Load a model from a file or folder of any format."""
    path = Path(filepath)
    # its config has the same file name as Keras's
    refuse_hugging_face("load_model", path)
    if is_model_folder(path):
        return load_folder(path, custom_objects, compile)
    refuse_other_formats("load_model", filepath)
    if path.name.endswith(".keras"):
        return load_archive(path, custom_objects, compile)
    if path.name.endswith(H5):
        return load_legacy(path, custom_objects, compile)
    raise ArgumentError(
        "load_model: File format not supported: expected a .keras or .h5 file, or the "
        f"folder of a saved model; received {str(path)!r}"
    )
