"""MonitorCallback: the base class of callbacks that monitor one quantity."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.console.frames import warn, warn_once
from toolkit.errors import ArgumentError, suggest_choice
from toolkit.models.callbacks.callback import Callback, Logs

_MODES = ("auto", "min", "max")


class MonitorCallback(Callback):
    """Base class of callbacks that track the best value of a quantity.

    Args:
        monitor: the name in the logs, such as "val_loss".
        mode: "min" or "max": the direction of improvement. "auto", and with a warning
            any other value, uses the direction of the metric.
        baseline: the initial best value.
        min_delta: the minimum change that counts as an improvement.

    The attribute `monitor_op` is the comparison, once the direction is determined.
    """

    _state: tuple[str, ...] = ("best",)

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        baseline: float | None = None,
        min_delta: float = 0,
    ) -> None:
        super().__init__()
        if mode not in _MODES:
            warn(
                f"{type(self).__name__}: mode {mode!r} is unknown; it falls back to "
                f"'auto'. Expected one of {', '.join(_MODES)}"
            )
            mode = "auto"
        self.monitor = monitor
        self.mode = mode
        self.best = baseline
        self.min_delta: float = abs(min_delta)
        self.monitor_op: Any = None

    def _direction(self) -> str:
        """Return "min" or "max"; "auto" is resolved once the model has its metrics."""
        if self.mode != "auto":
            return self.mode
        name = self.monitor.removeprefix("val_")
        for metric in _all_metrics(getattr(self.model, "metrics", ())):
            direction = getattr(metric, "_direction", None)
            if metric.name == name and direction in ("up", "down"):
                return "max" if direction == "up" else "min"
        if name == "loss" or name.endswith("_loss"):
            return "min"
        raise ArgumentError(
            f"{type(self).__name__}: expected mode='min' or mode='max', because the "
            f"direction of {self.monitor!r} is unknown; received mode='auto'"
        )

    def _is_improvement(self, value: float, reference: float | None) -> bool:
        if reference is None:
            return True
        self._set_monitor_op()
        return bool(self.monitor_op(value - self.min_delta, reference))

    def _set_monitor_op(self) -> None:
        """Set `monitor_op`, which subclasses use, to `np.less` or `np.greater`.

        Raises:
            ArgumentError: the direction is unknown.
        """
        if self.monitor_op is not None:
            return
        self.monitor_op = np.less if self._direction() == "min" else np.greater
        if self.monitor_op is np.less:
            self.min_delta = -self.min_delta

    def _monitored(self, logs: Logs) -> Any:
        """Return the quantity in the logs; warn and return None if it is missing."""
        value = (logs or {}).get(self.monitor)
        if value is None:
            names = list(logs or {})
            fix = suggest_choice(self.monitor, names)
            if self.monitor.startswith("val_") and not any(
                name.startswith("val_") for name in names
            ):
                fix = "; pass validation_data or validation_split to fit"
            warn_once(
                self,
                f"{type(self).__name__}: {self.monitor!r} is not in the logs; "
                f"available are {', '.join(names) or 'no values'}{fix}",
                topic="missing quantity",
            )
        return value


def _all_metrics(metrics: Any) -> list[Any]:
    """Return all metrics, including the metrics that `compile` has grouped."""
    flattened = []
    for metric in metrics:
        flattened.append(metric)
        flattened += _all_metrics(getattr(metric, "metrics", ()))
    return flattened
