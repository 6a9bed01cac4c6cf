"""Tests of memory that ranks of one machine share, and of the fallback."""

import os

import numpy as np

from toolkit.comm import Leaves, all_reduce, local, shared
from toolkit.comm.slow_link import SlowGroup


def test_memory_is_shared_unless_a_rank_fails(monkeypatch):
    assert None not in local.run(3, shared.memory_of)
    mapped = shared._map_peer_memory
    alone = []

    def fails(*arguments):
        return mapped(*arguments) if alone else alone.append(1)

    monkeypatch.setattr(shared, "_map_peer_memory", fails)
    assert local.run(3, shared.memory_of) == [None] * 3


def test_memory_is_not_that_of_another_process():
    def of(group):
        memory = shared._map_memory(group, 1 << 12)
        found = os.memfd_create("other")
        try:
            told = [os.getpid(), found, "00" * 16]
            assert shared._map_peer_memory(told, 1 << 12) is None  # it is empty
            assert (
                shared._map_peer_memory([os.getpid(), 10**6, "00" * 16], 1 << 12)
                is None
            )
        finally:
            os.close(found)
        return memory

    (memory,) = local.run(1, of)
    assert memory.shape == (1 << 12,)


def test_slot_is_not_overwritten_during_reads():
    leaves = Leaves.of_rows(2, 2)

    def of(group):
        found = []
        for turn in range(200):
            out = np.empty(1000, np.float32)
            term = np.full(1000, turn + group.rank, np.float32)
            all_reduce(group, [[term]], leaves, [out])
            found.append(set(out.tolist()))
        return found

    assert local.run(2, of) == [[{2 * turn + 1.0} for turn in range(200)]] * 2


def test_remote_ranks_use_messages():
    far = local.run(2, lambda g: shared.memory_of(SlowGroup(g, 0, 1e9)))
    assert far == [None, None]
