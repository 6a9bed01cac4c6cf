"""`tf.train.Checkpoint`: files with the Variables of objects, by the objects' names."""

from __future__ import annotations

import json
import logging
import os
import weakref
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.compat.tensorflow import pending_restores
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.object_graph import (
    STATE,
    VALUE,
    children,
    identity_key,
    is_trackable,
    named_leaves,
)
from toolkit.compat.tensorflow.types import as_dtype
from toolkit.compat.tensorflow.v1.saver import (
    SUFFIX,
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint as latest_checkpoint,
)
from toolkit.compat.tensorflow.variables import Variable
from toolkit.console.frames import warn
from toolkit.errors import ArgumentTypeError, MissingFileError, ModelFileError
from toolkit.reading.hdf5 import open_datasets

# The key of the file for the alternative names of its values.
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_COUNTER = f"save_counter/{VALUE}"


class UnmatchedError(ModelFileError, AssertionError):
    """Error of a checkpoint that did not restore all values."""


class _Values:
    """Session substitute of a Saver: evaluates arrays and Variables."""

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: np.asarray(v) for name, v in values.items()}


class CheckpointReader:
    """The values of a checkpoint, by their names.

    Args:
        path: the result of `Checkpoint.save`, or a folder of checkpoints.

    Raises:
        MissingFileError: the file does not exist.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        name = os.fspath(path)
        if not checkpoint_exists(name) and Path(name).is_dir():
            name = latest_checkpoint(name) or name
        if not checkpoint_exists(name):
            raise MissingFileError(f"load_checkpoint: checkpoint {name} does not exist")
        self._values: dict[str, Any] = {}
        with open_datasets(Path(name + SUFFIX)) as datasets:
            for dataset in datasets.values():
                self._values[str(dataset.owner)] = dataset.read()

    def has_tensor(self, tensor_str: str) -> bool:
        """Return whether the checkpoint has a value with this name."""
        return tensor_str in self._values

    def get_tensor(self, tensor_str: str) -> Any:
        """Return the value of a name, as an array.

        Raises:
            ModelFileError: the name does not exist.
        """
        if tensor_str not in self._values:
            raise ModelFileError(f"Key {tensor_str} not found in checkpoint")
        return np.asarray(self._values[tensor_str])[()]

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shapes of all values by their names."""
        return {name: list(np.shape(self._values[name])) for name in self.names()}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Return the dtypes of all values by their names."""
        values = self._values
        return {name: as_dtype(np.asarray(values[name]).dtype) for name in self.names()}

    def names(self) -> list[str]:
        """Return the names of all values."""
        return [name for name in self._values if name != _GRAPH]

    def aliases(self) -> dict[str, str]:
        """Return alternative name -> name of the values."""
        if _GRAPH not in self._values:
            return {}
        text = np.asarray(self._values[_GRAPH], "uint8").tobytes()
        return {str(k): str(v) for k, v in json.loads(text).items()}


def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """Return a reader for a checkpoint, or for the latest one in a folder.

    Example:
        >>> import tempfile
        >>> import toolkit.compat.tensorflow as tf
        >>> checkpoint = tf.train.Checkpoint(v=tf.Variable(2.0))
        >>> path = checkpoint.save(tempfile.mkdtemp() + "/c")
        >>> reader = tf.train.load_checkpoint(path)
        >>> float(reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE"))
        2.0
    """
    return CheckpointReader(ckpt_dir_or_file)


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """Return the value of a name in a checkpoint."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Return (name, shape) of all values of a checkpoint, by name."""
    shapes = load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map()
    return sorted(shapes.items())


class _Status:
    """Status of a restore: the restored values, and the values of future objects.

    Args:
        checkpoint: the checkpoint whose objects receive the values; None without a
            file.
        reader: of the file.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, reader: CheckpointReader | None
    ) -> None:
        self._checkpoint, self._reader = checkpoint, reader
        self._matched: set[str] = set()
        self._objects: set[int] = set()
        self._report: weakref.finalize[Any, _Status] | None = None
        if reader is not None:
            names = reader.names()
            self._report = weakref.finalize(self, _log_unused, names, self._matched)
            self._names = {name: name for name in names} | reader.aliases()
            if not self.update():
                pending_restores.add(self)
            if not self._matched and not reader.has_tensor(_GRAPH):
                warn(
                    "Checkpoint: restored nothing: the file does not store its "
                    "values by attribute names. Another version or a Saver wrote it. "
                    f"It contains {', '.join(sorted(names)[:5])}"
                )

    def update(self) -> bool:
        """Restore the objects that now exist; return whether all values are used."""
        if self._checkpoint is None or self._reader is None:
            return True
        for key, (leaf, alternatives) in named_leaves(self._checkpoint).items():
            name = next((k for k in (key, *alternatives) if k in self._names), None)
            if name is not None and identity_key(leaf) not in self._objects:
                self._objects.add(identity_key(leaf))
                self._matched.add(self._names[name])
                _restore(leaf, self._reader.get_tensor(self._names[name]), name)
        return self._matched >= set(self._reader.names())

    def _unmatched_keys(self) -> list[str]:
        """Return the keys of existing Variables that the file does not have."""
        assert self._checkpoint is not None
        return [
            key
            for key, (leaf, _) in named_leaves(self._checkpoint).items()
            if identity_key(leaf) not in self._objects and not key.endswith(_COUNTER)
        ]

    def _check(self, unmatched: list[str], message: str) -> _Status:
        if self._reader is None:
            raise ModelFileError(
                "Checkpoint: expected a file whose values were restored; received None"
            )
        if unmatched:
            raise UnmatchedError(
                f"Checkpoint: {message}: {', '.join(sorted(unmatched)[:5])}"
            )
        return self

    def assert_consumed(self) -> _Status:
        """Raise unless every value of the file is restored, and every Variable has one.

        Raises:
            UnmatchedError: a value or a Variable remains; it is an AssertionError, too.
            ModelFileError: there was no file.
        """
        self.update()
        unused = (
            set() if self._reader is None else {*self._reader.names()} - self._matched
        )
        self._check(list(unused), "no object has names of values in the file")
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> _Status:
        """Raise unless all existing Variables have values from the file."""
        self.update()
        unmatched = [] if self._reader is None else self._unmatched_keys()
        return self._check(unmatched, "the file has no values of existing objects")

    def assert_nontrivial_match(self) -> _Status:
        """Raise unless a Variable other than the counter has a value from the file."""
        self.update()
        counter = {n for n in self._matched if n.startswith("save_counter/")}
        unmatched = [] if self._matched - counter else ["no object"]
        return self._check(unmatched, "no value was restored")

    def expect_partial(self) -> _Status:
        """Suppress the message about unused values."""
        if self._report is not None:
            self._report.detach()
        return self


def _log_unused(names: list[str], matched: set[str]) -> None:
    unused = sorted({*names} - matched)
    if unused:
        logging.getLogger("tensorflow").warning(
            "Checkpoint: the values of %s were not restored to an object; call "
            "expect_partial() if this is intended",
            ", ".join(unused[:5]),
        )


def _restore(leaf: Any, value: Any, name: str) -> None:
    if not isinstance(leaf, Variable):
        leaf.set_state(json.loads(np.asarray(value, "uint8").tobytes()))
        return
    if tuple(np.shape(value)) != tuple(leaf.shape):
        raise ModelFileError(
            f"Checkpoint: {name}: expected shape {tuple(leaf.shape)}; the file has "
            f"{tuple(np.shape(value))}"
        )
    leaf.assign(value)


class Checkpoint:
    """A group of objects whose Variables are saved to files and restored.

    The name of a value is the path of attributes to it. An object can be restored
    before its Variables exist: each one receives its value at its creation.

    Args:
        root: an object whose attributes have no prefix.
        **kwargs: Variables, models, layers, optimizers, metrics, modules, iterators of
            data sets, or lists and dicts of them, by the names to use in files.

    Example:
        >>> import tempfile
        >>> import toolkit.compat.tensorflow as tf
        >>> step = tf.Variable(1)
        >>> checkpoint = tf.train.Checkpoint(step=step)
        >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
        >>> _ = step.assign(5)
        >>> _ = checkpoint.restore(path)
        >>> int(step), path.endswith("ckpt-1")
        (1, True)
    """

    save_counter: Any

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        self._root = root
        for name, value in kwargs.items():
            if not is_trackable(value) and value not in ([], {}, ()):
                raise ArgumentTypeError(
                    f"Checkpoint: expected objects with Variables; received "
                    f"{name}={value!r:.80}"
                )
        self.__dict__.update(kwargs)
        self.save_counter = Variable(0, trainable=False, name="save_counter")

    def tracked_parts(self) -> dict[str, Any]:
        """Return the objects of the checkpoint by name."""
        attributes = {
            name: value for name, value in vars(self).items() if name[0] != "_"
        }
        root = {} if self._root is None else dict(children(self._root))
        return {**root, **attributes}

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        pending_restores.update()

    def _saver(self) -> Saver:
        values: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        for key, (leaf, alternatives) in named_leaves(self).items():
            is_iterator = key.endswith(STATE)
            values[key] = _encode_state(leaf.get_state()) if is_iterator else leaf
            aliases |= dict.fromkeys(alternatives, key)
        values[_GRAPH] = _encode_state(aliases)
        return Saver(values, max_to_keep=None)

    def write(self, file_prefix: str | PathLike[str], options: Any = None) -> str:
        """Write a file with this name; return the argument for `read`."""
        refuse("Checkpoint.write", options=(options, None))
        os.makedirs(Path(file_prefix).parent, exist_ok=True)
        return self._saver().save(_Values(), file_prefix, write_state=False)

    def save(self, file_prefix: str | PathLike[str], options: Any = None) -> str:
        """Write a file with this name and the next number, for `restore`."""
        refuse("Checkpoint.save", options=(options, None))
        os.makedirs(Path(file_prefix).parent, exist_ok=True)
        self.save_counter.assign_add(1)
        return self._saver().save(_Values(), file_prefix, int(self.save_counter))

    def read(self, save_path: str | PathLike[str], options: Any = None) -> _Status:
        """Restore the Variables from a file, future Variables at their creation.

        Raises:
            MissingFileError: the file does not exist.
            ModelFileError: a value has another shape.
        """
        refuse("Checkpoint.read", options=(options, None))
        return _Status(self, CheckpointReader(save_path))

    def restore(self, save_path: str | None, options: Any = None) -> _Status:
        """Restore as `read`; None, if no file exists yet, changes nothing."""
        refuse("Checkpoint.restore", options=(options, None))
        return _Status(None, None) if save_path is None else self.read(save_path)


def _encode_state(state: Any) -> Any:
    """Encode a state of numbers and strings as an array of bytes."""
    text = json.dumps(state, default=lambda x: np.asarray(x).tolist())
    return np.frombuffer(text.encode(), "uint8")


class CheckpointManager:
    """Manager that saves a Checkpoint repeatedly to a folder and keeps the last files.

    Args:
        checkpoint: the checkpoint to save.
        directory: the folder.
        max_to_keep: the number of files to keep; None for all.
        keep_checkpoint_every_n_hours: only None.
        checkpoint_name: of the files, before their number.
    """

    checkpoint: Checkpoint

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        refuse("CheckpointManager", every=(keep_checkpoint_every_n_hours, None))
        self.checkpoint = checkpoint
        self.directory: str = os.fspath(directory)
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._max_to_keep = max_to_keep
        state = get_checkpoint_state(self.directory)
        existing_paths = state.all_model_checkpoint_paths if state is not None else []
        self.checkpoints: list[str] = [
            path for path in existing_paths if checkpoint_exists(path)
        ]

    @property
    def latest_checkpoint(self) -> str | None:
        """Return the argument for `restore`; None before the first save."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(self, checkpoint_number: Any = None) -> str:
        """Write the next file; return its path."""
        if checkpoint_number is not None:
            self.checkpoint.save_counter.assign(int(checkpoint_number) - 1)
        path = self.checkpoint.save(self._prefix)
        self.checkpoints = [p for p in self.checkpoints if p != path] + [path]
        while self._max_to_keep and len(self.checkpoints) > self._max_to_keep:
            Path(self.checkpoints.pop(0) + SUFFIX).unlink(missing_ok=True)
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the latest file, if it exists; return its path."""
        self.checkpoint.restore(self.latest_checkpoint)
        return self.latest_checkpoint
