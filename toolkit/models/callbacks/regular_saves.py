"""RegularSaves: the base class of callbacks that save at regular intervals."""

from __future__ import annotations

import os

from toolkit.models.callbacks.callback import Callback, Logs, print_on_chief


class RegularSaves(Callback):
    """Base class of callbacks that call `_save` at the intervals of `save_freq`.

    A subclass sets `save_freq`, "epoch" or a number of batches, which is counted across
    epochs. It also sets `_never_stops` for its hooks.
    """

    _needs_all = True
    save_freq: str | int
    _epoch = 0
    _last_batch = -1
    _waiting = 0  # batches since the last save

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch, self._last_batch = epoch, -1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            return
        # One step can represent several batches (steps_per_execution).
        self._waiting += batch - self._last_batch
        self._last_batch = batch
        if self._waiting >= int(self.save_freq):
            self._waiting = 0
            self._save(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            self._save(None, logs)

    def _report_resumption(self, path: str | os.PathLike[str], batch: int) -> None:
        """Print from which checkpoint and epoch `fit` continues, unless verbose=0.

        Args:
            path: the checkpoint.
            batch: the number of steps of the epoch that the checkpoint contains.
        """
        epochs = self.params.get("epochs", self._epoch + 1)
        if self.params.get("verbose") == 0:
            return
        source = f"fit: continues from {os.fspath(path)!r}"
        if self._epoch >= epochs:
            print_on_chief(f"{source}: all {epochs} epochs are complete")
        else:
            steps = f", after {batch} steps" if batch else ""
            print_on_chief(f"{source}: epoch {self._epoch + 1} of {epochs}{steps}")

    def _save(self, batch: int | None, logs: Logs) -> None:
        """Save; `batch` is None at the end of an epoch."""
        raise NotImplementedError
