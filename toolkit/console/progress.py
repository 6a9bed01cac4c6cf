"""Bars for what may take long: they appear after a second, and leave at the end.

    with working("compiling train_step"):
        with stage("lowering", len(nodes)) as lowering:
            for node in nodes:
                ...
                lowering.done += 1

A thread draws them, so that a single long call is shown too. Where no terminal or
notebook shows standard error, there is neither thread nor bar.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread, local
from typing import Any

from toolkit import settings

DELAY, REFRESH = 1.0, 0.2  # seconds before the bar appears, and between two drawings
_FIGURES = 40  # columns that are left for how much is done


def can_redraw(stream: Any) -> bool:
    """Whether what is written to a stream can be redrawn: a terminal or a notebook."""
    return "ipykernel" in sys.modules or bool(getattr(stream, "isatty", bool)())


@dataclass
class Stage:
    """A part of some work: what it is called, and how much of it is done.

    total: None where that is not known.
    """

    name: str
    total: int | None = None
    done: int = 0


class Work:
    """Something that takes time: what it is called, and the stages that it is in."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.stages: list[Stage] = []
        self._ended = Event()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start the thread that draws, if anybody can see it."""
        if settings.is_interactive_logging_enabled() and can_redraw(sys.stderr):
            self._thread = Thread(target=self._draw, name=self.label, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Take the bar away."""
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
        columns = bar.format_dict["ncols"]  # None where that is not known
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
    """The text, without its middle if it is longer: a path has its name at the end."""
    if len(text) <= columns:
        return text
    end = (columns - 3) // 2
    return f"{text[: columns - 3 - end]}...{text[-end:]}"


class _Current(local):
    """The work that is under way on each thread."""

    work: Work | None = None


_current = _Current()


@contextmanager
def working(label: str) -> Iterator[None]:
    """Show what goes on inside, unless that is part of some other work."""
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
    """A stage of the work under way; the outermost is shown."""
    found = Stage(name, total)
    stages = _current.work.stages if _current.work else []
    stages.append(found)
    try:
        yield found
    finally:
        stages.pop()
