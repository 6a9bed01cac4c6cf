"""Interface of a backend: a table of kernels, and memory.

A kernel is called as `kernel(*arrays, out=None, **attrs)`. Dtypes are already promoted
and axes normalised. Kernels never modify inputs. If `out` is given (an array of the
right shape and dtype, or a tuple of them), it receives the result. A bare ufunc is a
kernel. Elementwise kernels accept any `out`, even one of their inputs. Other kernels
need a C-contiguous `out` that overlaps no input. A 0-d result can be a NumPy scalar.

A kernel that needs scratch memory has the decorator `workspace` and takes `work=`, a
64-byte aligned uint8 array of the declared size. Without `work`, it allocates.
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
from toolkit.backends.composites import CompositeKernel
from toolkit.backends.library_calls import LibraryCallLimits
from toolkit.backends.operands import (
    LoopOperand as LoopOperand,
    Operand as Operand,
    OperandMemory as OperandMemory,
    StepSpan as StepSpan,
    contiguous as contiguous,
)
from toolkit.backends.pending_copy import PendingCopy
from toolkit.backends.rendering import (
    ArrayScalars,
    Kernel as Kernel,
    KernelTable,
    render_kernel,
)
from toolkit.backends.target import BackendPasses
from toolkit.errors import UnsupportedError
from toolkit.ir import PRIMITIVES, Primitive, Spec
from toolkit.machine import available_cores, cpu_model

if TYPE_CHECKING:
    from toolkit.ir import Node

if TYPE_CHECKING:
    from toolkit.backends.library import Library, LibrarySource
    from toolkit.backends.locations import LoopBody, Shares

Array = Any
KernelT = TypeVar("KernelT", bound=Kernel)

ALIGNMENT = 64


def align_up(nbytes: int) -> int:
    """Return `nbytes`, rounded up to the alignment of arenas and scratch memory."""
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
    """Return the size of the `work` array of one call; 0 if the kernel takes none."""
    rule = getattr(kernel, "workspace", None)
    return 0 if rule is None else int(rule(*specs, **attrs))


class Backend:
    """Kernels by the name of their primitive, and memory in the host's RAM.

    A subclass sets `name` and fills `kernels`. The default methods support NumPy
    arrays.
    """

    name = "backend"
    # The lookup name in `get_backend`: the name, with a number if it is one of several.
    key = "backend"
    # Whether its arrays are outside the host's memory.
    is_accelerator = False
    # Whether a program can wait for a value to select a branch.
    can_branch = True
    # Whether generated code can select a branch or end a loop by a computed value.
    can_jump = False
    # Whether `prepared` removes calls, so that frozen inputs bring a gain.
    can_specialize = False
    # Graph passes in addition to the passes of every backend.
    passes: BackendPasses = BackendPasses()
    # Limits of one library call. None: generated code applies any elementwise nodes
    # after anchors, several of which can have results.
    library_calls: LibraryCallLimits | None = None
    # The module of its array functions.
    xp: Any = np

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self.kernels: KernelTable = KernelTable(kernels, self.render)
        self._eager_kernels: dict[str, Kernel] = {}

    def render(self, record: Primitive) -> Kernel | None:
        """Return the kernel that a primitive's record defines; None if it has no rule.

        It is called for primitives that are not in `kernels`.
        """
        return render_kernel(record, ArrayScalars(self.xp, self.kernels))

    def supports(self, name: str) -> bool:
        """Return whether a kernel exists for the primitive of this name."""
        return name in self.kernels

    def eager_kernel(self, primitive: Primitive) -> Kernel:
        """Return the kernel of a primitive outside of programs.

        For a composite without an entry in `kernels`, it is a `CompositeKernel`.
        """
        if PRIMITIVES.get(primitive.name) is not primitive:  # a primitive of one call
            return self.make_eager_kernel(primitive)
        if primitive.name not in self._eager_kernels:
            kernel = self.make_eager_kernel(primitive)
            self._eager_kernels[primitive.name] = kernel
        return self._eager_kernels[primitive.name]

    def make_eager_kernel(self, primitive: Primitive) -> Kernel:
        """Create the `eager_kernel`, which is cached for declared primitives."""
        if primitive.graph is not None and not self.supports(primitive.name):
            return CompositeKernel(self, primitive)
        return self.kernels[primitive.name]

    def can_compute(self, node: Node) -> bool:
        """Return whether a composite node runs as one node; else it is expanded."""
        return self.supports(node.op.name)

    def lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Any:
        """Lower a node to generated calls, with scratch bytes `.work`; None by default.

        With None, `kernels` compute the node. A subclass that generates code overrides
        it.

        Args:
            node: of a fused or of any other primitive.
            inputs, outputs: the operands in the order of the node.
            is_aligned: whether all addresses are multiples of 16 bytes.
        """
        return None

    def precompile(self, lowered: Any) -> None:
        """Start the slow preparation of a result of `lower`, before a program needs it.

        Args:
            lowered: for a node of a graph; the other nodes are lowered in parallel.
        """

    def cancel_precompile(self) -> None:
        """Cancel the preparation for a program that failed."""

    def specialize(self, lowered: Any, frozen: Collection[int], result: int = 0) -> Any:
        """Return a result of `lower` for inputs that never change.

        Args:
            lowered: for a node.
            frozen: the numbers of the inputs.
            result: the bytes of its only output if that can be cached too; else 0.
        """
        return lowered

    def assemble(
        self,
        lowered: Sequence[Any],
        shares: Shares,
        barrier: int,
    ) -> Any:
        """Join the results of `lower` for consecutive nodes into one program.

        Args:
            lowered: for each node.
            shares: the memory of their operands.
            barrier: the index of a node; it and later nodes run after all earlier ones.

        Returns:
            An object with the `moments` of the nodes, its timed `parts`, and `bind`.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def lower_loop(
        self,
        body: LoopBody,
        arena: tuple[str, int],
        moves: Sequence[LoopOperand],
        iterations: int,
        initial_outputs: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Any:
        """Return a lowered loop over a program from `assemble`.

        Args:
            body: a program of generated code only.
            arena: the operand for the body's intermediate values.
            moves: the location of each array of the body, in the order of its numbers.
            iterations: the number of iterations, at least 1.
            initial_outputs: outputs that start as the inputs of these numbers, if
                the backend jumps.
            changing: operands that are frozen for the body, but differ between runs.
        """
        raise NotImplementedError(f"backend {self.name} generates no code")

    def processors(
        self, name: str | None = None, threads: bool = True
    ) -> Sequence[Any]:
        """Return the targets of machine code: each is the `processor` of a `Target`.

        The result has several entries only for a name that means several: then a
        library has programs for each. Programs of one entry also run on the later
        entries.

        Args:
            name: for example "x86-64-v3"; None: the processor of this machine.
            threads: whether a library may start threads.

        Raises:
            UnsupportedError: the backend generates no machine code, or none for that.
        """
        raise UnsupportedError(f"backend {self.name} does not support native libraries")

    def build_library(self, source: LibrarySource) -> Library:
        """Build one object file that needs neither Python nor this package.

        Args:
            source: programs of generated code only, and their weights.

        Raises:
            UnsupportedError: the backend has no machine code, or the source is too
                large.
        """
        raise UnsupportedError(f"backend {self.name} does not support native libraries")

    def lower_branch(
        self,
        branches: Sequence[LoopBody],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Return the selection of a program by a bool, on backends that jump.

        Args:
            branches: programs of generated code only: for True and for False.
            inputs: the bool, and the inputs of both programs.
            outputs: the outputs of both programs.
        """
        raise NotImplementedError(f"backend {self.name} does not generate jumps")

    def lower_while(
        self,
        condition: LoopBody,
        body: LoopBody,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        limit: int | None,
        initial_outputs: Collection[int] = (),
    ) -> Any:
        """Return a lowered loop with an unknown trip count, on backends that jump.

        Args:
            condition: from carried values and constants: the first iteration runs.
            body: from the same: new carried values, and another iteration runs.
            inputs: the first carried values, then the constants.
            outputs: the last carried values.
            limit: the maximum trip count; None: no limit.
            initial_outputs: outputs that start as the inputs of these numbers, and
                are updated in place.
        """
        raise NotImplementedError(f"backend {self.name} does not generate jumps")

    @property
    def anchors(self) -> Collection[str]:
        """Return the primitives that elementwise nodes can follow in a kernel."""
        return ()

    @property
    def can_generate(self) -> bool:
        """Return whether `lower` ever returns a result."""
        return False

    def can_fuse(self, node: Node) -> bool:
        """Return whether an elementwise node can be part of a generated kernel."""
        return False

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a program runs its kernels."""
        return np.errstate(all="ignore")

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate an uninitialized array."""
        return np.empty(shape, dtypes.numpy_dtype(dtype))

    def on_shortage(self, release: Callable[[], None]) -> None:
        """Register a method that frees memory when memory is short."""

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Array]:
        """Allocate arrays as `empty` does, for the results of one call."""
        return [self.empty(*spec) for spec in specs]

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """Return `value` as an array; copy only if necessary; None keeps its dtype."""
        return np.asarray(value, None if dtype is None else dtypes.numpy_dtype(dtype))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """Return the content as a NumPy array, without a copy of shared memory."""
        return np.asarray(array)

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Start to copy arrays to the host; an accelerator continues to compute."""
        return PendingCopy(lambda: list(map(self.to_numpy, arrays)))

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """Allocate a 64-byte aligned 1-D uint8 array; `plan` describes its content."""
        block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        return block[start : start + nbytes]

    def allocate_aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate as `empty` does, 64-byte aligned: no vector crosses a cache line."""
        nbytes = math.prod(shape) * dtypes.itemsize(dtype)
        return self.view(self.arena(nbytes), 0, shape, dtype)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        """Return an array on the bytes of `arena` that start at `offset`."""
        return np.ndarray(shape, dtypes.numpy_dtype(dtype), arena, offset)

    def owns(self, array: Any) -> bool:
        """Return whether an array is in the memory of this backend."""
        return type(array) is np.ndarray

    def adopt(self, array: Any) -> Array:
        """Copy another library's array that is on this backend's device."""
        return np.array(array)

    def copy_array(self, array: Any) -> Array:
        """Return a copy without other references, in this backend's memory."""
        copy = self.allocate_aligned(array.shape, dtypes.name_of(array.dtype))
        copy[...] = self.as_row_major(array)
        return copy

    def overwrite(self, target: Array, source: Any) -> None:
        """Copy an array, from any device, over an array of this backend."""
        target[...] = self.as_row_major(source)

    def as_row_major(self, array: Any) -> Array:
        """Return an array for generated code: in this backend's memory, row-major."""
        if type(array) is np.ndarray and array.flags.c_contiguous:
            return array
        return np.array(to_host(array), order="C")

    def constant(self, array: Any) -> Array:
        """Return a constant of a program, given as a NumPy array."""
        return np.asarray(array, order="C")

    def address(self, array: Array) -> int:
        """Return the address of an array's first byte."""
        return int(array.ctypes.data)

    # The identity of a call's array in generated code: the id of a NumPy array.
    handle: Callable[[Array], int] = staticmethod(id)

    def call_table(
        self, specs: Sequence[Spec], retained: Collection[int], plan: Any = None
    ) -> Any:
        """Return the table of the array handles of a call, for generated code.

        Args:
            specs: of the arrays, by number.
            retained: the numbers of the arrays that are the same in most calls.
            plan: the content of the program's arena.
        """
        return (ctypes.c_int64 * max(1, len(specs)))()

    def peak_rates(self) -> tuple[float, float] | None:
        """Return peak operations and bytes per second; None if unknown."""
        return None

    def set_thread_count(self, count: int) -> None:
        """Set the number of compute threads."""

    def devices(self) -> tuple[str, ...]:
        """Return the names of this backend's devices."""
        return tuple(f"cpu:{i}" for i in range(settings.logical_devices("cpu")))

    @property
    def device_name(self) -> str:
        """Return the default device of programs."""
        return self.devices()[0]

    def describe(self) -> dict[str, Any]:
        """Return facts for `toolkit.config.show()`."""
        return {"cpu": cpu_model(), "cores": available_cores()}

    def cache_folder(self) -> Path | None:
        """Return the folder of compiled code; None without a cache."""
        return None


# The backends in use whose arrays are outside the host's memory.
accelerators: list[Backend] = []


def to_host(array: Any) -> Array:
    """Return an array as a NumPy array, copied from its device if necessary."""
    if type(array) is np.ndarray:
        return array
    owner = owner_of(array)
    return np.asarray(array) if owner is None else owner.to_numpy(array)


def owner_of(array: Any) -> Backend | None:
    """Return the backend whose memory holds an array; None for the host's memory."""
    if array is None or type(array) is np.ndarray:
        return None
    return next((b for b in accelerators if b.owns(array)), None)
