"""BackupAndRestore: resumption of interrupted training."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.arguments import is_int
from toolkit.compiler import distribution_context
from toolkit.errors import ArgumentError, ModelFileError, NotBuiltError
from toolkit.files.sets import FileSet
from toolkit.models.callbacks.callback import Logs
from toolkit.models.callbacks.regular_saves import RegularSaves
from toolkit.models.saving.state import all_variables
from toolkit.optimizers.state import build_optimizer

_WEIGHTS, _METADATA = "latest.weights.h5", "training_metadata.json"
_PREVIOUS_SUFFIX = ".bkp"
_NAMES = [
    f"{name}{end}" for name in (_WEIGHTS, _METADATA) for end in ("", _PREVIOUS_SUFFIX)
]


class BackupAndRestore(RegularSaves):
    """Callback that saves the training state and restores it in the next `fit`.

    The state consists of the weights, the optimizer's variables, all random generators,
    metrics and other callbacks, the epoch, and the position in the data. After an
    interruption the same `fit` continues after the last saved step, bit-identical to an
    uninterrupted run. A Python iterator continues with its next batch. The callback
    saves after all other callbacks of the step or epoch. Files are replaced atomically:
    a complete backup exists at any moment, even if the process is killed. A corrupt
    backup is never restored.

    Args:
        backup_dir: a folder for this run only.
        save_freq: "epoch", or a number of batches.
        double_checkpoint: whether to keep the second-last backup, too, in case the last
            one is unreadable.
        delete_checkpoint: whether to delete the backup at the end of training.

    Example:
        >>> from toolkit.callbacks import BackupAndRestore
        >>> callback = BackupAndRestore("backup", double_checkpoint=True)
    """

    _never_stops = _saves_callbacks = True
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
        if save_freq != "epoch" and not is_int(save_freq):
            raise ArgumentError(
                "BackupAndRestore: Invalid value for argument `save_freq`: expected "
                f"'epoch' or a number of batches; received {save_freq!r}"
            )
        self._set_folder(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint

    def _set_folder(self, backup_dir: str | os.PathLike[str]) -> None:
        self.backup_dir: str = os.fspath(backup_dir)
        self._folder = Path(backup_dir)
        self._files = FileSet(self._folder, "backup", _NAMES.__contains__, _METADATA)

    # --- restoring --------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.model.built:
            raise NotBuiltError(
                "To use the BackupAndRestore callback, the model must be built before "
                "`fit`"
            )
        folder = self._files.folder()
        has_previous = (folder / (_WEIGHTS + _PREVIOUS_SUFFIX)).exists()
        if not has_previous and not (folder / _WEIGHTS).exists():
            return
        try:
            self._restore(folder)
        except (OSError, ModelFileError):
            if not has_previous:
                raise
            distribution_context.on_chief(self._restore_previous)
            if not distribution_context.is_chief():
                self._restore(self._files.folder())

    def _restore_previous(self) -> None:
        """Replace the last backup by the second-last one."""
        with self._files.replace() as folder:
            for name in (_WEIGHTS, _METADATA):
                _copy(self._folder / (name + _PREVIOUS_SUFFIX), folder / name)
            self._restore(folder)

    def _restore(self, folder: Path) -> None:
        """Restore the state from the backup."""
        record = _read_matching_record(folder / _WEIGHTS, folder / _METADATA)
        build_optimizer(self.model)
        self.model.load_weights(folder / _WEIGHTS)
        self._epoch = record.get("epoch", 0)
        self.model._progress.restore(record.get("run"), self._epoch)
        self._report_resumption(self._folder, record.get("batch", 0))

    # --- saving -----------------------------------------------------------------------

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epoch, self._last_batch = epoch + 1, -1
        super().on_epoch_end(epoch, logs)

    def _save(self, batch: int | None, logs: Logs) -> None:
        distribution_context.on_chief(self._write, all_variables(self.model))

    def _write(self) -> None:
        """Replace the backup by a new one, complete before it is valid."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._files.replace() as folder:
            if self.double_checkpoint:
                for name in (_WEIGHTS, _METADATA):
                    _copy(self._folder / name, folder / (name + _PREVIOUS_SUFFIX))
            self.model.save_weights(folder / _WEIGHTS, overwrite=True)
            record = {
                "epoch": self._epoch,
                "batch": self._last_batch + 1,
                "run": self.model._progress.state(),
                "sha256": _digest(folder / _WEIGHTS),
                "previous": _previous(self._folder / _METADATA),
            }
            record["record"] = _digest_of(record)
            (folder / _METADATA).write_text(json.dumps(record), "utf-8")

    def on_train_end(self, logs: Logs = None) -> None:
        interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        if interrupted or not self.delete_checkpoint:
            return
        distribution_context.on_chief(self._delete)

    def _delete(self) -> None:
        if not self._folder.exists():
            return
        self._files.complete_interrupted_save()
        for name in _NAMES:
            (self._folder / name).unlink(missing_ok=True)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


def _read_matching_record(weights: Path, metadata: Path) -> dict[str, Any]:
    """Return the record of a weights file: the last record, or the second-last one.

    Raises:
        ModelFileError: the metadata are corrupt, or belong to another file.
    """
    if (
        not metadata.exists()
        and not metadata.with_name(_METADATA + _PREVIOUS_SUFFIX).exists()
    ):
        return {}  # weights only, as in Keras
    record, digest = _read(metadata), _digest(weights)
    for candidate in (record, record.get("previous")):
        if candidate is not None and candidate.get("sha256", digest) == digest:
            return dict(candidate)
    raise ModelFileError(
        f"BackupAndRestore: {str(weights)!r} is not the file that {str(metadata)!r} "
        "describes"
    )


def _read(metadata: Path) -> dict[str, Any]:
    try:
        record = json.loads(metadata.read_text("utf-8"))
        digest = record.pop("record", None)
        is_whole = isinstance(record.get("epoch", 0), int)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"BackupAndRestore: {str(metadata)!r} is corrupt ({error})"
        ) from error
    if not is_whole or digest not in (None, _digest_of(record)):
        raise ModelFileError(f"BackupAndRestore: {str(metadata)!r} is corrupt")
    return dict(record)


def _previous(metadata: Path) -> dict[str, Any] | None:
    """Return the record of the replaced backup, or None."""
    with suppress(OSError, ModelFileError):
        return {k: v for k, v in _read(metadata).items() if k != "previous"}
    return None


def _copy(file: Path, copy: Path) -> None:
    if file.exists():
        shutil.copy(file, copy)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(record: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(record))  # in the form that reading returns
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
