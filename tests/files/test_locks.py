"""Test locks on open files with the mechanism of each system."""

from __future__ import annotations

import sys
import threading

import pytest

from tests.files.other_systems import as_on_windows
from toolkit.files.locks import lock


@pytest.mark.parametrize("system", ["here", "windows"])
def test_lock_has_one_owner_and_peers_wait(system, tmp_path, monkeypatch):
    if system == "windows":
        as_on_windows(monkeypatch)
    path, has_lock = tmp_path / "x", threading.Event()
    path.write_text("text")

    def wait():
        with open(path, "r+b") as other:
            assert lock(other.fileno())
            has_lock.set()

    with open(path, "r+b") as first, open(path, "rb") as second:
        assert lock(first.fileno())
        assert not lock(second.fileno(), wait=False)
        assert first.tell() == 0 and second.read() == b"text"
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not has_lock.wait(0.1)
    assert has_lock.wait(10)
    waiting.join()


def test_file_system_without_locks(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", fail)
    with open(tmp_path / "x", "w", encoding="utf-8") as file:
        assert not lock(file.fileno())


def test_system_without_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with open(tmp_path / "x", "w", encoding="utf-8") as file:
        assert not lock(file.fileno())
