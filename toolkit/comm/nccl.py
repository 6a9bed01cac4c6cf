"""Groups of GPUs over NCCL: device buffers and asynchronous calls on a stream.

Communicators are non-blocking. The host polls them, so that a rank can abort when
another rank fails. NCCL requires that all ranks abort then.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import numpy as np

from toolkit.comm.device_calls import DeviceCalls
from toolkit.comm.group import Group, exchange
from toolkit.comm.nccl_communicator import Call, Communicator
from toolkit.comm.nccl_library import (
    BYTE,
    ID_BYTES,
    SUM,
    SUM_DTYPES,
    Library,
    UniqueId,
    configuration,
    library,
)
from toolkit.dtypes import itemsize
from toolkit.errors import (
    ArgumentError,
    BackendUnavailable,
    CommunicationError,
    ToolkitError,
)

# Seconds until a wait for other ranks times out.
TIMEOUT = 600.0


class Span(NamedTuple):
    """Device memory: an address and a number of bytes."""

    address: int
    nbytes: int


# A Span, or an array with `__cuda_array_interface__`.
DeviceBuffer: TypeAlias = Any


def span_of(buffer: DeviceBuffer) -> Span:
    """Return the memory of a buffer.

    Raises:
        ArgumentError: the buffer is not on a device, or not contiguous.
    """
    if isinstance(buffer, Span):
        return buffer
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is None:
        raise ArgumentError(
            "nccl: expected memory of a GPU (a Span, or an array that has "
            f"__cuda_array_interface__); received {type(buffer).__name__}"
        )
    if interface.get("strides") is not None:
        raise ArgumentError(
            "nccl: expected a contiguous array; received strides "
            f"{interface['strides']}"
        )
    size = int(np.prod(interface["shape"], dtype=np.int64))
    return Span(interface["data"][0], size * np.dtype(interface["typestr"]).itemsize)


class NcclGroup:
    """Group of ranks with one GPU each; `connect` creates it.

    Buffers are `Span`s, or arrays with `__cuda_array_interface__`. A call is enqueued
    on the stream and returns at once. `wait` waits for it, and detects failures of
    other ranks.

    Args:
        communicator: the communicator of these ranks.
        control: a group of the same ranks for host bytes.
        stream: the address of the CUDA stream of all calls.
        calls: the record of its calls.

    Attributes:
        rank: the rank of this process in the group.
        size: the number of ranks.
    """

    def __init__(
        self,
        communicator: Communicator,
        control: Group,
        stream: int,
        calls: DeviceCalls | None = None,
    ) -> None:
        self.communicator = communicator
        self.control = control
        self.stream = stream
        self.rank: int = communicator.query("CommUserRank")
        self.size: int = communicator.query("CommCount")
        self.calls = DeviceCalls(control) if calls is None else calls
        self._subgroups: WeakSet[NcclGroup] = WeakSet()
        if (self.rank, self.size) != (control.rank, control.size):
            raise CommunicationError(
                f"nccl: rank {self.rank} of {self.size} is rank {control.rank} of "
                f"{control.size} in its control group"
            )

    def with_stream(self, stream: int) -> NcclGroup:
        """Return the same group with another stream."""
        group = copy(self)
        group.stream = stream
        return group

    # --- bytes ------------------------------------------------------------------------

    def transfer(
        self,
        sends: Iterable[tuple[int, DeviceBuffer]],
        receives: Iterable[tuple[int, DeviceBuffer]],
        operation: str = "transfer",
    ) -> None:
        """Send to and receive from several ranks in one NCCL group call.

        Messages between two ranks are received in the order of the sends.

        Args:
            sends: (destination rank, buffer) pairs.
            receives: (source rank, buffer) pairs.
            operation: its name in error messages.
        """
        calls: list[Call] = []
        for name, moves in (("Send", sends), ("Recv", receives)):
            for peer, buffer in moves:
                self._check_rank(operation, peer)
                span = span_of(buffer)
                # Both sides skip an empty message.
                if span.nbytes:
                    calls.append((name, (*span, BYTE, peer)))
        self.communicator.enqueue(operation, calls, self.stream)

    def all_gathers(self, pairs: Iterable[tuple[DeviceBuffer, DeviceBuffer]]) -> None:
        """Run several `all_gather`s in one group call, for (send, receive) pairs."""
        calls: list[Call] = []
        for send, receive in pairs:
            source, target = span_of(send), span_of(receive)
            self._check_bytes("all_gather", "receive", target, [source.nbytes])
            if source.nbytes:
                arguments = source.address, target.address, source.nbytes, BYTE
                calls.append(("AllGather", arguments))
        self.communicator.enqueue("all_gather", calls, self.stream)

    def sums(
        self,
        operation: str,
        buffers: Iterable[tuple[DeviceBuffer, DeviceBuffer, str]],
    ) -> None:
        """Add arrays of all ranks in one group call, in the order of NCCL.

        The bits of a sum depend on the number of ranks and on the algorithm of NCCL.

        Args:
            operation: "all_reduce", or "reduce_scatter" for equal parts of the sum.
            buffers: (send, receive, dtype) triples of a float dtype.
        """
        name, parts = {
            "all_reduce": ("AllReduce", 1),
            "reduce_scatter": ("ReduceScatter", self.size),
        }[operation]
        calls: list[Call] = []
        for send, receive, dtype in buffers:
            source, target = span_of(send), span_of(receive)
            if source.nbytes != parts * target.nbytes:
                raise ArgumentError(
                    f"nccl {operation}: expected {parts * target.nbytes} bytes of "
                    f"send; received {source.nbytes}"
                )
            if target.nbytes:
                count = target.nbytes // itemsize(dtype)
                addresses = source.address, target.address
                calls.append((name, (*addresses, count, SUM_DTYPES[dtype], SUM)))
        self.communicator.enqueue(operation, calls, self.stream)

    def all_gather(self, send: DeviceBuffer, receive: DeviceBuffer) -> None:
        """Gather equal parts from all ranks into `receive`, in rank order."""
        self.all_gathers([(send, receive)])

    def all_gather_varying(
        self, send: DeviceBuffer, receive: DeviceBuffer, counts: Sequence[int]
    ) -> None:
        """Gather `counts[r]` bytes from each rank r into `receive`, in rank order."""
        source, targets = (
            span_of(send),
            self._split_buffer("receive", receive, counts, None),
        )
        if source.nbytes != counts[self.rank]:
            raise ArgumentError(
                f"nccl all_gather_varying: expected {counts[self.rank]} bytes of rank "
                f"{self.rank}; received {source.nbytes}"
            )
        # The part can already be at its destination.
        is_in_place = source == targets[self.rank]
        peers = [r for r in range(self.size) if not (is_in_place and r == self.rank)]
        self.transfer(
            [(r, source) for r in peers],
            [(r, targets[r]) for r in peers],
            "all_gather_varying",
        )

    def all_to_all(
        self,
        send: DeviceBuffer,
        send_counts: Sequence[int],
        receive: DeviceBuffer,
        receive_counts: Sequence[int],
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
    ) -> None:
        """Send `send_counts[r]` bytes to each rank r, and receive from each.

        Args:
            send, receive: buffers that do not overlap.
            send_counts, receive_counts: the number of bytes for each rank.
            send_offsets, receive_offsets: the offset of each part. None means
                contiguous parts.
        """
        sends = self._split_buffer("send", send, send_counts, send_offsets)
        receives = self._split_buffer(
            "receive", receive, receive_counts, receive_offsets
        )
        self.transfer(enumerate(sends), enumerate(receives), "all_to_all")

    def broadcast(self, buffer: DeviceBuffer, root: int = 0) -> None:
        """Broadcast the buffer of rank `root` to all ranks."""
        self._check_rank("broadcast", root)
        address, nbytes = span_of(buffer)
        calls = [("Broadcast", (address, address, nbytes, BYTE, root))]
        self.communicator.enqueue("broadcast", calls if nbytes else [], self.stream)

    def send(self, buffer: DeviceBuffer, to: int, tag: int = 0) -> None:
        """Send to one rank, which receives messages in the order of the sends.

        Args:
            buffer: the data.
            to: the destination rank.
            tag: must be 0, because NCCL has no tags.
        """
        _check_tag("send", tag)
        self.transfer([(to, buffer)], [], "send")

    def receive(self, buffer: DeviceBuffer, source: int, tag: int = 0) -> None:
        """Receive from one rank; the data is valid after the stream has run the call.

        Args:
            buffer: the destination, which the message fills exactly.
            source: the source rank.
            tag: must be 0, because NCCL has no tags.
        """
        _check_tag("receive", tag)
        self.transfer([], [(source, buffer)], "receive")

    def barrier(self) -> None:
        """Wait until all ranks reach the barrier; their streams can still run."""
        self.control.barrier()

    # --- groups -----------------------------------------------------------------------

    def split(self, color: int, key: int) -> NcclGroup:
        """Return the group of the ranks with the same color, ordered by key.

        No call of the group can be in progress: synchronize the stream first.
        """
        if color < 0:
            raise ArgumentError(f"nccl split: expected color >= 0; received {color}")
        communicator = self.communicator.split(color, key)
        subgroup = NcclGroup(communicator, self.control.split(color, key), self.stream)
        self._subgroups.add(subgroup)
        return subgroup

    def duplicate(self) -> NcclGroup:
        """Return a group of the same ranks with a separate communicator."""
        return self.split(0, self.rank)

    def wait(self, is_done: Callable[[], bool], operation: str = "stream") -> None:
        """Wait for the stream, with a timeout and failure detection.

        Args:
            is_done: a function that returns whether the stream is done, for example the
                `done` of an event.
            operation: its name in error messages.

        Raises:
            RankLostError: another rank is lost.
            CommunicationError: NCCL reports another failure.
            StalledError: the timeout expired. After any of these errors, all ranks must
                `abort`.
        """

        def poll_and_check() -> bool:
            self.communicator.poll(operation)
            return is_done()

        with self.calls.waiting():
            self.communicator.wait(poll_and_check, operation)

    def poll(self, operation: str = "stream") -> None:
        """Raise an error if the calls in progress cannot end.

        Args:
            operation: its name in error messages.

        Raises:
            RankLostError: another rank is lost.
            CommunicationError: NCCL reports another failure.
            ToolkitError: the error of another rank that failed.
        """
        self.communicator.poll(operation)
        self.calls.check()

    def submit(self, names: Sequence[str]) -> None:
        """Record collectives that a program calls, for the reports of the watchdog.

        Args:
            names: the operation and the layers of each one, in order.

        Raises:
            CommunicationError: the communicator has failed, or was aborted.
        """
        self.communicator.check_usable("submit")
        self.calls.submit(names)

    def abort(self) -> None:
        """Abort all calls, also of groups split from this one, on every rank.

        Then the remaining ranks can call `connect`.
        """
        for subgroup in list(self._subgroups):
            subgroup.abort()
        self.communicator.abort()

    def close(self) -> None:
        """Free the resources of the group after its calls; all its ranks call this."""
        self.communicator.close()

    # --- checks -----------------------------------------------------------------------

    def _split_buffer(
        self,
        name: str,
        buffer: DeviceBuffer,
        counts: Sequence[int],
        offsets: Sequence[int] | None,
    ) -> list[Span]:
        """Return a buffer's part for each rank."""
        span = span_of(buffer)
        if offsets is None:
            offsets = [0, *accumulate(counts)][:-1]
        if not len(counts) == len(offsets) == self.size:
            raise ArgumentError(
                f"nccl: expected {self.size} counts and offsets of {name}, one for "
                f"each rank; received {len(counts)} and {len(offsets)}"
            )
        ends = [o + n for o, n in zip(offsets, counts, strict=True)]
        if max(ends) > span.nbytes or min(*counts, *offsets) < 0:
            raise ArgumentError(
                f"nccl: expected parts of {name} inside of its {span.nbytes} bytes; "
                f"received counts {list(counts)} at {list(offsets)}"
            )
        pairs = zip(offsets, counts, strict=True)
        return [Span(span.address + o, n) for o, n in pairs]

    def _check_bytes(
        self, operation: str, name: str, span: Span, counts: Sequence[int]
    ) -> None:
        expected = self.size * counts[0]
        if span.nbytes != expected:
            raise ArgumentError(
                f"nccl {operation}: expected {expected} bytes of {name}, {counts[0]} "
                f"for each of {self.size} ranks; received {span.nbytes}"
            )

    def _check_rank(self, operation: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise ArgumentError(
                f"nccl {operation}: expected a rank from 0 to {self.size - 1}; "
                f"received {rank}"
            )


def _check_tag(operation: str, tag: int) -> None:
    if tag:
        raise ArgumentError(
            f"nccl {operation}: NCCL has no tags and matches calls of two ranks in "
            f"their order; expected tag=0; received {tag}"
        )


# --- creation ---------------------------------------------------------------------


def device_name(bus: str) -> str:
    """Return a unique name of a GPU in a job, by NCCL's rule for duplicates.

    Args:
        bus: its PCI bus address, such as "0000:1B:00.0".
    """
    path = Path("/proc/sys/kernel/random/boot_id")
    boot_id = path.read_text("ascii").strip() if path.is_file() else ""
    return f"{bus} of {platform.node()} {boot_id}".strip()


def connect(
    control: Group,
    device: str,
    stream: int = 0,
    timeout: float = TIMEOUT,
    load: Callable[[], Library] = library,
) -> NcclGroup:
    """Create a group of the GPUs of another group's ranks; all of them call it.

    The GPU must be the current device of this thread.

    Args:
        control: a group of the ranks, which broadcasts the NCCL id.
        device: the unique name of this rank's GPU, from `device_name`.
        stream: the address of the CUDA stream of all calls.
        timeout: seconds until a wait for other ranks times out.
        load: a function that returns the library.

    Raises:
        BackendUnavailable: a rank has no NCCL, or the versions differ.
        ArgumentError: two ranks use one GPU.
        CommunicationError: NCCL cannot connect the ranks.

    All ranks get the same error, before any of them waits for another rank in NCCL.
    """
    nccl, new_id = _load_on_all_ranks(control, device, load)
    content = np.frombuffer(new_id, np.uint8).copy()
    control.broadcast(content, 0)
    identifier = UniqueId.from_buffer_copy(content.tobytes())
    pointer = ctypes.c_void_p()
    options = configuration(nccl.version, blocking=0)
    calls = DeviceCalls(control)
    communicator = Communicator(nccl, pointer, timeout, calls.check)
    arguments = ctypes.byref(pointer), control.size, identifier, control.rank
    try:
        nccl.call("CommInitRankConfig", *arguments, ctypes.byref(options))
        communicator.wait_for_pending("init")
    except ToolkitError:
        communicator.abort()
        raise
    return NcclGroup(communicator, control, stream, calls)


def check(control: Group, device: str, load: Callable[[], Library] = library) -> None:
    """Raise an error on all ranks if `connect` would refuse them.

    Args:
        control, device, load: as for `connect`.
    """
    _load_on_all_ranks(control, device, load)


def _load_on_all_ranks(
    control: Group, device: str, load: Callable[[], Library]
) -> tuple[Library, bytes]:
    """Return the library, and a new id on rank 0; compare the ranks."""
    nccl, problem, new_id = None, "", bytes(ID_BYTES)
    try:
        nccl = load()
        if control.rank == 0:
            new_id = nccl.unique_id()
    except ToolkitError as error:
        problem = str(error)
    version = nccl.version if nccl else ()
    description: dict[str, Any] = {
        "device": device,
        "version": list(version),
        "problem": problem,
    }
    description["shares"] = can_share_gpus(version)
    _check_ranks(exchange(control, description))
    assert nccl is not None, "or an error occurred"
    return nccl, new_id


def _check_ranks(descriptions: Sequence[dict[str, Any]]) -> None:
    """Raise the same error on all ranks if they cannot form a group."""
    for rank, description in enumerate(descriptions):
        if description["problem"]:
            raise BackendUnavailable(f"nccl: rank {rank}: {description['problem']}")
    versions = [
        ".".join(map(str, description["version"])) for description in descriptions
    ]
    if len(set(versions)) > 1:
        raise BackendUnavailable(
            f"nccl: expected one version on all ranks; received {', '.join(versions)}"
        )
    if all(description["shares"] for description in descriptions):
        return
    first_ranks: dict[str, int] = {}
    for rank, description in enumerate(descriptions):
        first_rank = first_ranks.setdefault(description["device"], rank)
        if first_rank != rank:
            raise ArgumentError(
                f"nccl: ranks {first_rank} and {rank} use the same GPU "
                f"({description['device']}); NCCL: using the same device multiple "
                "times as different ranks is not supported and may lead to hangs. "
                "Start one process for each GPU"
            )


def can_share_gpus(version: tuple[int, ...]) -> bool:
    """Return whether NCCL is configured to share a GPU, supported since 2.30."""
    return version >= (2, 30) and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
