"""History: the values of loss and metrics, epoch by epoch."""

from __future__ import annotations

from typing import Any

from toolkit.models.callbacks.callback import Callback, Logs


class History(Callback):
    """Records the logs of every epoch; `fit` adds one and returns it.

    Attributes:
        history: name -> list of values, one per epoch.
        epoch: the numbers of the epochs recorded in the last run.
    """

    _state = ("history", "epoch")

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self._is_resumed():
            self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
        self.model.history = self
