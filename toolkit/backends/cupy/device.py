"""What programs ask of a GPU, and what is the same on every one.

`cuda.CudaDevice` is the real one; tests run programs on one made of host memory.
"""

from __future__ import annotations

import contextlib
import gc
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakMethod

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.backends.cupy.memory import Fetches, Uploads
from toolkit.backends.cupy.signatures import Signature
from toolkit.backends.cupy.steps import Step
from toolkit.backends.pending_copy import PendingCopy
from toolkit.errors import DeviceError, OutOfDeviceMemory, OutOfRangeError

Array = Any
# What the numbers of kernels are passed as.
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


# The largest buffers that are named where there is no room for them.
NAMED = 5


class OutOfMemory(MemoryError):
    """The device has not as much memory as was asked for."""


@dataclass(eq=False)
class Words:
    """Where kernels of a program report bad indices.

    Attributes:
        array: three words for each kernel: whether, which index, and the limit.
        problems: what to say of each.
        started: the number of the last start of these kernels.
        told: the number of the last start when a bad index was raised.
    """

    array: Any
    problems: list[str]
    started: int
    told: int = -1


class Failing:
    """A context in which errors of a device's libraries become ours."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, self.device.failures):
            raise self.device.failed(error) from error


class Device(ABC):
    """A GPU: memory, kernels, libraries, and streams.

    Attributes:
        name: such as "gpu:0".
        captures: whether steps can be captured.
        libraries: which there are: "cublaslt", "cudnn".
        stream: on which everything is computed, in the order in which it was started.
        copies, fetches: on which arrays come from the host, and go there.
        failures: the exceptions by which its libraries report errors.
        broken: what ended all work on the device, if something did.
        last: says what was started last.
        started: how many programs have been started.
    """

    name = "gpu:0"
    captures = False
    libraries: frozenset[str] = frozenset()
    stream: Any
    copies: Any
    fetches: Any
    failures: tuple[type[Exception], ...] = ()
    broken: Exception | None = None

    def __init__(self) -> None:
        self._watched: dict[int, Words] = {}
        self.started: int = 0
        self._idle: list[WeakMethod[Any]] = []
        self.last: Callable[[], str] = lambda: "nothing"
        self._failing = Failing(self)

    @cached_property
    def uploads(self) -> Uploads:
        """What comes from the host."""
        return Uploads(self)

    @cached_property
    def _fetches(self) -> Fetches:
        return Fetches(self)

    # --- memory -----------------------------------------------------------------------

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An array whose content is undefined; OutOfMemory if there is no room."""

    @abstractmethod
    def owns(self, array: Any) -> bool:
        """Whether an array lies in the memory of this device."""

    def allocate(
        self, shape: tuple[int, ...], dtype: str, what: str, plan: Any = None
    ) -> Array:
        """Like `empty`, after giving back what the pool holds if there was no room.

        Raises:
            OutOfDeviceMemory: naming the largest buffers of a plan.
        """
        for attempt in range(2):
            try:
                # To ask costs more than small arrays do.
                if plan is None or _bytes(shape, dtype) <= self.room():
                    with self._failing:
                        return self.empty(shape, dtype)
            except OutOfMemory:
                pass
            if attempt == 0:
                self.reclaim()
        nbytes = _bytes(shape, dtype)
        raise OutOfDeviceMemory(
            f"{self.name}: no room for {what} of {nbytes:,} bytes; "
            f"{self.memory()}{largest(plan)}"
        )

    def reclaim(self) -> None:
        """Give all memory that is only kept for later back to the device."""
        self._idle = [ref for ref in self._idle if ref() is not None]
        for ref in self._idle:
            release = ref()
            if release is not None:
                release()
        gc.collect()  # what runs a program on memory holds itself in circles
        self.uploads.clear()
        self.trim()

    def on_shortage(self, release: Callable[[], None]) -> None:
        """Call a method where memory is short, as long as its object lives."""
        self._idle.append(WeakMethod(release))

    @abstractmethod
    def room(self) -> int:
        """The bytes that are free, those that the pool holds included."""

    def upload(self, values: Any) -> Array:
        """An array of host data, of its dtype; of a list of words, which programs keep,
        of int64.

        The copy runs beside what was started before; what is started after it waits
        for it.
        """
        host = np.asarray(values, np.int64) if isinstance(values, list) else values
        if not host.nbytes:
            return self.empty(host.shape, dtypes.name_of(host.dtype))
        with self.scope(), self.failing():
            is_kept = isinstance(values, list)
            return self.uploads.put(np.asarray(host, order="C"), returns=not is_kept)

    @abstractmethod
    def lend(
        self, memory: Array, shape: tuple[int, ...], dtype: str, lease: Any
    ) -> Array:
        """An array at the start of memory; it and all views of it hold the lease."""

    @abstractmethod
    def adopt(self, array: Any) -> Array:
        """A copy of an array of another library that lies on this device."""

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Begin to copy row-major arrays to the host, behind all that was started.

        What kernels have reported by then is raised by the `get` of what is returned:
        an OutOfRangeError with the index and the limit.
        """
        watched, stamp = list(self._watched.values()), self.started

        def check(found: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
            for words, rows in zip(watched, found, strict=False):
                self._raise_problem(words, rows.reshape(-1, 3), stamp)
            return found[len(watched) :]

        with self.scope(), self.failing():
            reports = [words.array for words in watched]
            return self._fetches.start([*reports, *arrays], check)

    def download(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy of a row-major array in host memory, once all started is done."""
        found: np.ndarray[Any, Any]
        (found,) = self.fetch([array]).get()
        return found

    @abstractmethod
    def address(self, array: Array) -> int:
        """Where the first element of an array is."""

    @abstractmethod
    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """An array on the bytes of `arena` that start at `offset`."""

    @abstractmethod
    def transfer(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        """Start a copy between addresses of this device or of pinned memory."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Start a copy between two addresses of this device."""
        if nbytes:
            self.transfer(target, source, nbytes, self.stream)

    @abstractmethod
    def event(self) -> Any:
        """An event: `record(stream)`, `synchronize()`, `done`; streams wait for it."""

    @abstractmethod
    def pin(self, nbytes: int) -> Any:
        """Pinned memory of the host, as a uint8 array."""

    @abstractmethod
    def memory(self) -> str:
        """The state of memory, for messages."""

    @abstractmethod
    def trim(self) -> None:
        """Give memory that nobody uses back to the device."""

    # --- work -------------------------------------------------------------------------

    @abstractmethod
    def load(self, kernels: Sequence[Kernel]) -> list[Callable[..., None]]:
        """Functions that start each: (grid, block, arguments, shared bytes)."""

    @abstractmethod
    def product(
        self, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> Callable[[tuple[int, ...], int], None]:
        """A function that starts a product: (pointers, address of scratch memory)."""

    def offers(self, gemm: Gemm, alignment: int) -> bool:
        """Whether the library has an algorithm for a product of operands so aligned."""
        return True

    def foresee(self, steps: Sequence[Step]) -> None:  # noqa: B027
        """Begin what takes long before `load` and `dnn` will be asked for it."""

    def forget(self) -> None:  # noqa: B027
        """Go on with nothing that was foreseen."""

    def prepare(  # noqa: B027
        self, signatures: Sequence[Signature], workspace: int | None
    ) -> None:
        """Have graphs planned together that `dnn` will be asked for one by one."""

    @abstractmethod
    def dnn(self, signature: Signature, workspace: int | None) -> Any:
        """A function like that of `product`, with its scratch bytes as `.workspace`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all that was started is done."""

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        """A function that starts at once what `start` starts."""
        return start

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which anything is started on this device."""
        return contextlib.nullcontext()

    def raising(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which the array module raises LinAlgError, as NumPy does."""
        return contextlib.nullcontext()

    def scalar(self, value: float, ctype: str) -> Any:
        """A number as kernels take it."""
        return SCALARS[ctype](value)

    # --- what went wrong --------------------------------------------------------------

    def failing(self) -> Failing:
        """The context of calls that report what has failed before them.

        Raises:
            DeviceError: naming what was started last; if every later call fails too,
                the device is broken.
        """
        return self._failing

    def failed(self, error: Exception) -> DeviceError:
        text = f"{self.name}: {error}; what was started last: {self.last()}"
        try:
            self.synchronize()
        except self.failures:
            self.broken = DeviceError(
                f"{text}: a kernel failed, and nothing more can be computed on this "
                "device; restart the process"
            )
            return self.broken
        return DeviceError(text)

    def watch(self, words: Array | None, problems: list[str]) -> None:
        """Look at the words that kernels report bad indices in, when someone waits."""
        self.started += 1
        if words is not None:
            place = self.address(words)
            known = self._watched.setdefault(
                place, Words(words, problems, self.started)
            )
            known.started = self.started

    def _raise_problem(self, words: Words, rows: Any, stamp: int) -> None:
        """Raise what kernels had reported when so many programs had been started."""
        if not rows[:, 0].any():
            if words.started <= stamp:
                self._watched.pop(self.address(words.array), None)
        elif words.told < stamp:
            words.told = self.started
            clear = self.upload([0] * rows.size)
            self.copy(self.address(words.array), self.address(clear), 8 * rows.size)
            first = int(rows[:, 0].argmax())
            _, index, limit = rows[first].tolist()
            problem = words.problems[first]
            raise OutOfRangeError(problem.format(index=index, limit=limit))


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * dtypes.itemsize(dtype)


def largest(plan: Any) -> str:
    """The largest buffers of a plan, in words."""
    if plan is None:
        return ""
    found = sorted(plan.distinct, key=lambda buffer: -buffer.nbytes)[:NAMED]
    rows = [
        f"{b.label}{' in ' + b.origin if b.origin else ''} ({b.nbytes:,} bytes)"
        for b in found
    ]
    return f"; largest: {', '.join(rows)}"
