"""Tests of programs that differ between ranks, and of the delays of a slow link."""

import time

import numpy as np
import pytest

from toolkit.comm import compare_programs, local
from toolkit.comm.slow_link import SlowGroup, with_simulated_link
from toolkit.errors import ArgumentError, ProgramMismatchError


@pytest.mark.parametrize(
    "programs, words",
    [
        ([["a", "b"], ["a", "c"]], r"line 2: rank 0: 'b'; rank 1: 'c'"),
        ([["a"], ["a"], ["b"]], r"line 1: ranks 0, 1: 'a'; rank 2: 'b'"),
        ([["a"], ["a", "b"]], r"line 2: rank 0: ends before it; rank 1: 'b'"),
        ([[], ["b"]], r"line 1: rank 0: ends before it"),
    ],
)
def test_every_rank_names_the_first_difference(programs, words):
    def of(group):
        with pytest.raises(ProgramMismatchError, match=words):
            compare_programs(group, programs[group.rank])

    local.run(len(programs), of)


def test_equal_programs_exchange_one_hash():
    class CountingGroup:
        """A group that counts its calls."""

        calls = 0

        def __init__(self, group):
            self.group, self.size = group, group.size

        def all_gather(self, send, receive):
            self.calls += 1
            self.group.all_gather(send, receive)

    def of(group):
        counting = CountingGroup(group)
        compare_programs(counting, ["line"] * 1000)
        return counting.calls

    assert local.run(3, of) == [1, 1, 1]


def test_job_can_simulate_a_slow_link(monkeypatch):
    group = local.single()
    assert with_simulated_link(group) is group
    monkeypatch.setenv("TOOLKIT_LINK", "0.001,100e6")
    slow = with_simulated_link(group)
    assert (slow.group, slow.latency, slow.bandwidth) == (group, 0.001, 100e6)
    for value in ("fast", "1", "1,2,3"):
        monkeypatch.setenv("TOOLKIT_LINK", value)
        with pytest.raises(ArgumentError, match=f"TOOLKIT_LINK.*'{value}'"):
            with_simulated_link(group)


def test_slow_link_delays_transfers():
    def of(group):
        slow = SlowGroup(group, latency=0.01, bandwidth=1e6)
        began = time.monotonic()
        received = np.empty((2, 10_000), np.uint8)
        slow.all_gather(np.full(10_000, group.rank, np.uint8), received)
        slow.split(0, group.rank).barrier()
        return time.monotonic() - began, received[:, 0].tolist()

    for seconds, received in local.run(2, of):
        assert received == [0, 1]
        assert seconds >= 0.01 + 0.01 + 0.01


@pytest.mark.parametrize("latency, bandwidth", [(-1, 1), (0, 0), (0, float("nan"))])
def test_invalid_link_is_refused(latency, bandwidth):
    with pytest.raises(ArgumentError, match="SlowGroup"):
        SlowGroup(local.single(), latency, bandwidth)
