"""Tests of memory that ranks of one machine share, and of the fallback."""

import os

import numpy as np

from toolkit.comm import Leaves, all_reduce, local, shared
from toolkit.comm.slow_link import SlowGroup


def test_memory_is_shared_unless_a_rank_fails(monkeypatch):
    assert None not in local.run(3, shared.memory_of)
    mapped = shared._map_peer_memory
    alone_ranks = []

    def fails(*arguments):
        return mapped(*arguments) if alone_ranks else alone_ranks.append(1)

    monkeypatch.setattr(shared, "_map_peer_memory", fails)
    assert local.run(3, shared.memory_of) == [None] * 3


def test_memory_is_not_that_of_another_process():
    def of(group):
        memory = shared.map_memory(group, 1 << 12)
        descriptor = os.memfd_create("other")
        try:
            description = [os.getpid(), descriptor, "00" * 16]
            assert shared._map_peer_memory(description, 1 << 12) is None  # it is empty
            assert (
                shared._map_peer_memory([os.getpid(), 10**6, "00" * 16], 1 << 12)
                is None
            )
        finally:
            os.close(descriptor)
        return memory

    (memory,) = local.run(1, of)
    assert memory.shape == (1 << 12,)


def test_slot_is_not_overwritten_during_reads():
    leaves = Leaves.of_rows(2, 2)

    def of(group):
        sums = []
        for iteration in range(200):
            out = np.empty(1000, np.float32)
            term = np.full(1000, iteration + group.rank, np.float32)
            all_reduce(group, [[term]], leaves, [out])
            sums.append(set(out.tolist()))
        return sums

    assert local.run(2, of) == [[{2 * iteration + 1.0} for iteration in range(200)]] * 2


def test_remote_ranks_use_messages():
    far = local.run(2, lambda g: shared.memory_of(SlowGroup(g, 0, 1e9)))
    assert far == [None, None]
