"""Values of a session's Variables in files, and the record of the latest file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.errors import ArgumentError, MissingFileError, ModelFileError
from toolkit.files.staging import replace_file
from toolkit.models.saving.h5_files import write_groups
from toolkit.reading.hdf5 import open_datasets

SUFFIX = ".ckpt.h5"
STATE = "checkpoint"


class CheckpointState:
    """The checkpoints of a folder: the latest one, and all existing ones."""

    def __init__(self, paths: list[str]) -> None:
        self.all_model_checkpoint_paths = paths
        self.model_checkpoint_path: str = paths[-1]


class Saver:
    """A saver that writes the values of Variables to HDF5 files, by name, and reads
    them.

    Args:
        var_list: a list of Variables, or a dict of Variables by their names in files;
            by default all global variables.
        max_to_keep: the number of files to keep; None or 0 for all.
        name: only stored.

    Example:
        >>> import tempfile, toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     v = tf.get_variable("v", initializer=2.0)
        ...     saver = tf.train.Saver()
        ...     session.run(v.initializer)
        ...     path = saver.save(session, tempfile.mkdtemp() + "/model", global_step=5)
        ...     _ = session.run(v.assign(0.0))
        ...     saver.restore(session, path)
        ...     path.endswith("model-5"), float(session.run(v))
        (True, 2.0)
    """

    name: str | None

    def __init__(
        self, var_list: Any = None, max_to_keep: int | None = 5, name: str | None = None
    ) -> None:
        if var_list is None:
            var_list = get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
        if not isinstance(var_list, Mapping):
            var_list = {v.path: v for v in var_list}
        if not var_list:
            raise ArgumentError("Saver: No variables to save")
        self._variables: dict[str, Any] = dict(var_list)
        self._max_to_keep, self.name = max_to_keep or 0, name
        self.last_checkpoints: list[str] = []

    def save(
        self,
        sess: Any,
        save_path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        write_state: bool = True,
    ) -> str:
        """Write a file atomically, and record it as the latest of its folder.

        Args:
            sess: the session with the values.
            save_path: the file without its suffix; its folder must exist.
            global_step: a number, or a tensor, to append to the name.
            latest_filename: of the record; "checkpoint" by default.
            write_state: whether to write the record.

        Returns:
            The path for `restore`.

        Raises:
            ModelFileError: if a file that is not a record has the record's name.
        """
        path = os.fspath(save_path)
        if global_step is not None:
            is_number = isinstance(global_step, (int, np.integer))
            path = f"{path}-{int(global_step if is_number else sess.run(global_step))}"
        if not Path(path).parent.is_dir():
            raise ArgumentError(
                f"Saver.save: the parent directory of {path!r} doesn't exist"
            )
        if write_state:  # do not overwrite a record of another program
            get_checkpoint_state(Path(path).parent, latest_filename)
        values = sess.run(self._variables)
        groups = {
            f"variables/{i}": (name, {"value": np.asarray(values[name])})
            for i, name in enumerate(self._variables)
        }
        replace_file(Path(path + SUFFIX), lambda file: write_groups(file, groups))
        existing_paths = [p for p in self.last_checkpoints if p != path]
        limit = self._max_to_keep or len(existing_paths) + 1
        older, self.last_checkpoints = (
            [*existing_paths, path][:-limit],
            [*existing_paths, path][-limit:],
        )
        if write_state:
            _write_state(Path(path).parent, self.last_checkpoints, latest_filename)
        for (
            old_path
        ) in older:  # after the record: it must never refer to a deleted file
            with suppress(OSError):
                os.remove(old_path + SUFFIX)
        return path

    def restore(self, sess: Any, save_path: str | os.PathLike[str]) -> None:
        """Restore the session's Variables from a file; they need no initializer.

        Raises:
            MissingFileError: if the file does not exist.
            ModelFileError: if it lacks a Variable, or has one of another shape.
        """
        path = os.fspath(save_path)
        if not checkpoint_exists(path):
            raise MissingFileError(f"The passed save_path is not a checkpoint: {path}")
        with open_datasets(Path(path + SUFFIX)) as datasets:
            datasets_by_name = {dataset.owner: dataset for dataset in datasets.values()}
            values = {}
            for name, v in self._variables.items():
                if name not in datasets_by_name:
                    raise ModelFileError(f"Key {name} not found in checkpoint {path}")
                shape = tuple(datasets_by_name[name].shape)
                if shape != tuple(v.shape):
                    raise ModelFileError(
                        f"{name}: expected shape {tuple(v.shape)} in checkpoint "
                        f"{path}; it has {shape}"
                    )
                values[v] = datasets_by_name[name].read()
        for v, value in values.items():
            sess.set_value(v, value)


def _write_state(folder: Path, paths: list[str], name: str | None) -> None:
    names = [os.path.basename(path) for path in paths]
    text = json.dumps({"all_model_checkpoint_paths": names}, indent=1)
    replace_file(folder / (name or STATE), lambda file: file.write_text(text, "utf-8"))


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Return whether `Saver.save` has written this path."""
    return os.path.isfile(os.fspath(checkpoint_prefix) + SUFFIX)


def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Return the checkpoints of a folder; None without a record.

    Raises:
        ModelFileError: if the record is corrupt.
    """
    folder = Path(checkpoint_dir)
    file = folder / (latest_filename or STATE)
    if not file.is_file():
        return None
    try:
        names = json.loads(file.read_text("utf-8"))["all_model_checkpoint_paths"]
        paths = [str(folder / os.path.basename(name)) for name in names]
        return CheckpointState(paths)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelFileError(
            f"{str(file)!r}: expected a list of checkpoints: {error}"
        ) from error


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the path of the latest checkpoint in a folder, or None."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not checkpoint_exists(state.model_checkpoint_path):
        return None
    return state.model_checkpoint_path
