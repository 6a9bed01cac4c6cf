"""Progress bars for long operations; they appear after one second.

    with show_progress("compiling train_step"):
        with stage("lowering", len(nodes)) as lowering:
            for node in nodes:
                ...
                lowering.count += 1

A thread draws the bars, so that a single long call also shows one. Without a terminal
or notebook on standard error, there is no thread and no bar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread, local
from typing import Any

from toolkit import settings

DELAY, REFRESH = 1.0, 0.2  # seconds before the bar appears, and between redraws
_FIGURE_COLUMNS = 40  # columns for the progress numbers


def can_redraw(stream: Any) -> bool:
    """Return whether a stream can be redrawn: a terminal or a notebook."""
    return "ipykernel" in sys.modules or bool(getattr(stream, "isatty", bool)())


@dataclass
class Stage:
    """Part of an operation: its label and progress.

    total: None if the total is unknown.
    """

    name: str
    total: int | None = None
    count: int = 0


class Work:
    """Operation that takes time: its label and its active stages."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.stages: list[Stage] = []
        self._end_event = Event()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start the drawing thread, if the output is visible."""
        if settings.is_interactive_logging_enabled() and can_redraw(sys.stderr):
            self._thread = Thread(target=self._draw, name=self.label, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Remove the bar."""
        self._end_event.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._end_event.wait(DELAY):
            return
        from tqdm.auto import tqdm

        options = {"bar_format": "{desc}", "leave": False, "dynamic_ncols": True}
        with tqdm(file=sys.stderr, **options) as bar:
            bar.start_t -= DELAY
            while True:
                self._update(bar)
                if self._end_event.wait(REFRESH):
                    return

    def _update(self, bar: Any) -> None:
        current = Stage("")
        with suppress(IndexError):  # the last stage has just ended
            current = self.stages[0]
        name = f": {current.name}" if current.name else ""
        columns = bar.format_dict["ncols"]  # None if unknown
        text = f"{self.label}{name}"
        if columns is not None:
            text = _shorten_middle(
                max(columns - _FIGURE_COLUMNS, _FIGURE_COLUMNS), text
            )
        bar.set_description_str(text, refresh=False)
        bar.n, bar.total = current.count, current.total
        bounded_format = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
        bar.bar_format = (
            bounded_format if current.total else "{desc} {n_fmt} [{elapsed}]"
        )
        if not (current.total or current.count):
            bar.bar_format = "{desc} [{elapsed}]"
        bar.refresh()


def _shorten_middle(columns: int, text: str) -> str:
    """Return the text, shortened in the middle: a path has its file name at the end."""
    if len(text) <= columns:
        return text
    end = (columns - 3) // 2
    return f"{text[: columns - 3 - end]}...{text[-end:]}"


class _Current(local):
    """The current operation of each thread."""

    work: Work | None = None


_current = _Current()


@contextmanager
def show_progress(label: str) -> Iterator[None]:
    """Show progress in this context, unless it is nested in another operation."""
    if _current.work is not None:
        yield
        return
    work = _current.work = Work(label)
    work.begin()
    try:
        yield
    finally:
        _current.work = None
        work.end()


@contextmanager
def stage(name: str, total: int | None = None) -> Iterator[Stage]:
    """Return a stage of the current operation; the outermost one is shown."""
    active_stage = Stage(name, total)
    stages = _current.work.stages if _current.work else []
    stages.append(active_stage)
    try:
        yield active_stage
    finally:
        stages.pop()
