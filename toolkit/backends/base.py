"""The interface of a backend: a table of kernels, and memory.

A kernel is called as `kernel(*arrays, out=None, **attrs)`: dtypes are already promoted
and axes normalised, inputs are never modified, and the result goes into `out` (an array
of the right shape and dtype, or a tuple of them) when it is given. A bare ufunc is a
kernel. Elementwise kernels take any `out`, even one of their inputs; the others need a
C-contiguous `out` that overlaps no input. A 0-d result may be a NumPy scalar.

A kernel that needs scratch memory is decorated with `workspace` and takes `work=`, a
64-byte aligned uint8 array of the declared size; without it, it allocates its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends.bodies import BodyKernel
from toolkit.backends.calls import Calls
from toolkit.backends.operands import (
    Moment as Moment,
    Move as Move,
    Operand as Operand,
    Share as Share,
    contiguous as contiguous,
)
from toolkit.backends.pending_copy import PendingCopy
from toolkit.backends.rendering import (
    ArrayScalars,
    Kernel as Kernel,
    KernelTable,
    rendered,
)
from toolkit.backends.target import BackendPasses
from toolkit.errors import UnsupportedError
from toolkit.ir import PRIMITIVES, Primitive, Spec
from toolkit.machine import available_cores, cpu_model

if TYPE_CHECKING:
    from toolkit.backends.library import Library, LibrarySource
    from toolkit.backends.places import LoopBody, Shares

Array = Any
KernelT = TypeVar("KernelT", bound=Kernel)

ALIGNMENT = 64


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of the alignment of arenas and scratch."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def workspace(rule: Callable[..., int]) -> Callable[[KernelT], KernelT]:
    """Declare the scratch memory of a kernel.

    Args:
        rule: `rule(*specs, **attrs)`, the bytes that one call needs in `work`.
    """

    def declare(kernel: KernelT) -> KernelT:
        kernel.workspace = rule  # type: ignore[attr-defined]
        return kernel

    return declare


def workspace_bytes(kernel: Kernel, specs: Iterable[Any], attrs: dict[str, Any]) -> int:
    """The size of the `work` array of one call; 0 if the kernel takes none."""
    rule = getattr(kernel, "workspace", None)
    return 0 if rule is None else int(rule(*specs, **attrs))


class Backend:
    """Kernels by the name of their primitive, and memory in the host's RAM.

    A subclass sets `name` and fills `kernels`; every method has a default for arrays
    that are NumPy's.
    """

    name = "backend"
    # What `get_backend` found it by: the name, and a number if it is one of several.
    key = "backend"
    # Whether its arrays are elsewhere than in the host's memory.
    is_accelerator = False
    # Whether a program can wait for a value to choose a branch by.
    can_branch = True
    # Whether generated code can choose a branch, or end a loop, by what it computed.
    jumps = False
    # Whether `prepared` leaves calls out, so that frozen inputs are worth something.
    prepares = False
    # Rewrites of graphs that it wants beside those of every backend.
    passes: BackendPasses = BackendPasses()
    # What libraries compute by one call; None: generated code follows anchors by
    # whatever elementwise nodes, of which several may have results.
    calls: Calls | None = None
    # The module of functions of its arrays: NumPy, or one like it.
    xp: Any = np

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self.kernels: KernelTable = KernelTable(kernels, self.render)
        self._eager_kernels: dict[str, Kernel] = {}

    def render(self, record: Primitive) -> Kernel | None:
        """The kernel that follows from a primitive's record; None: it says too little.

        It is asked for what `kernels` were not given.
        """
        return rendered(record, ArrayScalars(self.xp, self.kernels))

    def supports(self, name: str) -> bool:
        """Whether there is a kernel for the primitive of this name."""
        return name in self.kernels

    def eager_kernel(self, primitive: Primitive) -> Kernel:
        """What computes a primitive outside of programs.

        That of a composite is a `BodyKernel` where `kernels` have none.
        """
        if PRIMITIVES.get(primitive.name) is not primitive:  # of one call alone
            return self.make_eager_kernel(primitive)
        if primitive.name not in self._eager_kernels:
            kernel = self.make_eager_kernel(primitive)
            self._eager_kernels[primitive.name] = kernel
        return self._eager_kernels[primitive.name]

    def make_eager_kernel(self, primitive: Primitive) -> Kernel:
        """The `eager_kernel`, which is kept for a primitive that is declared."""
        if primitive.graph is not None and not self.supports(primitive.name):
            return BodyKernel(self, primitive)
        return self.kernels[primitive.name]

    def computes(self, node: Any) -> bool:
        """Whether a composite node runs as one; otherwise its body takes its place."""
        return self.supports(node.op.name)

    def lower(
        self,
        node: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Any:
        """Generated calls that compute a node, with their scratch bytes as `.work`.

        None, unless a subclass generates code: then `kernels` compute the node.

        Args:
            node: of a fused or of any other primitive.
            inputs, outputs: the operands in the order of the node's.
            is_aligned: whether all of them lie at multiples of 16 bytes.
        """
        return None

    def foresee(self, lowered: Any) -> None:
        """Begin what takes long of what `lower` returned, before a program needs it.

        Args:
            lowered: for a node of a graph; the rest of it is lowered meanwhile.
        """

    def forget(self) -> None:
        """Go on with nothing that was foreseen: its program comes to nothing."""

    def prepared(self, lowered: Any, frozen: Collection[int], result: int = 0) -> Any:
        """What `lower` returned, where inputs of these numbers never change.

        Args:
            lowered: for a node.
            frozen: the numbers of the inputs.
            result: the bytes of its only output if that may be kept, too; else 0.
        """
        return lowered

    def assemble(
        self,
        lowered: Sequence[Any],
        shares: Shares,
        barrier: int,
    ) -> Any:
        """Join what `lower` returned for consecutive nodes into one program.

        Args:
            lowered: for each node.
            shares: the memory of their operands.
            barrier: this one of them and later ones run after all earlier ones.

        Returns:
            An object with `moments`, the `Moment` of each node, `parts`, what is timed
            by itself, and `bind(places, objects)`.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def repeat(
        self,
        body: LoopBody,
        arena: tuple[str, int],
        moves: Sequence[Move],
        turns: int,
        begun: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Any:
        """A lowered loop over a program that `assemble` made.

        Args:
            body: a program that is generated code alone.
            arena: the operand in which the body keeps its intermediate values.
            moves: where each array of the body is, in the order of its numbers.
            turns: how often the body runs, at least once.
            begun: outputs that begin as the inputs of these numbers, if it jumps.
            changing: operands that are frozen for the body, but differ between runs.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def processors(
        self, name: str | None = None, threads: bool = True
    ) -> Sequence[Any]:
        """What machine code is written for: each is the `processor` of a `Target`.

        One, but for a name that stands for several: a library has programs for each
        then. What runs on one of them runs on those behind it.

        Args:
            name: "x86-64-v3", say; None: the processor of this machine.
            threads: whether a library may start threads of its own.

        Raises:
            UnsupportedError: it generates no machine code, or none for that.
        """
        raise UnsupportedError(f"backend {self.name} makes no native libraries")

    def library(self, source: LibrarySource) -> Library:
        """Programs as one object file that needs neither Python nor this package.

        Args:
            source: programs for one or several processors, each of them generated
                code alone, and their weights.

        Raises:
            UnsupportedError: it generates no machine code, or what is in the source is
                too large.
        """
        raise UnsupportedError(f"backend {self.name} makes no native libraries")

    def choose(
        self,
        branches: Sequence[LoopBody],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """One of two lowered programs, by a bool; asked of backends that jump.

        Args:
            branches: programs that are generated code alone: for True and for False.
            inputs: the bool, and what both programs read.
            outputs: what both write.
        """
        raise NotImplementedError(f"backend {self.name} generates no jumps")

    def repeat_while(
        self,
        condition: LoopBody,
        body: LoopBody,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        limit: int | None,
        begun: Collection[int] = (),
    ) -> Any:
        """A lowered loop of unknown length; asked of backends that jump.

        Args:
            condition: of carried values and constants, whether there is a first turn.
            body: of the same, new carried values and whether there is another turn.
            inputs: the first carried values, then the constants.
            outputs: the last carried values.
            limit: turns at most; None: any number.
            begun: outputs that begin as the inputs of these numbers, and change there.
        """
        raise NotImplementedError(f"backend {self.name} generates no jumps")

    @property
    def anchors(self) -> Collection[str]:
        """Primitives that generated code follows with elementwise nodes."""
        return ()

    @property
    def generates(self) -> bool:
        """Whether `lower` ever returns something."""
        return False

    def fuses(self, node: Any) -> bool:
        """Whether an elementwise node may become part of a generated kernel."""
        return False

    def fused_kernel(self, body: Any) -> Kernel:
        """The kernel of a graph of elementwise nodes that `fuses` accepted."""
        raise NotImplementedError(f"backend {self.name} generates no kernels")

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which a whole program runs its kernels."""
        return np.errstate(all="ignore")

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An array of the dtype's name whose content is undefined."""
        return np.empty(shape, dtypes.numpy_dtype(dtype))

    def on_shortage(self, release: Callable[[], None]) -> None:
        """Call a method that gives memory back where there is too little."""

    def results(self, specs: Sequence[tuple[tuple[int, ...], str]]) -> list[Array]:
        """Arrays like those of `empty` for the results of one call."""
        return [self.empty(*spec) for spec in specs]

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """`value` as an array, copied only if it must be; None keeps its dtype."""
        return np.asarray(value, None if dtype is None else dtypes.numpy_dtype(dtype))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """The content as a NumPy array, without a copy where the memory is shared."""
        return np.asarray(array)

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Begin to copy arrays to the host; an accelerator computes on meanwhile."""
        return PendingCopy(lambda: list(map(self.to_numpy, arrays)))

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """A 64-byte aligned 1-D uint8 array; `plan` is what will lie in it."""
        block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + nbytes]

    def aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Like `empty`, and 64-byte aligned: no vector of it crosses a cache line."""
        nbytes = math.prod(shape) * dtypes.itemsize(dtype)
        return self.view(self.arena(nbytes), 0, shape, dtype)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """An array on the bytes of `arena` that start at `offset`."""
        return np.ndarray(shape, dtypes.numpy_dtype(dtype), arena, offset)

    def owns(self, array: Any) -> bool:
        """Whether an array lies in the memory that the kernels compute on."""
        return type(array) is np.ndarray

    def adopt(self, array: Any) -> Array:
        """A copy of another library's array, which lies on this backend's device."""
        return np.array(array)

    def owned(self, array: Any) -> Array:
        """A copy of an array that nobody else holds, in this backend's memory."""
        own = self.aligned(array.shape, dtypes.name_of(array.dtype))
        own[...] = self.in_order(array)
        return own

    def overwrite(self, target: Array, source: Any) -> None:
        """Copy an array, wherever it is, over one of this backend's own."""
        target[...] = self.in_order(source)

    def in_order(self, array: Any) -> Array:
        """As generated code expects an array: of this backend's memory, row-major."""
        if type(array) is np.ndarray and array.flags.c_contiguous:
            return array
        return np.array(on_host(array), order="C")

    def constant(self, array: Any) -> Array:
        """A constant of a program, given as a NumPy array."""
        return np.asarray(array, order="C")

    def address(self, array: Array) -> int:
        """Where the first byte of an array is."""
        return int(array.ctypes.data)

    # What generated code knows an array of a call by: a NumPy array is an object.
    handle: Callable[[Array], int] = staticmethod(id)

    def call_table(
        self, specs: Sequence[Spec], kept: Collection[int], plan: Any = None
    ) -> Any:
        """Where generated code finds the handles of the arrays of a call.

        Args:
            specs: of the arrays, by number.
            kept: the numbers of those that are the same in most calls.
            plan: what lies in the arena of the program.
        """
        return (ctypes.c_int64 * max(1, len(specs)))()

    def peaks(self) -> tuple[float, float] | None:
        """Arithmetic operations and bytes per second at best; None if not known."""
        return None

    def use_threads(self, count: int) -> None:
        """Compute with so many threads from now on."""

    def devices(self) -> tuple[str, ...]:
        """The names of the devices that this backend computes on."""
        return tuple(f"cpu:{i}" for i in range(settings.logical_devices("cpu")))

    @property
    def device_name(self) -> str:
        """The device that programs run on where nothing else is said."""
        return self.devices()[0]

    def describe(self) -> dict[str, Any]:
        """Facts for `toolkit.config.show()`."""
        return {"cpu": cpu_model(), "cores": available_cores()}

    def cache_folder(self) -> Path | None:
        """The folder of the code that it has compiled; None if it keeps none."""
        return None


# The backends in use whose arrays are not in the host's memory.
accelerators: list[Backend] = []


def on_host(array: Any) -> Array:
    """An array as one of NumPy's, copied from its device if it is on one."""
    if type(array) is np.ndarray:
        return array
    owner = owner_of(array)
    return np.asarray(array) if owner is None else owner.to_numpy(array)


def owner_of(array: Any) -> Backend | None:
    """The backend in whose own memory an array lies; None: it lies in the host's."""
    if array is None or type(array) is np.ndarray:
        return None
    return next((b for b in accelerators if b.owns(array)), None)
