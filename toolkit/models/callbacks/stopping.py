"""Callbacks that stop training early."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.models.callbacks.callback import Callback, Logs, print_on_chief
from toolkit.models.callbacks.monitor import MonitorCallback


class EarlyStopping(MonitorCallback):
    """Callback that stops training when a quantity stops improving.

    Args:
        monitor: the name in the logs, such as "val_loss".
        min_delta: the minimum change that counts as an improvement.
        patience: the number of epochs without improvement after which training stops.
        verbose: 1 prints a message.
        mode: "min", "max" or "auto".
        baseline: the initial best value; without an improvement on it, patience
            decreases.
        restore_best_weights: whether to restore the weights of the best epoch.
        start_from_epoch: the number of initial epochs to ignore.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
        >>> model.compile(toolkit.optimizers.SGD(0.0), "mse")
        >>> stop = toolkit.callbacks.EarlyStopping("loss", patience=2)
        >>> x, y = np.ones((4, 2)), np.ones(4)
        >>> history = model.fit(x, y, epochs=20, verbose=0, callbacks=[stop])
        >>> len(history.epoch)
        3
    """

    _state = ("best", "wait", "stopped_epoch", "best_epoch", "best_weights")

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: float = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: float = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta=min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.best: Any = None
        self.wait: int = 0
        self.stopped_epoch: int = 0
        self.best_epoch: int = 0
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self._is_resumed():
            self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._set_monitor_op()  # an unknown name is an error
        current = self.get_monitor_value(logs)
        if current is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self._store_best(epoch)
        self.wait += 1
        if self._is_improvement(current, self.best):
            self.best = current
            self._store_best(epoch)
            if self._is_improvement(current, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def get_monitor_value(self, logs: Logs) -> Any:
        """Return the quantity in the logs; warn and return None if it is missing.

        Args:
            logs: the logs of an epoch.
        """
        return self._monitored(logs)

    def _store_best(self, epoch: int) -> None:
        self.best_epoch = epoch
        if self.restore_best_weights:
            self.best_weights = self.model.get_weights()

    def on_train_end(self, logs: Logs = None) -> None:
        if self.stopped_epoch > 0 and self.verbose > 0:
            print_on_chief(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.restore_best_weights and self.best_weights is not None:
            if self.verbose > 0:
                print_on_chief(
                    "Restoring model weights from the end of the best epoch: "
                    f"{self.best_epoch + 1}."
                )
            self.model.set_weights(self.best_weights)


class TerminateOnNaN(Callback):
    """Callback that stops training when the loss is NaN or infinite.

    Args:
        raise_error: whether to raise RuntimeError instead of a clean stop.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
        >>> stop = toolkit.callbacks.TerminateOnNaN()
        >>> stop.set_model(model)
        >>> stop.on_train_batch_end(0, {"loss": float("nan")})
        Batch 0: Invalid loss nan, terminating training
        >>> model.stop_training
        True
    """

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or np.isfinite(loss):
            return
        if self.raise_error:
            raise RuntimeError(f"NaN or Inf loss encountered: {loss} at batch {batch}")
        print_on_chief(f"Batch {batch}: Invalid loss {loss}, terminating training")
        self.model.stop_training = True
