"""Tests of virtual ranks: all group operations, errors of one rank, and deadlocks."""

import threading

import numpy as np
import pytest

from toolkit import comm, dtypes
from toolkit.comm import local
from toolkit.errors import ArgumentError, CommunicationError, StalledError


def test_all_gather():
    def of(group):
        received = np.empty((3, 2), dtypes.numpy_dtype("bfloat16"))
        group.all_gather(np.full(2, group.rank, received.dtype), received)
        return received.astype(int).tolist()

    assert local.run(3, of) == [[[0, 0], [1, 1], [2, 2]]] * 3


def test_all_gather_varying_in_place():
    counts = [1, 0, 3]

    def of(group):
        received = np.zeros(4, np.uint8)
        start = sum(counts[: group.rank])
        section = received[start : start + counts[group.rank]]
        section[:] = group.rank + 1
        group.all_gather_varying(section, received, counts)
        return received.tolist()

    assert local.run(3, of) == [[1, 3, 3, 3]] * 3


def test_all_to_all():
    def of(group):
        send = np.array([group.rank * 10 + r for r in range(3)], np.int32)
        received = np.empty(3, np.int32)
        group.all_to_all(send, [4] * 3, received, [4] * 3)
        return received.tolist()

    assert local.run(3, of) == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]


def test_all_to_all_with_offsets():
    def of(group):
        send = np.arange(4, dtype=np.uint8) + 10 * group.rank
        received = np.zeros(4, np.uint8)
        group.all_to_all(send, [0, 2], received, [0, 2], [0, 2], [0, 1])
        return received.tolist()

    with pytest.raises(CommunicationError, match=r"expected [02] bytes from rank"):
        local.run(2, of)

    def fitting(group):
        send = np.arange(4, dtype=np.uint8) + 10 * group.rank
        received = np.zeros(4, np.uint8)
        counts = [0, 2] if group.rank == 0 else [2, 0]
        group.all_to_all(send, counts, received, counts, [1, 2], [1, 1])
        return received.tolist()

    assert local.run(2, fitting) == [[0, 11, 12, 0], [0, 2, 3, 0]]


def test_broadcast_send_receive_barrier():
    def of(group):
        word = np.full(2, group.rank, np.int64)
        group.broadcast(word, root=1)
        ring = np.empty(1, np.int64)
        if group.rank == 0:
            group.send(np.array([7]), to=1, tag=3)
        else:
            group.receive(ring, source=0, tag=3)
        group.barrier()
        return word.tolist(), ring.tolist() if group.rank else [7]

    assert local.run(2, of) == [([1, 1], [7])] * 2


def test_split_orders_by_key():
    def of(group):
        inner = group.split(group.rank % 2, -group.rank)
        return inner.rank, inner.size, comm.exchange(inner, group.rank)

    assert local.run(5, of) == [
        (2, 3, [4, 2, 0]),
        (1, 2, [3, 1]),
        (1, 3, [4, 2, 0]),
        (0, 2, [3, 1]),
        (0, 3, [4, 2, 0]),
    ]


def test_groups_split_repeatedly():
    def of(group):
        sums = []
        for iteration in range(20):
            inner = group.split((group.rank + iteration) % 2, 0)
            sums.append(sum(comm.exchange(inner, group.rank)))
        return sums

    assert local.run(4, of)[0] == [2] * 20


def test_duplicate_serves_another_thread():
    def of(group):
        other, results_of_thread = group.duplicate(), []

        def talk():
            results_of_thread.extend(comm.exchange(other, "other") for _ in range(20))

        thread = threading.Thread(target=talk)
        thread.start()
        ranks_of_calls = [comm.exchange(group, "mine") for _ in range(20)]
        thread.join()
        return (
            ranks_of_calls == [["mine"] * 3] * 20
            and results_of_thread == [["other"] * 3] * 20
        )

    assert local.run(3, of) == [True] * 3


def test_exchange_accepts_json():
    values = local.run(3, lambda group: comm.exchange(group, [group.rank, "ü", None]))
    assert values == [[[0, "ü", None], [1, "ü", None], [2, "ü", None]]] * 3


def test_world_is_one_rank_without_a_launcher():
    assert (comm.world().rank, comm.world().size) == (0, 1)
    assert comm.exchange(comm.world(), 5) == [5]


def test_an_exception_in_one_rank_ends_all():
    def of(group):
        if group.rank == 1:
            raise KeyError("mine")
        group.barrier()

    with pytest.raises(KeyError, match="mine"):
        local.run(3, of)


def test_wait_for_a_finished_rank_is_an_error():
    def of(group):
        if group.rank != 1:
            group.barrier()

    with pytest.raises(StalledError, match="rank 1, but a missing one has returned"):
        local.run(2, of)


def test_deadlocks_are_detected():
    def of(group):
        group.send(np.zeros(1), to=1 - group.rank)
        group.receive(np.zeros(1), source=1 - group.rank)

    with pytest.raises(StalledError, match=r"send to rank .* within 0.2 s"):
        local.run(2, of, timeout=0.2)


def test_different_collectives_are_named():
    def of(group):
        if group.rank:
            group.barrier()
        else:
            group.broadcast(np.zeros(1))

    with pytest.raises(CommunicationError, match="rank 0 broadcast, rank 1 barrier"):
        local.run(2, of)


def test_different_sizes_are_named():
    def of(group):
        group.broadcast(np.zeros(1 + group.rank))

    with pytest.raises(CommunicationError, match="rank 1 expected 16 bytes"):
        local.run(2, of)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda g: g.send(np.zeros(1), to=1), "send: to.*received 1"),
        (lambda g: g.broadcast(np.zeros(1), root=-1), "root.*received -1"),
        (lambda g: g.broadcast(np.zeros((2, 2)).T[:1]), "contiguous"),
        (lambda g: g.all_gather(np.zeros(1), np.zeros(2)), "of 8 bytes.*received 16"),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(ArgumentError, match=words):
        call(local.single())


def test_no_ranks():
    with pytest.raises(ArgumentError, match="received 0"):
        local.run(0, lambda group: None)
