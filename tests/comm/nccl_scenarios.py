"""Scenarios of the NCCL tests: functions that each rank runs in a process.

Each function receives its control group and the file of the stand-in. It returns the
observations of the test as JSON.
"""

import ctypes
import hashlib
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tests.backends.cupy.host import HostDevice
from tests.comm.nccl_ranks import FileGroup
from tests.comm.test_ordered import split_leaves
from tests.comm.test_sum_plans import combination, getter
from toolkit import dtypes
from toolkit.backends.cupy.device_sums import DeviceSum
from toolkit.comm import Leaves, nccl
from toolkit.comm.nccl import Span
from toolkit.comm.nccl_library import Library
from toolkit.comm.sum_plans import Term, plan_all_reduce, plan_reduce_scatter
from toolkit.errors import (
    ArgumentError,
    BackendUnavailable,
    CommunicationError,
    RankLostError,
    StalledError,
)

STREAM = 77
# The shapes that `sums` adds: in equal shards, replicated, and in unequal shards.
TERMS = [
    Term(6000, "float32", Leaves.of_rows(9, 5)),
    Term(40, "bfloat16", Leaves.of_rows(9, 5)),
    Term(5000, "int32", Leaves.of_rows(2, 4), "max"),
]


def span(array):
    return Span(array.ctypes.data, array.nbytes)


def joined(control, path, timeout=20.0, device=None):
    """Return a group over the stand-in, and a function that waits for its stream."""
    pending = ctypes.CDLL(path).fakeStreamPending
    pending.argtypes = (ctypes.c_void_p,)
    name = f"GPU-{control.rank}" if device is None else device
    group = nccl.connect(control, name, STREAM, timeout, lambda: Library(path))
    return group, lambda stream=STREAM: pending(stream) == 0


