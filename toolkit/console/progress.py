"""Progress bars for long operations; they appear after one second.

    with working("compiling train_step"):
        with stage("lowering", len(nodes)) as lowering:
            for node in nodes:
                ...
                lowering.done += 1

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
_FIGURES = 40  # columns for the progress numbers


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
    done: int = 0


class Work:
    """Operation that takes time: its label and its active stages."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.stages: list[Stage] = []
        self._ended = Event()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start the drawing thread, if the output is visible."""
        if settings.is_interactive_logging_enabled() and can_redraw(sys.stderr):
            self._thread = Thread(target=self._draw, name=self.label, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Remove the bar."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._ended.wait(DELAY):
            return
        from tqdm.auto import tqdm

        look = {"bar_format": "{desc}", "leave": False, "dynamic_ncols": True}
        with tqdm(file=sys.stderr, **look) as bar:
            bar.start_t -= DELAY
            while True:
                self._show(bar)
                if self._ended.wait(REFRESH):
                    return

    def _show(self, bar: Any) -> None:
        shown = Stage("")
        with suppress(IndexError):  # the last stage has just ended
            shown = self.stages[0]
        name = f": {shown.name}" if shown.name else ""
        columns = bar.format_dict["ncols"]  # None if unknown
        text = f"{self.label}{name}"
        if columns is not None:
            text = _within(max(columns - _FIGURES, _FIGURES), text)
        bar.set_description_str(text, refresh=False)
        bar.n, bar.total = shown.done, shown.total
        known = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
        bar.bar_format = known if shown.total else "{desc} {n_fmt} [{elapsed}]"
        if not (shown.total or shown.done):
            bar.bar_format = "{desc} [{elapsed}]"
        bar.refresh()


def _within(columns: int, text: str) -> str:
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
def working(label: str) -> Iterator[None]:
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
    found = Stage(name, total)
    stages = _current.work.stages if _current.work else []
    stages.append(found)
    try:
        yield found
    finally:
        stages.pop()
