"""ModelCheckpoint: saving of the model during training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.compiler import distribution_context
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, MissingKeyError
from toolkit.models.callbacks.callback import Logs, print_on_chief
from toolkit.models.callbacks.monitor import MonitorCallback
from toolkit.models.callbacks.regular_saves import RegularSaves


class ModelCheckpoint(RegularSaves, MonitorCallback):
    """Callback that saves the model or its weights every epoch or every N batches.

    Args:
        filepath: the destination, with optional format fields `{epoch}`, `{batch}` and
            names of logs, as in "{epoch:02d}-{val_loss:.2f}.keras".
        monitor: the name in the logs that determines the best epoch.
        verbose: 1 prints a message for each save.
        save_best_only: whether to save only when `monitor` is better than all earlier
            values.
        save_weights_only: whether to save weights only, with `model.save_weights`; else
            whole models, with `model.save`.
        mode: "min", "max" or "auto".
        save_freq: "epoch", or a number of batches.
        initial_value_threshold: the initial best value.

    Raises:
        ArgumentError: if the file name does not end in ".weights.h5" for weights, or in
            ".keras" or ".h5" for whole models.

    Example:
        >>> from toolkit.callbacks import ModelCheckpoint
        >>> callback = ModelCheckpoint("best.keras", save_best_only=True)
    """

    _never_stops = True
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
        self.filepath: str = os.fspath(filepath)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        if save_freq != "epoch" and not is_int(save_freq):
            raise ArgumentError(
                "ModelCheckpoint: expected save_freq to be 'epoch' or a number of "
                f"batches; received {save_freq!r}"
            )
        endings = (".weights.h5",) if save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            raise ArgumentError(
                f"ModelCheckpoint: with save_weights_only={save_weights_only} the "
                f"filepath provided must end in `{'` or `'.join(endings)}`; received "
                f"{self.filepath!r}"
            )

    @property
    def _batches_since_save(self) -> int:
        """Return `_waiting` under its name in Keras and in saved states."""
        return self._waiting

    @_batches_since_save.setter
    def _batches_since_save(self, value: int) -> None:
        self._waiting = value

    def _save(self, batch: int | None, logs: Logs) -> None:
        path = self._path(batch, logs)
        if not self._should_save(logs, path):
            return
        if Path(path).is_dir():
            raise IsADirectoryError(
                "Please specify a non-directory filepath for ModelCheckpoint; "
                f"{path!r} is a folder"
            )
        if distribution_context.is_chief():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)
        self._print_if_verbose(f"finished saving model to {path}")

    def _print_if_verbose(self, message: str) -> None:
        if self.verbose > 0:
            print_on_chief(f"Epoch {self._epoch + 1}: {message}")

    def _should_save(self, logs: Logs, path: str) -> bool:
        if not self.save_best_only:
            self._print_if_verbose(f"saving model to {path}")
            return True
        self._set_monitor_op()
        current = self._monitored(logs)
        if current is None:  # as in Keras: better one file too many
            return True
        if np.ndim(current):
            warn(
                f"ModelCheckpoint: Can only save best model when `monitor` is a scalar "
                f"value; {self.monitor!r} has the shape {np.shape(current)}. Falling "
                "back to `save_best_only=False`"
            )
            return True
        before = "None" if self.best is None else f"{self.best:.5f}"
        if not self._is_improvement(current, self.best):
            self._print_if_verbose(f"{self.monitor} did not improve from {before}")
            return False
        self._print_if_verbose(
            f"{self.monitor} improved from {before} to {current:.5f}, saving model to "
            f"{path}"
        )
        self.best = current
        return True

    def _path(self, batch: int | None, logs: Logs) -> str:
        fields: dict[str, Any] = {**(logs or {}), "epoch": self._epoch + 1}
        if batch is not None:
            fields["batch"] = batch + 1
        try:
            return self.filepath.format(**fields)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"ModelCheckpoint: Failed to format this callback filepath: expected "
                f"names of logs in braces, as in '{{epoch:02d}}-{{loss:.2f}}.keras'; "
                f"received {self.filepath!r} ({error})"
            ) from None
        except KeyError as error:
            raise MissingKeyError(
                "ModelCheckpoint: Failed to format this callback filepath: "
                f"{self.filepath!r} needs {error}; available are "
                f"{', '.join(sorted(fields))}"
            ) from None
