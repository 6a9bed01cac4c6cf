"""Tests of groups over sockets, with the processes of a job as threads."""

import os
import threading
import time

import numpy as np
import pytest

from tests.comm import virtual
from toolkit import comm, dtypes
from toolkit.comm.sockets.keys import create_job_folder, derive_keys
from toolkit.comm.sockets.memory import is_supported
from toolkit.comm.sockets.node import Node
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    LaunchError,
    ProgramMismatchError,
    RankLostError,
)

TRANSPORTS = ["messages"]
if is_supported():
    TRANSPORTS.append("memory")


@pytest.fixture(params=TRANSPORTS)
def run(request, monkeypatch):
    """Run a function on each rank of a group with one of the transports."""
    if request.param == "messages":
        monkeypatch.setattr("platform.machine", lambda: "without ordered stores")
    return virtual.run


def test_all_gather_of_any_dtype(run):
    def of(group):
        received = np.empty((3, 2), dtypes.numpy_dtype("bfloat16"))
        group.all_gather(np.full(2, group.rank, received.dtype), received)
        return received.astype(int).tolist()

    assert run(3, of) == [[[0, 0], [1, 1], [2, 2]]] * 3


def test_large_varying_parts(run):
    counts = [700_000, 0, 1_300_001]

    def of(group):
        received = np.zeros(sum(counts), np.uint8)
        start = sum(counts[: group.rank])
        section = received[start : start + counts[group.rank]]
        section[:] = group.rank + 1
        group.all_gather_varying(section, received, counts)
        return [int(received[:700_000].sum()), int(received[700_000:].sum())]

    assert run(3, of) == [[700_000, 3 * 1_300_001]] * 3


@pytest.mark.parametrize("elements", [1, 60_000])
def test_all_to_all(run, elements):
    def of(group):
        send = np.repeat([group.rank * 10 + r for r in range(3)], elements)
        received = np.empty(3 * elements, send.dtype)
        counts = [8 * elements] * 3
        group.all_to_all(send, counts, received, counts)
        return received.reshape(3, elements)[:, -1].tolist()

    assert run(3, of) == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]


def test_all_to_all_with_offsets_between_some_ranks(run):
    def of(group):
        send = np.arange(4, dtype=np.uint8) + 10 * group.rank
        received = np.zeros(4, np.uint8)
        counts = {0: [0, 2, 0], 1: [2, 0, 0], 2: [0, 0, 0]}[group.rank]
        group.all_to_all(send, counts, received, counts, [1, 2, 0], [1, 1, 0])
        return received.tolist()

    assert run(3, of) == [[0, 11, 12, 0], [0, 2, 3, 0], [0, 0, 0, 0]]


def test_broadcast_send_receive(run):
    def of(group):
        values = np.full(100_000, group.rank, np.int64)
        group.broadcast(values, root=1)
        received = np.empty(400_000, np.int64)
        if group.rank == 0:
            group.send(np.array([5]), to=1, tag=8)
            group.send(np.arange(400_000), to=1, tag=7)
            group.send(np.empty(0), to=1, tag=9)
        else:  # the tags select messages in another order
            group.receive(np.empty(0), source=0, tag=9)
            group.receive(received, source=0, tag=7)
            group.receive(values[:1], source=0, tag=8)
        group.barrier()
        return int(values[0]), int(values[-1]), int(received[-1]) * group.rank

    assert run(2, of) == [(1, 1, 0), (5, 1, 399_999)]


def test_no_rank_leaves_a_barrier_before_all_have_entered(run):
    def of(group):
        group.barrier()
        time.sleep(0.1 * group.rank)
        entry = time.monotonic()
        group.barrier()
        return entry, time.monotonic()

    times = run(4, of)
    assert max(entry for entry, _ in times) <= min(exit for _, exit in times)