def results(control, path):
    """Run all transfers of bytes."""
    group, is_done = joined(control, path)
    rank, size = group.rank, group.size
    report = {"rank": rank, "size": size}
    own_array = np.arange(3000, dtype=np.float32) + 10000 * rank
    everything = np.zeros((size, 3000), np.float32)
    group.all_gather(span(own_array), span(everything))
    counts = [4 * 100 * r for r in range(size)]  # rank 0 sends nothing
    varying = np.zeros(sum(counts) // 4, np.float32)
    group.all_gather_varying(span(own_array[: 100 * rank]), span(varying), counts)
    # Rank r receives r + 1 numbers.
    to = [4 * (r + 1) for r in range(size)]
    sent = np.concatenate([np.full(r + 1, 10 * rank + r) for r in range(size)])
    sent, crossed = sent.astype(np.float32), np.zeros(size * (rank + 1), np.float32)
    group.all_to_all(span(sent), to, span(crossed), [4 * (rank + 1)] * size)
    from_last = np.full(5, rank, np.int64)
    group.broadcast(span(from_last), size - 1)
    pair, received = np.array([rank, 42]), np.zeros(2, np.int64)
    if rank % 2 == 0 and rank + 1 < size:
        group.send(span(pair), rank + 1)
    if rank % 2:
        group.receive(span(received), rank - 1)
    neighbours = np.zeros(2, np.int64)
    previous, following = (rank - 1) % size, (rank + 1) % size
    moves = [(following, span(pair))], [(previous, span(neighbours))]
    group.with_stream(STREAM + 1).transfer(*moves)
    numbers = np.arange(12 * size, dtype=np.float32) + rank
    added, part = np.zeros_like(numbers), np.zeros(12, np.float32)
    group.sums("all_reduce", [(span(numbers), span(added), "float32")])
    group.sums("reduce_scatter", [(span(numbers), span(part), "float32")])
    group.wait(is_done)
    group.wait(lambda: is_done(STREAM + 1))
    group.barrier()
    group.close()
    report["added"], report["part"] = added.tolist(), part.tolist()
    report["all_gather"] = [float(row[-1]) for row in everything]
    report["varying"] = [float(x) for x in varying[::100]]
    report["crossed"] = crossed.tolist()
    report["broadcast"] = from_last.tolist()
    report["received"], report["around"] = received.tolist(), neighbours.tolist()
    return report


def call_everything(control, path):
    """Make the same calls on all ranks, and log them for a comparison."""
    group, is_done = joined(control, path)
    a, b = np.zeros(64, np.uint8), np.zeros(64 * group.size, np.uint8)
    c = np.zeros_like(b)
    group.all_gather(span(a), span(b))
    group.broadcast(span(a))
    group.all_gathers([(span(a), span(b)), (span(a[:8]), span(b[: 8 * group.size]))])
    counts = [64] * group.size
    group.all_to_all(span(b), counts, span(c), counts)
    group.wait(is_done)
    group.close()
    return {}


def use_split_groups(control, path):
    """Use two halves and a duplicate at the same time."""
    group, is_done = joined(control, path)
    half = group.split(group.rank % 2, -group.rank)  # in the reverse order
    twin = half.duplicate()
    report = {"rank": half.rank, "size": half.size}
    sent, everyone = np.array([group.rank]), np.zeros(half.size, np.int64)
    twin.all_gather(span(sent), span(everyone))
    twin.wait(is_done)
    twin.close()
    half.close()
    group.close()
    report["everyone"] = everyone.tolist()
    return report


def recover_from_failure(control, path):
    """Fail on one rank: all ranks abort and connect again."""
    group, is_done = joined(control, path, timeout=2.0)
    half = group.split(0, group.rank)
    a, b = np.zeros(4, np.int64), np.zeros(4 * group.size, np.int64)
    report = {}
    try:
        for _ in range(3):
            group.all_gather(span(a), span(b))
            group.wait(is_done, "step")
    except (RankLostError, StalledError) as error:
        report["error"], report["kind"] = str(error), type(error).__name__
    try:
        group.all_gather(span(a), span(b))
    except CommunicationError as error:
        report["again"] = str(error)
    group.abort()
    group.abort()  # a second call is allowed
    for one in (group, half):
        try:
            one.broadcast(span(a))
        except CommunicationError as error:
            report["ended"] = str(error)
    control.barrier()
    new, is_done = joined(control, path)
    a[:] = new.rank
    new.all_gather(span(a), span(b))
    new.wait(is_done)
    new.close()
    report["after"] = b[::4].tolist()
    return report


def aborted_by_another_thread(control, path):
    """Wait in one thread for a call that hangs, and abort in another thread."""
    group, is_done = joined(control, path)
    a, b = np.zeros(4, np.int64), np.zeros(4 * group.size, np.int64)
    errors = []

    def wait():
        group.all_gather(span(a), span(b))
        try:
            group.wait(is_done, "step")
        except CommunicationError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    is_waiting = waiting.is_alive()
    group.abort()
    waiting.join(5)
    return {"waited": is_waiting, "ended": not waiting.is_alive(), "error": errors}


def wait_for_absent_neighbour(control, path):
    """Run a rank whose neighbour never calls."""
    library = Library(path)
    start = time.monotonic()
    if control.rank == 0:
        try:
            nccl.connect(control, "GPU-0", 0, 0.5, lambda: library)
        except StalledError as error:
            return {"error": str(error), "seconds": time.monotonic() - start}
    else:  # takes part only in the control group's exchanges
        description = {
            "device": "GPU-1",
            "version": list(library.version),
            "problem": "",
        }
        nccl.exchange(control, description | {"shares": False})
        control.broadcast(np.zeros(128, np.uint8), 0)
    return {}


def report_refusals(control, path):
    """Return the errors that NCCL groups report before any rank waits."""

    def load():
        if control.rank == 1:
            raise BackendUnavailable("libnccl.so.2 was not found")
        return Library(path)

    try:
        nccl.connect(control, f"GPU-{control.rank}", 0, 5.0, load)
    except BackendUnavailable as error:
        message = str(error)
    try:
        joined(control, path, device="GPU-7")
    except ArgumentError as error:
        return {"shared": str(error), "missing": message}
    return {"shared": "", "missing": message}


def unlike(control, path):
    """Join ranks with libraries of different versions, set by the environment."""
    try:
        joined(control, path)
    except BackendUnavailable as error:
        return str(error)
    return ""


def mismatched(control, path):
    """Send a size that differs from the received size."""
    group, is_done = joined(control, path, timeout=2.0)
    a = np.zeros(64, np.uint8)
    try:
        if group.rank == 0:
            group.send(span(a), 1)
        else:
            group.receive(span(a[:32]), 0)
        group.wait(is_done, "step")
    except CommunicationError as error:
        return str(error)
    finally:
        group.abort()
    return ""


def unlike_sums(control, path):
    """Add arrays of another size, or of another dtype, than the other rank."""
    errors = []
    for sizes, names in (
        ((64, 32), ["float32"] * 2),
        ((64, 64), ["float32", "float64"]),
    ):
        group, is_done = joined(control, path, timeout=2.0)
        a = np.zeros(sizes[group.rank], np.uint8)
        try:
            group.sums("all_reduce", [(span(a), span(a), names[group.rank])])
            group.wait(is_done, "step")
        except CommunicationError as error:
            errors.append(str(error))
        finally:
            group.abort()
        control.barrier()
    return errors


def captured_on_one_rank(control, path):
    """Make the same call in a captured graph on rank 0 only."""
    group, is_done = joined(control, path, timeout=2.0)
    a, b = np.zeros(8, np.uint8), np.zeros(8 * group.size, np.uint8)
    ctypes.CDLL(path).fakeReplay(int(group.rank == 0))
    try:
        group.all_gather(span(a), span(b))
        group.wait(is_done, "step")
    except CommunicationError as error:
        return str(error)
    finally:
        group.abort()
    return ""


def on_host(control, wait, is_done):
    """Return a device whose kernels wait for earlier calls of the stand-in."""

    class Ordered(HostDevice):
        def submit(self, stream, label, work):
            wait(is_done, label)
            super().submit(stream, label, work)

    folder = control.folder / f"kernels{control.rank}"
    folder.mkdir()
    return Ordered(folder, {})


def gpu_step(control, path):
    """Run the step `nccl` of scripts/gpu_session without a GPU."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
    import gpu_nccl

    pending = ctypes.CDLL(path).fakeStreamPending
    pending.argtypes = (ctypes.c_void_p,)

    def is_done():
        return pending(STREAM) == 0

    def wait(is_done, label):
        while not is_done():
            time.sleep(1e-4)

    device = on_host(control, wait, is_done)
    return gpu_nccl.check(
        device, STREAM, "1B:00.0", lambda: is_done, lambda: Library(path)
    )


def sums(control, path):
    """Compute tree sums in host memory: kernels by g++, transfers by the stand-in."""
    group, is_done = joined(control, path)
    device, hashes = on_host(control, group.wait, is_done), []
    pieces = []
    for number, term in enumerate(TERMS):
        get, one = getter(number, term), combination(term)
        pieces += split_leaves(group, term.leaves, get, one)
    kinds = [dtypes.numpy_dtype(term.dtype) for term in TERMS]
    for _ in range(2):
        plan = plan_all_reduce(group.rank, group.size, TERMS)
        total = DeviceSum(device, group, plan)
        outs = [np.zeros(t.size, k) for t, k in zip(TERMS, kinds, strict=True)]
        scratch = np.zeros(plan.scratch + 256, np.uint8)
        at = scratch.ctypes.data + -scratch.ctypes.data % 256
        total.start(addresses(pieces), addresses(outs), at)
        group.wait(is_done)
        hashes.append([hashlib.sha256(out.tobytes()).hexdigest() for out in outs])
    scatter_plan = plan_reduce_scatter(group.rank, group.size, TERMS[0])
    shard = np.zeros(6000 // group.size, np.float32)
    first = [p for p in pieces if p.dtype == np.float32]
    DeviceSum(device, group, scatter_plan).start(
        addresses(first), addresses([shard]), at
    )
    group.wait(is_done)
    group.close()
    kernels = [name for name in device.log if name.startswith("tree_")]
    return {"sums": hashes, "part": shard.tobytes().hex(), "kernels": kernels}


def addresses(arrays):
    return [array.ctypes.data for array in arrays]


def main(name, path, folder, size, rank):
    control = FileGroup(f"{folder}/control", int(size), int(rank))
    print(json.dumps(globals()[name](control, path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
