"""Abstract device of GPU programs, and the code that all devices share.

`cuda_device.CudaDevice` is the real one; tests use a device in host memory.
"""

from __future__ import annotations

import contextlib
import gc
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakMethod

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.backends.cupy.memory import Fetches, Uploads
from toolkit.backends.cupy.signatures import Signature
from toolkit.backends.cupy.steps import Step
from toolkit.backends.memory import to_host
from toolkit.backends.pending_copy import PendingCopy
from toolkit.comm.group import Group
from toolkit.comm.nccl import DeviceBuffer, device_name
from toolkit.errors import (
    BackendUnavailable,
    CommunicationError,
    DeviceError,
    OutOfDeviceMemory,
    OutOfRangeError,
)
from toolkit.plans.loops.iteration_space import format_problem

Array = Any
# The ctypes of scalar kernel arguments.
SCALARS = {
    "bool": np.bool_,
    "char": np.int8,
    "int": np.int32,
    "long long": np.int64,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}


# Number of largest buffers that an out-of-memory error lists.
MAX_LISTED = 5


class OutOfMemory(MemoryError):
    """Allocation failure of the device."""


@dataclass(eq=False)
class Words:
    """Words in device memory in which the kernels of a program report bad indices.

    Attributes:
        array: three words for each kernel: a flag, the bad index, and the limit.
        problems: the error message of each kernel.
        started: the number of the last launch of these kernels.
        last_raised: the number of the last launch when a bad index was raised.
    """

    array: Any
    problems: list[str]
    started: int
    last_raised: int = -1


