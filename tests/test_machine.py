"""Tests of the resources that a process may use: bound cores and quotas."""

import math
import os
import subprocess
import sys

import pytest

from toolkit import machine, settings

# The groups of the process, the content of the files, and the expected cores.
QUOTAS = {
    "no groups": ("", {}, math.inf),
    "no limit": (
        "0::/a",
        {"cpu.max": "max 100000", "a/cpu.max": "max 100000"},
        math.inf,
    ),
    "its own group": ("0::/a/b", {"a/b/cpu.max": "150000 100000"}, 1.5),
    "a group above": (
        "0::/a/b",
        {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"},
        2.0,
    ),
    "the tightest": (
        "0::/a/b",
        {"a/cpu.max": "50000 100000", "a/b/cpu.max": "300000 100000"},
        0.5,
    ),
    "a container": ("0::/docker/0123", {"cpu.max": "300000 100000"}, 3.0),
    "version 1": (
        "4:memory:/x\n3:cpu,cpuacct:/a",
        {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "50000"},
        5.0,
    ),
    "version 1, no limit": (
        "3:cpu:/",
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        math.inf,
    ),
    "nonsense": ("0::/", {"cpu.max": "a lot"}, math.inf),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_control_group_quotas_are_read(tmp_path, name):
    membership_text, files, cores = QUOTAS[name]
    membership = tmp_path / "membership"
    membership.write_text(membership_text)
    for path, text in files.items():
        file = tmp_path / "groups" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert machine.core_quota(membership, tmp_path / "groups") == cores


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    assert machine.core_quota(tmp_path / "missing") == math.inf


@pytest.mark.parametrize("quota, cores", [(math.inf, 8), (2.9, 2), (0.5, 1), (99, 8)])
def test_thread_count_is_the_number_of_usable_cores(monkeypatch, quota, cores):
    monkeypatch.delenv("TOOLKIT_NUM_THREADS", raising=False)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: set(range(8)), raising=False
    )
    monkeypatch.setattr(machine, "core_quota", lambda: quota)
    assert machine.available_cores() == cores
    assert settings.default_num_threads() == cores


BOUND = """
import os
import subprocess
import sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy as np
import toolkit
from toolkit import ops
assert toolkit.config.num_threads() == 1
x = np.ones((600, 600), "float32")
assert (toolkit.function(lambda x: ops.tanh(x @ x))(x).numpy() == 1).all()
assert (ops.matmul(x, x).numpy() == 600).all()
assert len(os.listdir("/proc/self/task")) == 1, "threads that have no core"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others bind no process")
def test_process_on_one_core_starts_no_thread():
    environment = {k: v for k, v in os.environ.items() if k != "TOOLKIT_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", BOUND]
    subprocess.run(command, env=environment, check=True, timeout=120)
