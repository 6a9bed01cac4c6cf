"""BackupAndRestore: training that goes on where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError, ModelFileError, NotBuiltError
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.h5_files import replace_file

_WEIGHTS, _METADATA = "latest.weights.h5", "training_metadata.json"
_NEXT, _OLDER = "next.weights.h5", ".bkp"


class BackupAndRestore(Callback):
    """Saves the state of training, and takes it up when `fit` is called again.

    What is saved: weights, the optimizer's variables, the states of all random
    generators, of the metrics and of the other callbacks, the epoch, and the position
    in the data. After an interruption the same `fit` goes on after the last step that
    was saved, to the same bits as a run that was never interrupted; of a Python
    iterator it takes what comes next. A file is replaced in one step: at any moment,
    whatever happens to the process, there is a whole backup.

    Args:
        backup_dir: a folder for this run alone.
        save_freq: "epoch", or a number of batches.
        double_checkpoint: whether to keep the backup before the last one too, for when
            the last one cannot be read.
        delete_checkpoint: whether to delete the backup when training is done.

    Example:
        >>> from toolkit.callbacks import BackupAndRestore
        >>> callback = BackupAndRestore("backup", double_checkpoint=True)
    """

    _state = ("_epoch", "_last_batch", "_waiting")

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ArgumentError("BackupAndRestore: Empty `backup_dir` argument passed")
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ArgumentError(
                "BackupAndRestore: Invalid value for argument `save_freq`: expected "
                f"'epoch' or a number of batches; received {save_freq!r}"
            )
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self._folder = Path(backup_dir)
        self._epoch = 0
        self._last_batch = -1
        self._waiting = 0  # batches since the last backup

    # --- restoring --------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.model.built:
            raise NotBuiltError(
                "To use the BackupAndRestore callback, the model must be built before "
                "`fit`"
            )
        if not (self._folder / _WEIGHTS).exists():
            return
        try:
            self._restore()
        except (OSError, ModelFileError):
            if not (self._folder / (_WEIGHTS + _OLDER)).exists():
                raise
            for name in (_WEIGHTS, _METADATA):
                if (self._folder / (name + _OLDER)).exists():
                    shutil.copy(self._folder / (name + _OLDER), self._folder / name)
            self._restore()

    def _restore(self) -> None:
        """Take the state from the backup."""
        weights = self._folder / _WEIGHTS
        record = self._record_of(weights, self._folder / _METADATA)
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(weights)
        self._epoch = record.get("epoch", 0)
        self.model._progress.restore(record.get("run"), self._epoch)

    def _record_of(self, weights: Path, metadata: Path) -> dict[str, Any]:
        """What is known of a file of weights: the last record, or the one before."""
        if not metadata.exists():
            return {}
        record: dict[str, Any] = json.loads(metadata.read_text())
        found = _digest(weights)
        for each in (record, record.get("previous")):
            if each is not None and each.get("sha256", found) == found:
                return dict(each)
        raise ModelFileError(
            f"BackupAndRestore: {str(weights)!r} is not the file that "
            f"{str(metadata)!r} describes"
        )

    # --- saving -----------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch, self._last_batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            return
        # A step may stand for several batches (steps_per_execution).
        self._waiting += batch - self._last_batch
        self._last_batch = batch
        if self._waiting >= int(self.save_freq):
            self._waiting = 0
            self._save()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epoch, self._last_batch = epoch + 1, -1
        if self.save_freq == "epoch":
            self._save()

    def _save(self) -> None:
        """Write the new weights aside, then what describes both, then replace."""
        self._folder.mkdir(parents=True, exist_ok=True)
        weights, metadata = self._folder / _WEIGHTS, self._folder / _METADATA
        previous = self._previous(weights, metadata)
        if self.double_checkpoint and weights.exists():
            shutil.copy(weights, f"{weights}{_OLDER}")
            if metadata.exists():
                shutil.copy(metadata, f"{metadata}{_OLDER}")
        aside = self._folder / _NEXT
        self.model.save_weights(aside, overwrite=True)
        record = {
            "epoch": self._epoch,
            "batch": self._last_batch + 1,
            "run": self.model._progress.state(),
            "sha256": _digest(aside),
            "previous": previous,
        }
        replace_file(metadata, partial(_dump, record))
        os.replace(aside, weights)

    def _previous(self, weights: Path, metadata: Path) -> dict[str, Any] | None:
        if not (weights.exists() and metadata.exists()):
            return None
        record = self._record_of(weights, metadata)
        return {name: value for name, value in record.items() if name != "previous"}

    def on_train_end(self, logs: Logs = None) -> None:
        interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        if interrupted or not self.delete_checkpoint or not self._folder.exists():
            return
        for name in (_WEIGHTS, _METADATA, _NEXT):
            for ending in ("", _OLDER):
                (self._folder / (name + ending)).unlink(missing_ok=True)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


def _dump(record: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(record))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