class Failing:
    """Context that converts errors of a device's libraries into DeviceError."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, self.device.failures):
            raise self.device.failed(error) from error


class DeviceEvent(Protocol):
    """Moment of a stream."""

    @property
    def done(self) -> bool: ...

    def synchronize(self) -> None: ...


class DeviceGroup(Protocol):
    """Group of ranks that enqueues transfers of device memory on a stream."""

    @property
    def size(self) -> int: ...

    def transfer(
        self,
        sends: Iterable[tuple[int, DeviceBuffer]],
        receives: Iterable[tuple[int, DeviceBuffer]],
        operation: str = "transfer",
    ) -> None:
        """Send to and receive from several ranks: see `NcclGroup.transfer`."""

    def all_gathers(self, pairs: Iterable[tuple[DeviceBuffer, DeviceBuffer]]) -> None:
        """Gather equal parts of all ranks: see `NcclGroup.all_gathers`."""

    def sums(
        self,
        operation: str,
        buffers: Iterable[tuple[DeviceBuffer, DeviceBuffer, str]],
    ) -> None:
        """Add arrays of all ranks: see `NcclGroup.sums`."""

    def submit(self, names: Sequence[str]) -> None:
        """Record the collectives that a program calls: see `NcclGroup.submit`."""

    def poll(self, operation: str = "stream") -> None:
        """Raise if a rank is lost or has failed: see `NcclGroup.poll`."""

    def wait(self, is_done: Callable[[], bool], operation: str = "stream") -> None:
        """Wait for the stream: see `NcclGroup.wait`."""

    def abort(self) -> None:
        """Abort all calls: see `NcclGroup.abort`."""


class Device(ABC):
    """GPU: memory, kernels, libraries, and streams.

    Attributes:
        name: for example "gpu:0".
        captures: whether steps can be captured.
        libraries: the available ones: "cublaslt", "cudnn".
        stream: the compute stream; work on it runs in launch order.
        copies, fetches: the streams of copies from the host and to the host.
        exchanges: the stream of collectives with other GPUs.
        failures: the exceptions by which its libraries report errors.
        broken: the error that ended all work on the device, or None.
        last: a function that names the last launch.
        started: the number of launched programs.
    """

    name = "gpu:0"
    captures = False
    libraries: frozenset[str] = frozenset()
    stream: Any
    copies: Any
    fetches: Any
    exchanges: Any
    failures: tuple[type[Exception], ...] = ()
    broken: Exception | None = None

    def __init__(self) -> None:
        self._watched: dict[int, Words] = {}
        self.started: int = 0
        self._idle: list[WeakMethod[Any]] = []
        self.last: Callable[[], str] = lambda: "nothing"
        self._failing = Failing(self)
        self._is_exchanging = False
        # Communicators between the GPUs of a group of ranks, by that group.
        self.groups: WeakKeyDictionary[Group, DeviceGroup] = WeakKeyDictionary()

    # --- other GPUs -------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """Return a name of the GPU that no other GPU of a job has."""
        return device_name(self.name)

    @property
    def model(self) -> str:
        """Return the model and the libraries: equal models compute equal bits."""
        return ", ".join(sorted(self.libraries))

    def connect(self, groups: Sequence[Group], world: Group) -> None:
        """Connect the GPUs of the ranks of groups: see `Backend.connect`.

        Raises:
            BackendUnavailable: on all ranks, if one of them has no library for it.
        """
        raise BackendUnavailable(f"{self.name}: no library connects this device")

    def disconnect(self) -> None:
        """Abort the collectives of all groups, and forget their results.

        The kernels after an aborted collective run on undefined values.
        """
        groups = list(self.groups.values())
        self.groups.clear()
        for group in groups:
            group.abort()
        if groups:
            self.synchronize()
            self._watched.clear()

    def submit_exchanges(self, exchanges: Mapping[Group, Sequence[str]]) -> None:
        """Record the collectives of a program, before it is launched.

        Args:
            exchanges: the names of its collectives, by group.

        Raises:
            CommunicationError: a group is not connected any more.
        """
        for group, names in exchanges.items():
            connected = self.groups.get(group)
            if connected is None:
                raise CommunicationError(
                    f"{self.name}: the collectives of the program were aborted, for "
                    f"example {names[0]}; start the job again"
                )
            connected.submit(names)

    def wait_for(self, event: DeviceEvent) -> None:
        """Wait for an event, and check the other ranks of collectives meanwhile.

        Raises:
            RankLostError: another rank is lost.
            ToolkitError: the error of another rank that failed. After any error, no
                collective of this device is in progress.
        """
        if not self.groups:
            event.synchronize()
            return
        first, *others = self.groups.values()

        def is_done() -> bool:
            for group in others:
                group.poll()
            return event.done

        try:
            first.wait(is_done)
        except BaseException:
            self.disconnect()
            raise

    def finish(self) -> None:
        """Wait for all launched work, as `wait_for` does."""
        with self.scope(), self.failing():
            event = self.event()
            event.record(self.stream)
            self.wait_for(event)

    @cached_property
    def uploads(self) -> Uploads:
        """Return the manager of copies from the host."""
        return Uploads(self)

    @cached_property
    def _fetches(self) -> Fetches:
        return Fetches(self)

    # --- memory -----------------------------------------------------------------------

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate an uninitialized array; raise OutOfMemory if there is no room."""

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """Return whether an array is in the memory of this device."""

    def allocate(
        self, shape: tuple[int, ...], dtype: str, purpose: str, plan: Any = None
    ) -> Array:
        """Allocate as `empty` does; if memory is short, free the pool and retry.

        Raises:
            OutOfDeviceMemory: the message names the largest buffers of a plan.
        """
        for attempt in range(2):
            try:
                # The query costs more than the allocation of a small array.
                if plan is None or _bytes(shape, dtype) <= self.room():
                    with self._failing:
                        return self.empty(shape, dtype)
            except OutOfMemory:
                pass
            if attempt == 0:
                self.reclaim()
        nbytes = _bytes(shape, dtype)
        raise OutOfDeviceMemory(
            f"{self.name}: not enough memory for {purpose} of {nbytes:,} bytes; "
            f"{self.memory()}{describe_largest(plan)}"
        )

    def reclaim(self) -> None:
        """Return all cached memory to the device."""
        self._idle = [ref for ref in self._idle if ref() is not None]
        for ref in self._idle:
            release = ref()
            if release is not None:
                release()
        gc.collect()  # bindings of programs form reference cycles
        self.uploads.clear()
        self.trim()

    def on_shortage(self, release: Callable[[], None]) -> None:
        """Register a method to call when memory is short, while its object is alive."""
        self._idle.append(WeakMethod(release))

    @abstractmethod
    def room(self) -> int:
        """Return the free bytes, including free memory of the pool."""

    def upload(self, values: Any) -> Array:
        """Copy host data to the device, with its dtype; a list of words becomes int64.

        The copy runs concurrently with earlier launches; later launches wait for it.
        Programs keep lists of words.
        """
        host = np.asarray(values, np.int64) if isinstance(values, list) else values
        if not host.nbytes:
            return self.empty(host.shape, dtypes.name_of(host.dtype))
        with self.scope(), self.failing():
            is_kept = isinstance(values, list)
            return self.uploads.upload(
                np.asarray(host, order="C"), is_recurring=not is_kept
            )

    def place(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """Return an array of this device unchanged, and other data as a copy on it."""
        if self.owns(value):
            return value
        return self.upload(np.asarray(to_host(value), dtype))

    @abstractmethod
    def lend(
        self, memory: Array, shape: tuple[int, ...], dtype: str, lease: Any
    ) -> Array:
        """Return an array at the start of memory; all its views hold the lease."""

    @abstractmethod
    def adopt(self, array: Any) -> Array:
        """Copy an array of another library that is on this device."""

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Start to copy row-major arrays to the host, after all earlier launches.

        The `get` method of the result raises the index errors that kernels have
        reported by then: an OutOfRangeError with the index and the limit.
        """
        watched, stamp = list(self._watched.values()), self.started

        def check(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
            for words, rows in zip(watched, arrays, strict=False):
                self._raise_problem(words, rows.reshape(-1, 3), stamp)
            return arrays[len(watched) :]

        with self.scope(), self.failing():
            reports = [words.array for words in watched]
            return self._fetches.start([*reports, *arrays], check)

    def download(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy a row-major array to host memory, after all earlier launches."""
        host_array: np.ndarray[Any, Any]
        (host_array,) = self.fetch([array]).get()
        return host_array

    @abstractmethod
    def address(self, array: Array) -> int:
        """Return the address of an array's first element."""

    @abstractmethod
    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """Return an array on the bytes of `arena` that start at `offset`."""

    @abstractmethod
    def transfer(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        """Start a copy between addresses of this device or of pinned memory."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Start a copy between two addresses of this device."""
        if nbytes:
            self.transfer(target, source, nbytes, self.stream)

    @abstractmethod
    def event(self) -> Any:
        """Return an event with `record`, `synchronize` and `done` for streams."""

    @abstractmethod
    def pin(self, nbytes: int) -> Any:
        """Allocate pinned memory of the host, as a uint8 array."""

    @abstractmethod
    def memory(self) -> str:
        """Return the state of memory, for messages."""

    @abstractmethod
    def trim(self) -> None:
        """Return unused memory to the device."""

    # --- work -------------------------------------------------------------------------

    @abstractmethod
    def load(self, kernels: Sequence[Kernel]) -> list[Callable[..., None]]:
        """Load kernels; return their launchers (grid, block, arguments, bytes)."""

    @abstractmethod
    def product(
        self, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> Callable[[tuple[int, ...], int], None]:
        """Return a function that launches a product: (pointers, scratch address)."""

    def offers(self, gemm: Gemm, alignment: int) -> bool:
        """Return whether the library has an algorithm for this alignment."""
        return True

    def precompile(self, steps: Sequence[Step]) -> None:  # noqa: B027
        """Start the slow preparation of later `load` and `dnn` calls."""

    def cancel_precompile(self) -> None:  # noqa: B027
        """Cancel the preparation of later calls."""

    def prepare(  # noqa: B027
        self, signatures: Sequence[Signature], workspace: int | None
    ) -> None:
        """Plan graphs together before the single calls of `dnn`."""

    @abstractmethod
    def dnn(self, signature: Signature, workspace: int | None) -> Any:
        """Return a function as `product` does, with its scratch size `.workspace`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all launched work is complete."""

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        """Capture the launches of `start`; return a function that replays them."""
        return start

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context for launches on this device."""
        return contextlib.nullcontext()

    def raising(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which array functions raise LinAlgError."""
        return contextlib.nullcontext()

    @property
    def launch_stream(self) -> Any:
        """Return the stream of the next kernels from `load`."""
        return self.exchanges if self._is_exchanging else self.stream

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Return the context in which kernels are launched on `exchanges`."""
        self._is_exchanging = True
        try:
            yield
        finally:
            self._is_exchanging = False

    def scalar(self, value: float, ctype: str) -> Any:
        """Return a number as a kernel argument."""
        return SCALARS[ctype](value)

    # --- errors -----------------------------------------------------------------------

    def failing(self) -> Failing:
        """Return the context of calls that can report errors of earlier launches.

        Raises:
            DeviceError: the message names the last launch; if every later call fails
                too, the device is broken.
        """
        return self._failing

    def failed(self, error: Exception) -> DeviceError:
        text = f"{self.name}: {error}; last launch: {self.last()}"
        try:
            self.synchronize()
        except self.failures:
            self.broken = DeviceError(
                f"{text}: a kernel failed, so this device cannot run more "
                "operations; restart the process"
            )
            return self.broken
        return DeviceError(text)

    def watch(self, words: Array | None, problems: list[str]) -> None:
        """Register words for bad indices; every synchronization checks them."""
        self.started += 1
        if words is not None:
            address = self.address(words)
            watched = self._watched.setdefault(
                address, Words(words, problems, self.started)
            )
            watched.started = self.started

    def _raise_problem(self, words: Words, rows: Any, stamp: int) -> None:
        """Raise the index error that kernels had reported at launch number `stamp`."""
        if not rows[:, 0].any():
            if words.started <= stamp:
                self._watched.pop(self.address(words.array), None)
        elif words.last_raised < stamp:
            words.last_raised = self.started
            clear = self.upload([0] * rows.size)
            self.copy(self.address(words.array), self.address(clear), 8 * rows.size)
            first = int(rows[:, 0].argmax())
            _, index, limit = rows[first].tolist()
            problem = words.problems[first]
            raise OutOfRangeError(format_problem(problem, index, limit))


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * dtypes.itemsize(dtype)


def describe_largest(plan: Any) -> str:
    """Return a text that lists the largest buffers of a plan."""
    if plan is None:
        return ""
    buffers = sorted(plan.distinct, key=lambda buffer: -buffer.nbytes)[:MAX_LISTED]
    rows = [
        f"{b.label}{' in ' + b.origin if b.origin else ''} ({b.nbytes:,} bytes)"
        for b in buffers
    ]
    return f"; largest: {', '.join(rows)}"
