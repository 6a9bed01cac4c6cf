"""Test that saves which are killed or fail leave the older or the newer save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killing.py")
FORMATS = ("keras", "weights", "folder", "shards")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def killing(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.one_in(4)
def test_kill_at_some_events_leaves_a_complete_save(kind, tmp_path):
    assert killing("events", kind, tmp_path, 3, 0) > 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_kill_at_each_event_leaves_a_complete_save(kind, tmp_path):
    assert killing("events", kind, tmp_path, 1, 0) > 15


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.one_in(4)
def test_failure_at_some_events_leaves_a_complete_save(kind, tmp_path):
    assert killing("failures", kind, tmp_path, 3, 0) > 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_failure_at_each_event_leaves_a_complete_save(kind, tmp_path):
    assert killing("failures", kind, tmp_path, 1, 0) > 15


@pytest.mark.parametrize("kind", FORMATS)
def test_random_kills_leave_a_complete_save(kind, tmp_path):
    assert killing("random", kind, tmp_path, 3, 1)["kills"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_50_random_kills_leave_a_complete_save(kind, tmp_path):
    assert killing("random", kind, tmp_path, 50, 2)["kills"] == 50


def test_killed_trainings_end_in_the_same_bits(tmp_path):
    assert killing("trainings", "backup", tmp_path, 2, 3)["kills"] == 2


@pytest.mark.slow
def test_200_kills_of_trainings_end_in_the_same_bits(tmp_path):
    assert killing("trainings", "backup", tmp_path, 200, 4)["kills"] == 200
