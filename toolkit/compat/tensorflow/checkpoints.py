"""`tf.train.Checkpoint`: the Variables of objects in files, by the objects' names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.v1.saver import SUFFIX, Saver, latest_checkpoint
from toolkit.compat.tensorflow.variables import Variable
from toolkit.errors import ArgumentTypeError, ModelFileError
from toolkit.reading.hdf5 import open_datasets


class _Values:
    """What a Saver asks for values, and gives them to: the Variables themselves."""

    def run(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {name: np.asarray(v) for name, v in variables.items()}

    def set_value(self, variable: Any, value: Any) -> None:
        variable.assign(value)


class _Status:
    """Everything was restored, else an error was raised; or there was no file.

    Args:
        restored: whether there was a file.
    """

    def __init__(self, restored: bool) -> None:
        self._restored = restored

    def assert_consumed(self) -> _Status:
        """Raise unless all in the file was restored, to all Variables.

        Raises:
            ModelFileError: there was no file.
        """
        if not self._restored:
            raise ModelFileError(
                "Checkpoint: expected a file whose values were restored; received None"
            )
        return self

    assert_existing_objects_matched: Any = assert_consumed
    assert_nontrivial_match: Any = assert_consumed

    def expect_partial(self) -> _Status:
        """Nothing to do: no warning follows. `restore` itself refuses other names."""
        return self


class Checkpoint:
    """Writes the Variables of objects to files, and restores them.

    Args:
        root: an object whose Variables have no name in front.
        **kwargs: Variables, models, layers, optimizers, metrics or modules, or lists
            and dicts of them, by the names to use in files. They must be built: the
            Variables that there will be must be there.

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

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        self._objects = {**({} if root is None else {"root": root}), **kwargs}
        self.__dict__.update(kwargs)
        self.save_counter: Any = Variable(0, trainable=False, name="save_counter")

    def _saver(self) -> Saver:
        counter = {"save_counter": self.save_counter}
        return Saver({**dict(_named("", self._objects)), **counter}, max_to_keep=None)

    def write(self, file_prefix: Any) -> str:
        """Write a file of this name; returns what `read` takes."""
        os.makedirs(Path(file_prefix).parent, exist_ok=True)
        return self._saver().save(_Values(), file_prefix, write_state=False)

    def save(self, file_prefix: Any) -> str:
        """Write a file of this name and the next number, for `restore`."""
        os.makedirs(Path(file_prefix).parent, exist_ok=True)
        self.save_counter.assign_add(1)
        return self._saver().save(_Values(), file_prefix, int(self.save_counter))

    def read(self, save_path: Any) -> _Status:
        """Give the Variables the values in a file.

        Raises:
            MissingFileError: if there is no such file.
            ModelFileError: if it has other Variables, or of other shapes.
        """
        saver = self._saver()
        path = Path(os.fspath(save_path) + SUFFIX)
        if path.is_file():
            with open_datasets(path) as datasets:
                names = {str(dataset.owner) for dataset in datasets.values()}
            unknown = sorted(names - set(saver._variables))
            if unknown:
                raise ModelFileError(
                    f"Checkpoint {save_path}: {', '.join(unknown[:3])} in it is not "
                    "there yet; call the model once, or `build` of the optimizer, "
                    "before `restore`"
                )
        saver.restore(_Values(), save_path)
        return _Status(True)

    def restore(self, save_path: Any, options: Any = None) -> _Status:
        """As `read`; None, where nothing was saved yet, changes nothing."""
        refuse("Checkpoint.restore", options=(options, None))
        return _Status(False) if save_path is None else self.read(save_path)


def _named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(name in files, Variable) of each in a nest of objects."""
    if isinstance(value, Variable):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _named(f"{name}/{key}" if name else str(key), part)
    elif isinstance(value, (list, tuple)):
        yield from _named(name, dict(enumerate(value)))
    elif isinstance(value, Checkpoint):
        yield from _named(name, value._objects)
    elif hasattr(value, "variables"):
        yield from _named(name, list(value.variables))
    else:
        raise ArgumentTypeError(
            f"Checkpoint: expected objects with Variables; received {name}={value!r}"
        )


class CheckpointManager:
    """Saves a Checkpoint to a folder again and again, and keeps the last files.

    Args:
        checkpoint: what to save.
        directory: the folder.
        max_to_keep: how many files stay; None for all.
        keep_checkpoint_every_n_hours: only None.
        checkpoint_name: of the files, before their number.
    """

    checkpoint: Checkpoint

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        refuse("CheckpointManager", every=(keep_checkpoint_every_n_hours, None))
        self.checkpoint = checkpoint
        self.directory: str = os.fspath(directory)
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._most = max_to_keep
        latest = latest_checkpoint(self.directory)
        self.checkpoints: list[str] = [latest] if latest else []

    @property
    def latest_checkpoint(self) -> str | None:
        """What to give to `restore`; None if nothing was saved yet."""
        return self.checkpoints[-1] if self.checkpoints else None

    def save(self, checkpoint_number: Any = None) -> str:
        """Write the next file; returns its path."""
        if checkpoint_number is not None:
            self.checkpoint.save_counter.assign(int(checkpoint_number) - 1)
        path = self.checkpoint.save(self._prefix)
        self.checkpoints = [p for p in self.checkpoints if p != path] + [path]
        while self._most and len(self.checkpoints) > self._most:
            Path(self.checkpoints.pop(0) + SUFFIX).unlink(missing_ok=True)
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the latest file, if there is one; returns its path."""
        self.checkpoint.restore(self.latest_checkpoint)
        return self.latest_checkpoint
