"""Progbar: a line that shows the progress of a loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.progress import duration, is_interactive
from toolkit.settings import is_interactive_logging_enabled

# Set by terminals of Windows with ANSI support: Windows Terminal, VS Code, Git, ConEmu.
_TERMINAL_VARIABLES = {"WT_SESSION", "TERM_PROGRAM", "TERM", "ConEmuANSI"}
_BOLD, _GREEN, _WHITE, _RESET = "\x1b[1m", "\x1b[32m", "\x1b[37m", "\x1b[0m"


class Progbar:
    """A bar of the completed steps, with the time left and values such as the loss.

    Args:
        target: the number of steps; None if it is unknown.
        width: width of the bar, in characters.
        verbose: 0 silent, 1 a bar that is redrawn, 2 one line at the end.
        interval: minimum seconds between two updates of the screen.
        stateful_metrics: names of values that are shown unchanged; all other values are
            averaged over the steps.
        stateless_metrics: alternatively, names of the values to average; all other
            values are shown unchanged.
        unit_name: name of a step.

    Example:
        >>> from toolkit.utils import Progbar
        >>> bar = Progbar(2, verbose=0)
        >>> bar.update(1, [("loss", 4.0)])
        >>> bar.add(1, [("loss", 2.0)])
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        stateless_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ) -> None:
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ArgumentError(
                "Progbar: Only one of stateful_metrics and stateless_metrics may be "
                "given"
            )
        averages = stateless_metrics is not None
        self.target = target
        self.width = width
        self.verbose = verbose
        self.interval = interval
        self.unit_name = unit_name
        self.stateful_metrics: set[str] | None = (
            None if averages else set(stateful_metrics or ())
        )
        self.stateless_metrics: set[str] | None = (
            set(stateless_metrics or ()) if averages else None
        )
        self._values: dict[str, tuple[Any, float]] = {}  # name -> sum, number of steps
        self._last_count = 0
        self._start = perf_counter()
        self._first_step: float | None = None  # time of its completion
        self._draw_time = -float("inf")
        self._length = 0  # length of the line on the screen

    def update(
        self,
        current: int,
        values: Iterable[tuple[str, Any]] | None = None,
        finalize: bool | None = None,
    ) -> None:
        """Show that `current` steps are complete.

        Args:
            current: the number of completed steps.
            values: pairs of names and the values of the last step.
            finalize: whether this is the last update; None: if `current` is the target.
        """
        if finalize is None:
            finalize = self.target is not None and current >= self.target
        for name, value in values or ():
            self._add_value(name, value, max(current - self._last_count, 1), finalize)
        self._last_count = current
        time = perf_counter()
        step_time = self._format_step_time(current, time)
        if self.verbose == 1 and (finalize or time - self._draw_time >= self.interval):
            self._draw(current, time, step_time, finalize)
            self._draw_time = time
        elif self.verbose == 2 and finalize and self.target:
            fields = [
                self._format_count(current),
                f"{time - self._start:.0f}s",
                step_time,
            ]
            print_message(" - ".join([*fields, *self._format_values()]))

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Show that `n` more steps are complete.

        Args:
            n: the number of steps.
            values: pairs of a name and a number, which the bar shows.
        """
        self.update(self._last_count + n, values)

    def _add_value(self, name: str, value: Any, steps: int, finalize: bool) -> None:
        if self.stateless_metrics is not None:
            is_averaged = name in self.stateless_metrics
        else:
            is_averaged = name not in (self.stateful_metrics or ())
        if not is_averaged or finalize:  # the final values are already averages
            self._values[name] = value, 1
            return
        total, count = self._values.get(name, (0.0, 0))
        self._values[name] = total + np.asarray(value) * steps, count + steps

    def _format_step_time(self, num_steps: int, time: float) -> str:
        """Return the time per step, without the first one unless it is the only one."""
        if not num_steps:
            return f"0s/{self.unit_name}"
        start_time, steps = self._start, num_steps
        if self._first_step is not None and num_steps > 1:
            start_time, steps = self._first_step, num_steps - 1
        if num_steps == 1:
            self._first_step = time
        self._step_seconds = (time - start_time) / steps
        return f"{duration(self._step_seconds)}/{self.unit_name}"

    _step_seconds = 0.0  # time of a step

    def _format_values(self) -> list[str]:
        return [f"{name}: {_format_mean(*pair)}" for name, pair in self._values.items()]

    def _format_count(self, current: int) -> str:
        return f"{current:{len(str(self.target))}d}/{self.target}"

    def _draw(self, current: int, time: float, step_time: str, finalize: bool) -> None:
        if self.target:
            count = self._format_count(current)
            num_filled = min(int(self.width * current / self.target), self.width)
        else:
            count, num_filled = f"{current:7d}/Unknown", 0
        seconds = f"{time - self._start:.0f}s"
        if self.target and not finalize:
            seconds = _format_remaining_time(
                self._step_seconds * (self.target - current)
            )
        suffix = " - ".join([f" {step_time}", *self._format_values()])
        bar = "━" * self.width if self.target else ""
        length = len(f"{count} {bar} {seconds}{suffix}")
        use_colors = (
            is_interactive() and is_interactive_logging_enabled() and _has_colors()
        )
        text = (
            f"{count} {bar[:num_filled]}{' ' * len(bar[num_filled:])} {seconds}{suffix}"
        )
        if use_colors:
            colored_bar = (
                f"{_GREEN}{bar[:num_filled]}{_WHITE}{bar[num_filled:]}{_RESET}"
            )
            text = (
                f"{_BOLD}{count}{_RESET} {colored_bar} {_BOLD}{seconds}{_RESET}{suffix}"
            )
        padding = " " * (self._length - length)
        self._length = length
        end = "\n" if finalize else ""
        print_message(f"\r{text}{padding}{end}", line_break=False)


def _has_colors() -> bool:
    """Return whether the terminal has colors; old Windows consoles have none."""
    return sys.platform != "win32" or not _TERMINAL_VARIABLES.isdisjoint(os.environ)


def _format_mean(total: Any, count: float) -> str:
    mean = float(np.mean(total)) / max(count, 1)
    return f"{mean:.4f}" if abs(mean) > 1e-3 else f"{mean:.4e}"


def _format_remaining_time(seconds: float) -> str:
    """Format the time left: `7s`, `2:05` or `1:02:05`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}" if minutes else f"{seconds}s"
