"""ProgbarLogger: a progress bar on a terminal, lines per epoch in a log."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.compiler import distribution_context
from toolkit.console.messages import print_message
from toolkit.console.progress import can_redraw
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.callbacks.logs import LazyLogs
from toolkit.settings import is_interactive_logging_enabled

_BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
# In a narrow terminal, the bar and the clock give way to the numbers.
_NARROW_FORMAT = "{desc}: {n_fmt}/{total_fmt}{postfix}"
_BAR_COLUMNS = 50  # columns of the bar, the clock and the count
_REDRAW_SECONDS = 0.1  # seconds between redraws of the bar


def is_interactive() -> bool:
    """Return whether standard output can redraw a line: a terminal or a notebook."""
    return can_redraw(sys.stdout)


def resolve_verbose(verbose: Any) -> int:
    """Return 0, 1 (a bar) or 2 (one line per epoch); "auto" is 1.

    Output to a log uses lines, never a bar.
    """
    verbose = 1 if verbose == "auto" else int(verbose)
    can_show_bar = is_interactive() and is_interactive_logging_enabled()
    return 2 if verbose == 1 and not can_show_bar else verbose


def format_logs(logs: Logs) -> str:
    """Format logs as `accuracy: 0.9375 - loss: 0.1234`; arrays by their mean."""
    return " - ".join(f"{name}: {_number(x)}" for name, x in (logs or {}).items())


def _number(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = float(value.mean())
    if not isinstance(value, (int, float)):
        return str(value)
    small = value != 0 and abs(value) < 1e-3
    return f"{value:.4e}" if small else f"{value:.4f}"


class ProgbarLogger(Callback):
    """Callback that shows the progress of training, evaluation or prediction.

    verbose=1 shows a tqdm bar, redrawn at most ten times a second. It shows the newest
    values that are available from the device, without waiting. A line with all values
    replaces it at the end of each epoch. verbose=2 prints only that line, after the
    number of the epoch. `fit`, `evaluate` and `predict` add one unless verbose=0.

    Example:
        >>> import toolkit
        >>> logger = toolkit.callbacks.ProgbarLogger()
        >>> callbacks = toolkit.callbacks.CallbackList([logger], add_progbar=True)
        >>> len(callbacks.callbacks)
        1
    """

    _never_stops = True

    def __init__(self) -> None:
        super().__init__()
        self.verbose: int = 0
        self.epochs: int = 1
        self.target: int | None = None
        self._bar: Any = None
        self._label = ""
        self._in_fit = False
        self._last_draw = 0.0
        self._started = 0.0
        self._num_steps = 0
        self._first_step_end: float | None = None  # time at the end of the first step
        self._shown_logs: Logs = None
        self._pending_logs: LazyLogs | None = None

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        verbose = resolve_verbose(params.get("verbose", "auto"))
        self.verbose = verbose if distribution_context.is_chief() else 0
        self.epochs = params.get("epochs", 1)
        self.target = params.get("steps")

    def is_due(self) -> bool:
        """Return whether the next batch will redraw the bar."""
        return self.verbose == 1 and perf_counter() - self._last_draw >= _REDRAW_SECONDS

    def on_train_begin(self, logs: Logs = None) -> None:
        self._in_fit = True

    def on_train_end(self, logs: Logs = None) -> None:
        self._in_fit = False
        if self._bar is not None:  # interrupted during an epoch
            self._bar.close()
            self._bar = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        label = f"Epoch {epoch + 1}/{self.epochs}"
        if self.verbose == 2 and self.epochs > 1:
            print_message(label)
        self._begin(label)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._end(logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        if not self._in_fit:
            self._begin("evaluate")

    def on_test_end(self, logs: Logs = None) -> None:
        if not self._in_fit:
            self._end(logs)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._begin("predict")

    def on_predict_end(self, logs: Logs = None) -> None:
        self._end(None)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._step(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        if not self._in_fit:
            self._step(batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._step(batch, None)

    def _begin(self, label: str) -> None:
        self._started = self._last_draw = perf_counter()
        self._num_steps = 0
        self._first_step_end = self._shown_logs = self._pending_logs = None
        if self.verbose != 1:
            return
        self._label = label
        self._bar = _bar_class()(
            total=self.target,
            desc=label,
            unit="step",
            file=sys.stdout,
            mininterval=0,
            dynamic_ncols=True,
            bar_format=_BAR_FORMAT,
            leave=False,
        )

    def _step(self, batch: int, logs: Logs) -> None:
        self._num_steps = min(batch + 1, self.target or batch + 1)
        if self._first_step_end is None:
            self._first_step_end = perf_counter()
        if self._bar is not None and self.is_due():
            self._last_draw = perf_counter()
            self._redraw(self._latest_logs(logs))

    def _latest_logs(self, logs: Logs) -> Logs:
        """Return the newest available values, and request these if none is pending.

        Waiting for the last step would stop a device that runs asynchronously.
        """
        if not isinstance(logs, LazyLogs):
            return logs
        if self._pending_logs is None:
            logs.begin()
            self._pending_logs = logs
        if self._pending_logs.is_available:
            self._shown_logs, self._pending_logs = self._pending_logs.copy(), None
        return self._shown_logs

    def _redraw(self, logs: Logs) -> None:
        shown = f"{self._time_per_step()}/step, {format_logs(logs)}".removesuffix(", ")
        columns = shutil.get_terminal_size().columns
        is_narrow = len(self._label) + len(shown) + _BAR_COLUMNS > columns
        self._bar.bar_format = _NARROW_FORMAT if is_narrow else _BAR_FORMAT
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update(self._num_steps - self._bar.n)

    def _time_per_step(self) -> str:
        """Return the time per step, without the first step (which can compile)."""
        current = perf_counter()
        if self._num_steps > 1 and self._first_step_end is not None:
            return duration((current - self._first_step_end) / (self._num_steps - 1))
        return duration((current - self._started) / max(self._num_steps, 1))

    def _end(self, logs: Logs) -> None:
        if self.target is None:
            self.target = self._num_steps
        texts: list[str] = []
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            texts.append(self._label)
        elif self.verbose != 2:
            return
        texts.append(f"{self._num_steps}/{self.target}")
        texts.append(f"{perf_counter() - self._started:.0f}s")
        texts.append(f"{self._time_per_step()}/step")
        print_message(" - ".join([*texts, *filter(None, [format_logs(logs)])]))


def _bar_class() -> Any:
    """Return tqdm's class: a widget in a notebook that shows widgets, else text."""
    if "ipykernel" in sys.modules and find_spec("ipywidgets") is not None:
        return import_module("tqdm.notebook").tqdm
    return import_module("tqdm.std").tqdm


def duration(seconds: float) -> str:
    """Format seconds as `12s`, `3ms` or `45us`."""
    if seconds >= 1:
        return f"{seconds:.0f}s"
    return f"{seconds * 1e3:.0f}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f}us"