def test_groups_split_and_close(run):
    def of(group):
        sums = []
        for iteration in range(5):
            inner = group.split((group.rank + iteration) % 2, -group.rank)
            sums.append([inner.rank, *comm.exchange(inner, group.rank)])
            inner.close()
        return sums

    assert run(4, of)[0] == [[1, 2, 0], [1, 2, 0], [1, 2, 0], [1, 2, 0], [1, 2, 0]]


def test_a_thread_has_its_own_channel(run):
    def of(group):
        duplicate, received = group.duplicate(), []

        def exchange():
            received.extend(comm.exchange(duplicate, "thread") for _ in range(20))

        thread = threading.Thread(target=exchange)
        thread.start()
        values = [comm.exchange(group, "main") for _ in range(20)]
        thread.join()
        return values == [["main"] * 2] * 20 and received == [["thread"] * 2] * 20

    assert run(2, of) == [True, True]


def test_a_receiver_that_is_late_stops_the_sender(monkeypatch):
    """The memory of a receiver is limited, whatever a sender sends."""
    sent = []

    def of(group):
        chunk = np.zeros(4 << 20, np.uint8)
        if group.rank == 0:
            for _ in range(6):
                group.send(chunk, to=1)
                sent.append(chunk.size)
        else:
            time.sleep(0.5)
            early = sum(sent)
            for _ in range(6):
                group.receive(chunk, source=0)
            return early
        return 0

    assert virtual.run(2, of)[1] <= 8 << 20


def test_ordered_sums_have_the_bits_of_one_process(run):
    leaves = comm.Leaves.of_rows(4, 4)
    terms = np.random.default_rng(0).standard_normal((4, 70_000)).astype("float32")
    expected = (terms[0] + terms[1]) + (terms[2] + terms[3])

    def of(group):
        pieces = [
            terms[first] if size == 1 else terms[first] + terms[first + 1]
            for first, size in leaves.pieces(group.rank, group.size)
        ]
        out = np.empty(70_000, np.float32)
        comm.all_reduce(group, [pieces], leaves, [out])
        return out.tobytes() == expected.tobytes()

    assert run(3, of) == [True] * 3


# --- errors ---------------------------------------------------------------------------


def test_lengths_that_differ_are_an_error(run):
    def of(group):
        counts = [0, 2 + group.rank] if group.rank == 0 else [3, 0]
        data = np.zeros(8, np.uint8)
        group.all_to_all(data, counts, data.copy(), counts)

    with pytest.raises(CommunicationError, match="expected [23] bytes from rank"):
        run(2, of)


def test_message_of_another_length_is_an_error():
    def of(group):
        if group.rank == 0:
            group.send(np.zeros(3), to=1)
        else:
            group.receive(np.zeros(2), source=0)

    with pytest.raises(CommunicationError, match="expected 16 bytes.*received 24"):
        virtual.run(2, of)


@pytest.mark.skipif(not is_supported(), reason="no shared memory on this machine")
def test_different_collectives_are_an_error():
    def of(group):
        group.barrier()
        group.broadcast(np.zeros(3)) if group.rank else group.barrier()

    with pytest.raises(ProgramMismatchError, match="rank 0 runs barrier; rank 1 runs"):
        virtual.run(2, of)


@pytest.mark.skipif(not is_supported(), reason="no shared memory on this machine")
def test_no_collective_follows_different_collectives():
    """Otherwise a rank that handles the error would get data of another call."""

    def of(group):
        expected = "rank 0 runs barrier; rank 1 runs"
        with pytest.raises(ProgramMismatchError, match=expected):
            group.broadcast(np.zeros(3)) if group.rank else group.barrier()
        with pytest.raises(ProgramMismatchError, match=expected):
            group.barrier()

    virtual.run(2, of)


def test_counts_that_do_not_match_are_refused():
    def of(group):
        with pytest.raises(ArgumentError, match="all_gather"):
            group.all_gather(np.zeros(1), np.zeros(3))
        with pytest.raises(ArgumentError, match="contiguous"):
            group.broadcast(np.zeros((2, 2))[:, 0])
        with pytest.raises(ArgumentError, match="send: expected another rank"):
            group.send(np.zeros(1), to=group.rank)

    virtual.run(2, of)


