"""GPUs of a job without a GPU: a device in host memory for each rank.

An array of the device raises where NumPy would read it, as an array of CuPy does. The
stand-in for NCCL checks that the ranks capture alike.
"""

import ctypes
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.backends.cupy.host import Event, HostDevice
from toolkit import comm
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.comm import nccl
from toolkit.comm.nccl_library import Library

STREAM, TIMEOUT = 77, 60.0


def install(folder, library=None, lag=""):
    """Register a GPU for this rank, and return its device.

    Args:
        folder: the folder of built kernels, which the ranks share.
        library: the file of the stand-in for NCCL; None: NCCL is not installed.
        lag: the order of the streams: see `RankDevice`.
    """
    device = OpaqueArray.device = RankDevice(Path(folder), library, lag)
    registry.register_backend("cupy", lambda number=0: CupyBackend(device, np))
    return device


def unwrap(value):
    """Return NumPy arrays in place of arrays of the device, in nested arguments."""
    if isinstance(value, OpaqueArray):
        return value.content
    if isinstance(value, (tuple, list)):
        return type(value)(map(unwrap, value))
    return value


def wrap(value):
    """Return arrays of the device in place of NumPy arrays."""
    if isinstance(value, np.ndarray):
        return OpaqueArray(value)
    return tuple(map(wrap, value)) if isinstance(value, tuple) else value


class OpaqueArray(NDArrayOperatorsMixin):
    """Array of the device; only the functions of its array module read it."""

    device = None  # whose launches end before a function of the array module

    def __init__(self, content):
        self.content = content

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        self.device.drain()
        if out is not None:
            options["out"] = unwrap(out)
        return wrap(getattr(ufunc, method)(*unwrap(inputs), **options))

    def __array_function__(self, function, types, args, kwargs):
        self.device.drain()
        options = {name: unwrap(value) for name, value in kwargs.items()}
        return wrap(function(*unwrap(args), **options))

    def __getattr__(self, name):
        if name.startswith("__"):  # no protocol of NumPy
            raise AttributeError(name)
        value = getattr(self.content, name)
        return self._call(value) if callable(value) else wrap(value)

    def _call(self, method):
        def call(*args, **options):
            self.device.drain()
            return wrap(method(*unwrap(args), **options))

        return call

    def __getitem__(self, index):
        return wrap(self.content[unwrap(index)])

    def __setitem__(self, index, value):
        self.device.drain()
        self.content[unwrap(index)] = unwrap(value)

    def __len__(self):
        return len(self.content)


class RankEvent(Event):
    """Event that records the waits of the host."""

    def synchronize(self):
        if self.stream is not None:
            self.device.launches.append(f"wait for {self.stream.name}")
        super().synchronize()


class RankDevice(HostDevice):
    """GPU of a rank.

    The order of its two streams of work is one that CUDA permits, so a missing wait
    changes bits. "late": collectives run when a step waits for them. "early": they run
    at once, and steps run when a collective or the host waits for them.

    Args:
        folder, library: see `install`.
        lag: "late", "early", or "" for the order of the launches.

    Attributes:
        launches: the launches, copies and calls outside of captured graphs, "replay"
            for each launch of a graph, and the waits of the host.
    """

    def __init__(self, folder, library, lag):
        super().__init__(folder, {})
        last = {"late": "exchanges", "early": "stream"}.get(lag)
        self.order = tuple(sorted(self.streams, key=lambda name: name == last))
        self.lagging = self.streams.get(last)
        self.is_joined = True  # whether the steps wait for all collectives
        self.last_exchange = None
        self.library = library
        self.launches = []
        self.is_replaying = False

    identity = property(lambda self: f"GPU-{comm.world().rank}")

    def rounding(self, *extents):
        """Return another rounding error for each shape, as of another algorithm."""
        return 1 + 2**-20 * (sum(extents) % 5)

    def connect(self, groups, world):
        if self.library is None:
            super().connect(groups, world)
        library = ctypes.CDLL(self.library)
        library.fakeStreamPending.argtypes = (ctypes.c_void_p,)
        load = partial(Library, self.library)
        nccl.check(world, self.identity, load)
        for group in groups:
            ranks = nccl.connect(group, self.identity, STREAM, TIMEOUT, load)
            self.groups[group] = StreamGroup(self, ranks, library)

    def submit(self, stream, kind, work):
        if kind not in ("mark", "wait", "poison") and not self.is_replaying:
            self.launches.append(kind)
        if stream is self.exchanges:
            self.is_joined = False
            self.last_exchange = work
        elif stream is self.stream and kind == "wait" and work is self.last_exchange:
            self.is_joined = True
        with self.lock:
            self.check_fault()
            stream.queue.append((kind, work))
            while any(s.queue for s in self.streams.values() if s is not self.lagging):
                self.step()

    def event(self):
        return RankEvent(self)

    def synchronize(self):
        self.launches.append("synchronize")
        super().synchronize()

    def capture(self, start):
        replay = super().capture(start)

        def run():
            self.launches.append("replay")
            self.is_replaying = True
            self.is_joined = True  # an error may have stopped an earlier program
            try:
                replay()
                assert self.is_joined, "a stream was not joined before the capture ends"
            finally:
                self.is_replaying = False

        return run

    def lend(self, memory, shape, dtype, lease):
        return OpaqueArray(super().lend(unwrap(memory), shape, dtype, lease))

    def view(self, arena, offset, shape, dtype):
        return OpaqueArray(super().view(unwrap(arena), offset, shape, dtype))

    def owns(self, array):
        return isinstance(array, OpaqueArray)

    def address(self, array):
        return unwrap(array).ctypes.data


class StreamGroup:
    """Group whose calls run in the order of the device's stream of collectives."""

    def __init__(self, device, ranks, library):
        self.device, self.ranks, self.library = device, ranks, library
        self.size = ranks.size
        self.submit, self.poll, self.wait = ranks.submit, ranks.poll, ranks.wait
        self.abort = ranks.abort

    def transfer(self, sends, receives, operation="transfer"):
        self._submit(operation, self.ranks.transfer, sends, receives, operation)

    def all_gathers(self, pairs):
        self._submit("all_gather", self.ranks.all_gathers, pairs)

    def sums(self, operation, buffers):
        self._submit(operation, self.ranks.sums, operation, buffers)

    def _submit(self, name, function, *arguments):
        is_captured = self.device.is_replaying

        def run():
            self.library.fakeReplay(is_captured)
            function(*arguments)
            self.ranks.wait(lambda: not self.library.fakeStreamPending(STREAM), name)

        self.device.log.append("nccl")
        self.device.submit(self.device.exchanges, "nccl", run)
