"""Callbacks that change the learning rate between epochs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.arguments import unknown_argument_error
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.models.callbacks.callback import Callback, Logs, print_on_chief
from toolkit.models.callbacks.monitor import MonitorCallback
from toolkit.optimizers.schedules import LearningRateSchedule
from toolkit.release.deprecation import warn_deprecated


def optimizers_of(model: Any) -> dict[str, Any]:
    """Return the optimizers with a learning rate, by its name in the logs."""
    inner = getattr(model.optimizer, "optimizers", None)
    if inner is None:
        return {"learning_rate": model.optimizer}
    return {f"learning_rate_{optimizer.name}": optimizer for optimizer in inner}


def learning_rates(model: Any) -> dict[str, float]:
    """Return the learning rates by their names in the logs."""
    return {name: float(o.learning_rate) for name, o in optimizers_of(model).items()}


def _describe_schedules(model: Any) -> str:
    """Return the optimizers whose schedules set the learning rate, or ""."""
    names = [
        optimizer.name
        for optimizer in optimizers_of(model).values()
        if isinstance(getattr(optimizer, "_learning_rate", None), LearningRateSchedule)
    ]
    if not names:
        return ""
    return (
        f"the optimizer {', '.join(map(repr, names))} has a LearningRateSchedule, "
        "which sets the learning rate in each step; create the optimizer with a "
        "number, or remove this callback"
    )


class LearningRateScheduler(Callback):
    """Callback that sets the learning rate at the start of every epoch.

    Args:
        schedule: `(epoch, learning_rate) -> learning_rate`, or a function of the epoch
            only.
        verbose: 1 prints each change.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
        >>> model.compile(toolkit.optimizers.SGD(0.5), "mse")
        >>> halve = toolkit.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
        >>> history = model.fit(
        ...     np.ones((4, 2)), np.ones(4), epochs=2, verbose=0, callbacks=[halve]
        ... )
        >>> float(model.optimizer.learning_rate)
        0.125
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule = schedule
        self.verbose = verbose

    def on_train_begin(self, logs: Logs = None) -> None:
        conflict = _describe_schedules(self.model)
        if conflict:
            raise ArgumentTypeError(f"LearningRateScheduler: {conflict}")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        for name, optimizer in optimizers_of(self.model).items():
            rate = self._scheduled(epoch, float(optimizer.learning_rate))
            if not isinstance(rate, (float, np.floating)):
                raise ArgumentError(
                    "LearningRateScheduler: The output of the `schedule` function "
                    f"should be a float; received {rate!r}"
                )
            optimizer.learning_rate = rate
            if self.verbose > 0:
                print_on_chief(
                    f"Epoch {epoch + 1}: LearningRateScheduler setting "
                    f"{name.replace('_', ' ')} to {rate}."
                )

    def _scheduled(self, epoch: int, rate: float) -> float:
        try:
            inspect.signature(self.schedule).bind(epoch, rate)
        except TypeError:
            return self.schedule(epoch)
        return self.schedule(epoch, rate)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs.update(learning_rates(self.model))


class ReduceLROnPlateau(MonitorCallback):
    """Callback that reduces the learning rate when a quantity stops improving.

    Args:
        monitor: the name in the logs, such as "val_loss".
        factor: the factor of the learning rate; below 1.
        patience: the number of epochs to wait for an improvement.
        verbose: 1 prints each change.
        mode: "min", "max" or "auto".
        min_delta: the minimum change that counts as an improvement.
        cooldown: the number of epochs to ignore after a reduction.
        min_lr: the lower bound of the learning rate.
        **kwargs: `epsilon`, an older name of `min_delta`.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1, use_bias=False)])
        >>> model.compile(toolkit.optimizers.SGD(0.5), "mse")
        >>> reduce = toolkit.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=2)
        >>> x, y = np.zeros((4, 2)), np.ones(4)
        >>> history = model.fit(x, y, epochs=3, verbose=0, callbacks=[reduce])
        >>> round(float(model.optimizer.learning_rate), 4)
        0.05
    """

    _state = ("best", "wait", "cooldown_counter")

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: float = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: float = 0,
        min_lr: float = 0.0,
        **kwargs: float,
    ) -> None:
        if "epsilon" in kwargs:
            min_delta = kwargs.pop("epsilon")
            warn_deprecated(
                "ReduceLROnPlateau: `epsilon`", "use `min_delta`", since="0.1"
            )
        if kwargs:
            raise unknown_argument_error(self, kwargs)
        super().__init__(monitor, mode, min_delta=min_delta)
        if factor >= 1.0:
            raise ArgumentError(
                f"ReduceLROnPlateau: expected factor < 1; received {factor}"
            )
        self.factor = factor
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.wait: int = 0
        self.cooldown_counter: float = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        conflict = _describe_schedules(self.model)
        if conflict:  # an error at the first reduction, which may not happen
            warn(f"ReduceLROnPlateau: {conflict}")
        if not self._is_resumed():
            self.best: Any = None
            self.wait = 0
            self.cooldown_counter = 0

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs = {} if logs is None else logs
        logs.update(learning_rates(self.model))
        self._set_monitor_op()  # an unknown name is an error
        current = self._monitored(logs)
        if current is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_improvement(current, self.best):
            self.best = current
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(epoch)

    def in_cooldown(self) -> bool:
        """Return whether the callback ignores values after a recent reduction."""
        return self.cooldown_counter > 0

    def _reduce(self, epoch: int) -> None:
        for name, optimizer in optimizers_of(self.model).items():
            rate = float(optimizer.learning_rate)
            if rate <= np.float32(self.min_lr):
                continue
            optimizer.learning_rate = max(rate * self.factor, self.min_lr)
            self.cooldown_counter = self.cooldown
            self.wait = 0
            if self.verbose > 0:
                print_on_chief(
                    f"Epoch {epoch + 1}: ReduceLROnPlateau reducing "
                    f"{name.replace('_', ' ')} to {float(optimizer.learning_rate)}."
                )