# --- lost ranks -----------------------------------------------------------------------


def test_the_loss_of_a_rank_is_an_error_on_all_others(run):
    everyone = threading.Barrier(3)

    def of(group):
        group.barrier()
        everyone.wait(10)
        if group.rank == 2:
            group.node.close(0)
            return None
        start = time.monotonic()
        with pytest.raises(RankLostError, match="rank 2 of 3 is lost"):
            while True:
                group.barrier()
        seconds = time.monotonic() - start
        smaller = group.shrink()
        members = comm.exchange(smaller, group.rank)
        with pytest.raises(RankLostError):
            group.barrier()
        return seconds < 1, members, smaller.rank

    assert run(3, of)[:2] == [(True, [0, 1], 0), (True, [0, 1], 1)]


def test_successive_losses_shrink_the_group(run):
    everyone = {1: threading.Barrier(4), 3: threading.Barrier(3)}

    def of(group):
        group.barrier()
        for lost in (1, 3):
            # A rank that ends while another is in the call before it breaks that call.
            everyone[lost].wait(10)
            if group.node.process == lost:
                group.node.close(0)
                return None
            with pytest.raises(RankLostError):
                while True:
                    group.barrier()
            group = group.shrink()
        return comm.exchange(group, group.node.process)

    assert run(4, of) == [[0, 2], None, [0, 2], None]


def test_revoked_group_ends_the_calls_of_all_ranks():
    def of(group):
        inner = group.duplicate()
        if group.rank == 0:
            with pytest.raises(RankLostError, match="revoked"):
                inner.receive(np.empty(1), source=1)
        else:
            time.sleep(0.1)
            inner.revoke()
        return comm.exchange(group, group.rank)

    assert virtual.run(2, of) == [[0, 1]] * 2


# --- rendezvous -----------------------------------------------------------------------


def test_processes_meet_at_a_port():
    port = free_port()
    job = virtual.tcp_memberships(port, 3)
    results = virtual.run(3, lambda group: comm.exchange(group, group.rank), job=job)
    assert results == [[0, 1, 2]] * 3


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_missing_rank_is_named():
    job = virtual.memberships(create_job_folder(), 3)[:1]
    with pytest.raises(LaunchError, match="ranks 1, 2 did not connect in time"):
        virtual.run(1, lambda group: None, job=job, join_timeout=0.5)


def test_another_secret_is_refused():
    port = free_port()
    job = virtual.tcp_memberships(port, 2)
    job[1] = job[1]._replace(secret=b"another secret, also long")
    with pytest.raises(LaunchError, match="TOOLKIT_JOB_SECRET is not the same"):
        virtual.run(2, lambda group: None, job=[job[1], job[0]], join_timeout=3)


def test_world_sizes_that_differ_are_refused():
    job = virtual.memberships(create_job_folder(), 2)
    job[1] = job[1]._replace(size=3)
    with pytest.raises(LaunchError, match="expects 3 processes.*rank 0 expects 2"):
        virtual.run(2, lambda group: None, job=job)


def test_port_in_use_is_reported():
    port = free_port()
    keys = derive_keys(virtual.SECRET)
    node = Node(0, keys, f"tcp://127.0.0.1:{port}")
    with pytest.raises(LaunchError, match="cannot listen at tcp://127.0.0.1"):
        Node(0, keys, f"tcp://127.0.0.1:{port}")
    node.close(0)


def test_short_secret_is_refused():
    with pytest.raises(LaunchError, match="at least 16.*received 5.*openssl rand"):
        derive_keys(b"short")


def test_folder_of_a_job_is_private():
    folder = create_job_folder()
    modes = [os.stat(path).st_mode & 0o777 for path in (folder, folder / "secret")]
    assert modes == [0o700, 0o600]
