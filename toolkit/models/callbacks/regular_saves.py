"""RegularSaves: the base class of callbacks that save at regular intervals."""

from __future__ import annotations

from toolkit.models.callbacks.callback import Callback, Logs


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

    def _save(self, batch: int | None, logs: Logs) -> None:
        """Save; `batch` is None at the end of an epoch."""
        raise NotImplementedError
