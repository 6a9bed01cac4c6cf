"""NCCL on one GPU: one rank that gathers, combines, captures and aborts."""

import numpy as np

from toolkit.backends.cupy.device_sums import DeviceSum
from toolkit.comm import Leaves, local, nccl, ordered
from toolkit.comm.nccl import device_name
from toolkit.comm.sum_plans import Combine, SumPlan, Term, plan_all_reduce
from toolkit.dtypes import numpy_dtype
from toolkit.errors import CommunicationError

SIZE = 1 << 20
# The kernel of a rank in this group reads local and received pieces.
LEAVES, RANK, RANKS = Leaves.of_rows(11, 6), 1, 3


def check(device, stream, bus, finished, load=nccl.library):
    """Return the check results, by name.

    Args:
        device: a device of the GPU backend.
        stream: the address of its stream.
        bus: its PCI bus address.
        finished: returns a function that checks whether all launched work is complete.
        load: returns the library.
    """
    control, name = local.single(), device_name(bus)
    with device.scope():
        group = nccl.connect(control, name, stream, 60.0, load)
    results = {"version": ".".join(map(str, group.communicator.library.version))}
    results["gathers"] = _gathers(device, group, finished)
    results["captures"] = _captures(device, group, finished)
    for dtype in ("float32", "bfloat16", "float16"):
        results[f"combines {dtype}"] = _combines(device, group, finished, dtype)
    with device.scope():
        twin = group.duplicate()
        twin.abort()
        try:
            twin.broadcast(device.empty((4,), "float32"))
        except CommunicationError as error:
            results["aborts"] = "was destroyed" in str(error)
        group.close()
        second_group = nccl.connect(control, name, stream, 60.0, load)
    results["connects again"] = _gathers(device, second_group, finished)
    second_group.close()
    return results


def _arrays(device, count):
    """Return random numbers, a device copy, and an output array of the same size."""
    values = np.random.default_rng(count).standard_normal(count).astype("float32")
    return values, device.upload(values), device.empty((count,), "float32")


def _gathers(device, group, finished):
    values, x, y = _arrays(device, SIZE)
    with device.scope():
        group.all_gather(x, y)
        group.wait(finished())
    return device.download(y).tobytes() == values.tobytes()


def _captures(device, group, finished):
    """Return whether a replay of a captured gather reads the current data."""
    values, x, y = _arrays(device, SIZE)
    with device.scope():
        group.all_gather(x, y)
        group.wait(finished())
        replay = device.capture(lambda: group.all_gather(x, y))
        other = device.upload(-values)
        device.copy(device.address(x), device.address(other), values.nbytes)
        replay()
        group.wait(finished())
    same = device.download(y).tobytes() == (-values).tobytes()
    del replay  # a graph must be released before the communicator that it uses
    return same


def _combines(device, group, finished, dtype):
    """Return whether the kernel of one of several ranks gives the bits of the host."""
    plan = plan_all_reduce(RANK, RANKS, [Term(SIZE, dtype, LEAVES)])
    (step,) = (s for s in plan.steps if isinstance(s, Combine))
    kind, draws = numpy_dtype(dtype), np.random.default_rng(1)
    scratch = draws.standard_normal(plan.scratch // kind.itemsize).astype(kind)
    pieces = [draws.standard_normal(SIZE).astype(kind) for _ in step.local_pieces]
    total = DeviceSum(device, group, SumPlan((step,), plan.scratch))
    arrays = [device.upload(x) for x in pieces]
    room, out = device.upload(scratch), device.upload(np.zeros(SIZE, kind))
    with device.scope():
        where = [device.address(x) for x in arrays]
        total.start(where, [device.address(out)], device.address(room))
        group.wait(finished())
    first = step.target.offset // kind.itemsize
    result = device.download(out)[first : first + step.size]
    return result.tobytes() == _expected(step, pieces, scratch, kind).tobytes()


def _expected(step, pieces, scratch, kind):
    item = kind.itemsize
    local_pieces = [
        piece[tile.offset // item :][: step.size]
        for piece, tile in zip(pieces, step.local_pieces, strict=True)
    ]

    def value(tree):
        if isinstance(tree, tuple):
            return ordered.OPERATIONS[step.op](*map(value, tree))
        if tree < len(local_pieces):
            return local_pieces[tree]
        start = step.received.offset + (tree - len(local_pieces)) * step.stride
        return scratch[start // item :][: step.size]

    return np.asarray(value(step.tree), kind)
