"""ModelCheckpoint: saving weights while training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError
from toolkit.messages import print_message
from toolkit.models.callbacks.callback import Logs
from toolkit.models.callbacks.monitor import MonitorCallback


class ModelCheckpoint(MonitorCallback):
    """Saves the model's weights every epoch or every so many batches.

    Args:
        filepath: where to save; it may hold `{epoch}`, `{batch}` and names of logs
            to fill in, as in "{epoch:02d}-{val_loss:.2f}.weights.h5".
        monitor: the name in the logs that says which epoch is best.
        verbose: 1 prints what was done.
        save_best_only: whether to save only when `monitor` is better than ever.
        save_weights_only: must be True: whole models cannot be saved yet.
        mode: "min", "max" or "auto".
        save_freq: "epoch", or a number of batches.
        initial_value_threshold: the value to beat at first.

    Raises:
        ArgumentError: if the file's name does not end in ".weights.h5".
    """

    _state = ("best", "_batches_since_save")

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__(monitor, mode, initial_value_threshold)
        self.filepath = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        self._epoch = 0
        self._batches_since_save = 0
        self._last_batch = -1
        if save_freq != "epoch" and not isinstance(save_freq, int):
            raise ArgumentError(
                "ModelCheckpoint: expected save_freq to be 'epoch' or a number of "
                f"batches; received {save_freq!r}"
            )
        if not save_weights_only:
            raise ArgumentError(
                "ModelCheckpoint: only weights can be saved; pass "
                "save_weights_only=True and a filepath that ends in '.weights.h5'"
            )
        if not self.filepath.endswith(".weights.h5"):
            raise ArgumentError(
                "ModelCheckpoint: expected a filepath that ends in '.weights.h5'; "
                f"received {self.filepath!r}"
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            return
        # A step may stand for several batches (steps_per_execution).
        self._batches_since_save += batch - self._last_batch
        self._last_batch = batch
        if self._batches_since_save >= int(self.save_freq):
            self._batches_since_save = 0
            self._save(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            self._save(None, logs)

    def _save(self, batch: int | None, logs: Logs) -> None:
        if not self._is_wanted(logs):
            return
        path = self._path(batch, logs)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.model.save_weights(path, overwrite=True)
        if self.verbose > 0:
            print_message(f"Epoch {self._epoch + 1}: saved weights to {path}")

    def _is_wanted(self, logs: Logs) -> bool:
        if not self.save_best_only:
            return True
        current = self._monitored(logs)
        if current is None:  # as in Keras: rather one file too many
            return True
        if not self._is_improvement(current, self.best):
            if self.verbose > 0:
                print_message(
                    f"Epoch {self._epoch + 1}: {self.monitor} did not improve"
                )
            return False
        self.best = current
        return True

    def _path(self, batch: int | None, logs: Logs) -> str:
        fields: dict[str, Any] = {**(logs or {}), "epoch": self._epoch + 1}
        if batch is not None:
            fields["batch"] = batch + 1
        try:
            return self.filepath.format(**fields)
        except KeyError as error:
            raise ArgumentError(
                f"ModelCheckpoint: filepath {self.filepath!r} wants {error}; "
                f"available are {', '.join(sorted(fields))}"
            ) from None
