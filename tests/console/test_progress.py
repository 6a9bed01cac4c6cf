"""Tests of progress bars of slow work: their start, their text, and their removal."""

import io
import os
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from toolkit import layers, settings
from toolkit.console import progress
from toolkit.console.progress import show_progress, stage
from toolkit.data import Dataset


class Terminal(io.StringIO):
    """A terminal that records all its output."""

    def isatty(self):
        return True

    def drawings(self):
        return [line.strip() for line in self.getvalue().split("\r") if line.strip()]

    def wait_for(self, words):
        """Wait until a thread draws something."""
        for _ in range(1000):
            if words in self.getvalue():
                return
            time.sleep(0.005)
        raise AssertionError(f"{words!r} was not drawn, but {self.getvalue()!r}")


@pytest.fixture
def terminal(monkeypatch):
    """Replace standard error by a terminal on which bars appear at once."""
    shown = Terminal()
    # Older versions of tqdm read it, and GNU readline sets it at its import.
    monkeypatch.delenv("COLUMNS", raising=False)
    # Not sys.stderr itself, which pytest changes between set-up and test.
    fake_sys = SimpleNamespace(stderr=shown, modules=sys.modules)
    monkeypatch.setattr(progress, "sys", fake_sys)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.001)
    return shown


def test_bar_shows_stage_and_progress(terminal):
    with show_progress("making it"):
        terminal.wait_for("making it")
        with stage("first"):
            terminal.wait_for("making it: first [")
        with stage("second", 8) as second:
            second.count = 4
            terminal.wait_for("making it: second:  50%")
    assert "4/8" in terminal.getvalue()


def test_bar_is_erased_at_the_end(terminal):
    with show_progress("making it"):
        terminal.wait_for("making it")
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().split("\r")[-2].strip() == ""
    assert not [t for t in threading.enumerate() if t.name == "making it"]


def test_nested_work_shares_the_bar(terminal):
    with show_progress("outer"), stage("all of it", 3) as all_of_it:
        with show_progress("inner"), stage("a part", 100):
            terminal.wait_for("outer: all of it:   0%")
            time.sleep(0.02)
        all_of_it.count = 3
        terminal.wait_for("outer: all of it: 100%")
    with show_progress("another"):
        terminal.wait_for("another")
    assert "inner" not in terminal.getvalue() and "a part" not in terminal.getvalue()


def test_quick_work_shows_no_bar(terminal, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 30.0)
    start = time.perf_counter()
    with show_progress("making it"), stage("first"):
        pass
    assert time.perf_counter() - start < 5
    assert terminal.getvalue() == ""


def test_error_erases_the_bar(terminal):
    with pytest.raises(ZeroDivisionError):
        with show_progress("making it"), stage("first"):
            terminal.wait_for("first")
            raise ZeroDivisionError
    with show_progress("another"):
        terminal.wait_for("another")


@pytest.mark.parametrize("reason", ["no terminal", "logging"])
def test_no_terminal_means_no_thread(reason, terminal, monkeypatch):
    if reason == "logging":
        monkeypatch.setitem(settings.values, "interactive_logging", False)
    else:
        terminal.isatty = lambda: False
    with show_progress("making it"), stage("first", 2) as first:
        first.count += 1
        assert not [t for t in threading.enumerate() if t.name == "making it"]
    assert terminal.getvalue() == ""


def test_compiling_is_shown_with_the_name_of_the_function(terminal, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", "off")
    model = toolkit.Sequential(
        [toolkit.Input((7,)), layers.Dense(13, activation="gelu"), layers.Dense(3)]
    )
    model.add(layers.Lambda(lambda x: x * 0.73908513))  # no other test compiles it
    model.compile("adam", "mse")
    stages = []

    class Stages(list):
        def append(self, stage):
            stages.append(stage)
            super().append(stage)

    class RecordingStages(progress.Work):
        def __init__(self, label):
            super().__init__(label)
            self.stages = Stages()

    monkeypatch.setattr(progress, "Work", RecordingStages)
    model.fit(np.ones((4, 7)), np.ones((4, 3)), verbose=0)
    assert "compiling train_step" in terminal.getvalue()
    names = [stage.name for stage in stages if stage.total is None or stage.count]
    for name in ("tracing", "simplifying", "fusing", "lowering", "kernels"):
        assert name in names
    assert all(stage.count == stage.total for stage in stages if stage.total)


def slow_identity(x):
    time.sleep(0.01)
    return x


def test_cache_file_progress_is_shown(terminal, tmp_path):
    path = tmp_path / "cache"
    cached = Dataset.range(20).map(slow_identity).cache(path)
    assert len(list(cached)) == 20
    assert f"caching in {path}" in terminal.getvalue()
    assert "/20 [" in terminal.getvalue()
    before = terminal.getvalue()
    assert len(list(cached)) == 20
    assert terminal.getvalue() == before  # it is read, not created


def test_data_set_save_progress_is_shown(terminal, tmp_path):
    Dataset.range(20).map(slow_identity).save(tmp_path / "saved")
    assert f"saving in {tmp_path / 'saved'}" in terminal.getvalue()
    assert "/20 [" in terminal.getvalue()


def test_long_path_leaves_room_for_the_progress(terminal, tmp_path):
    termios = pytest.importorskip("termios")
    path = tmp_path / ("long" * 20) / "the name"
    path.parent.mkdir()
    ends = os.openpty()
    try:
        termios.tcsetwinsize(ends[1], (24, 80))
        terminal.fileno = lambda: ends[1]
        Dataset.range(20).map(slow_identity).save(path)
    finally:
        for end in ends:
            os.close(end)
    drawings = terminal.drawings()
    assert all(len(line) <= 80 and line.startswith("saving in /") for line in drawings)
    assert all("..." in line and "long/the name" in line for line in drawings)
    assert any("/20 [" in line for line in drawings)


def test_incomplete_cache_erases_its_bar(terminal, tmp_path):
    elements = iter(Dataset.range(20).map(lambda x: x).cache(tmp_path / "cache"))
    next(elements)
    terminal.wait_for("caching in")
    del elements
    assert not [t for t in threading.enumerate() if t.name.startswith("caching")]
