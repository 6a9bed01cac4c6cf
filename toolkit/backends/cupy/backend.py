"""GPU backend: steps of generated kernels and library calls on one device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends.array import array_table
from toolkit.backends.base import (
    Backend,
    LoopOperand,
    Operand,
    align_up,
    contiguous,
    to_host,
)
from toolkit.backends.cupy import attention, norms, products
from toolkit.backends.cupy.cuda.fused import is_fusable
from toolkit.backends.cupy.cuda.generators import find_generator
from toolkit.backends.cupy.cuda.launch import Scratch
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.eager import EagerKernel
from toolkit.backends.cupy.lowering import (
    ANCHORS,
    LibraryCalls,
    Numerics,
    check_supported,
    lower,
)
from toolkit.backends.cupy.memory import SMALL, pack_offsets
from toolkit.backends.cupy.passes import PASSES
from toolkit.backends.cupy.program import CallTable, GpuProgram
from toolkit.backends.cupy.steps import Loop, Lowered, name_steps
from toolkit.backends.locations import LoopBody
from toolkit.backends.pending_copy import PendingCopy
from toolkit.backends.rendering import Kernel, KernelTable
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec

if TYPE_CHECKING:
    from toolkit.ir import Node

Array = Any
# Calls that draw uniform float32 and fill an array. One kernel serves every size.
_LINE, _NUMBER = Spec((4096,), "float32"), Spec((), "float32")
INITIALIZERS: tuple[tuple[str, tuple[Operand, ...], dict[str, Any]], ...] = (
    (
        "random_uniform",
        (contiguous(Spec((2,), "uint32")),),
        {"shape": _LINE.shape, "dtype": _LINE.dtype},
    ),
    ("multiply", (contiguous(_LINE), contiguous(_NUMBER)), {}),
    ("add", (contiguous(_LINE), contiguous(_NUMBER)), {}),
    ("stop_gradient", (Operand(_LINE, (0,)),), {}),
)
# These operations need no kernel, in any layout.
VIEWS = ("reshape", "transpose", "broadcast_to", "slice")


class CupyBackend(Backend):
    """Backend that computes on one GPU.

    Args:
        device: the device.
        xp: the array module of the device memory, for operations without generated
            kernels.
        count: the number of such devices.
    """

    name = "cupy"
    is_accelerator = True
    can_branch = False
    passes = PASSES

    def __init__(self, device: Device, xp: Any, count: int = 1) -> None:
        self.device = device
        self.count = count
        self.xp = xp
        self.arrays: KernelTable = KernelTable(array_table(xp), super().render)
        eager = {name: EagerKernel(self, name, k) for name, k in self.arrays.items()}
        views = {name: self.arrays[name] for name in VIEWS}
        super().__init__(eager | views | {"product": products.raise_unlowered})

    def render(self, record: Primitive) -> Kernel | None:
        """Return the steps of a generator if one exists, else CuPy's functions."""
        other = self.arrays[record.name] if record.name in self.arrays else None
        if other is None and find_generator(record) is None:
            return None
        return EagerKernel(self, record.name, other)

    def supports(self, name: str) -> bool:
        """Return False for most composites, which the compiler expands and fuses."""
        primitive = PRIMITIVES.get(name)
        is_composite = primitive is not None and primitive.kind is Kind.COMPOSITE
        return not is_composite and super().supports(name)

    def can_compute(self, node: Node) -> bool:
        """Return whether a composite runs as one node: cuDNN attention or a product."""
        if node.op.name == "attention_grad_of":
            return True
        if node.op.name == "attention" and "cudnn" in self.device.libraries:
            return attention.is_supported(node)
        if node.op.name in norms.OPS:
            return "cudnn" in self.device.libraries and norms.is_supported(node)
        # until the pass that joins products has run
        if node.op.name in self.passes.product_parts:
            numerics = self.numerics
            dtype = node.outputs[0].spec.dtype
            has_library = "cublaslt" in numerics.libraries
            return has_library and products.is_gelu_supported(dtype, numerics.precision)
        return super().can_compute(node)

    # --- compiling --------------------------------------------------------------------

    @property
    def numerics(self) -> Numerics:
        """Return the current settings that select the steps."""
        device = self.device
        return Numerics(device.libraries, settings.matmul_precision(), device.offers)

    @property
    def can_generate(self) -> bool:
        return True

    @property
    def anchors(self) -> Collection[str]:
        """Return the products and convolutions that take an epilogue."""
        return ANCHORS

    @property
    def library_calls(self) -> LibraryCalls:  # type: ignore[override]
        """Return the current limits of one library call."""
        return LibraryCalls(self.numerics)

    def can_fuse(self, node: Node) -> bool:
        """Return whether the code generator supports the operation and its dtypes."""
        return is_fusable(node)

    def lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Lowered | None:
        """Lower a node to steps; return None where only CuPy's functions compute it.

        Raises:
            UnsupportedOnBackend: nothing on this backend computes the node.
        """
        lowered = lower(node, inputs, outputs, is_aligned, self.numerics)
        if lowered is None:
            check_supported(node, self.arrays)
            return None
        return name_steps(lowered, node)

    def precompile(self, lowered: Lowered) -> None:
        """Start to compile kernels and to build plans in background threads."""
        self.device.precompile(lowered.steps)

    def cancel_precompile(self) -> None:
        """Cancel the compilations and plans that have not started."""
        self.device.cancel_precompile()

    def assemble(self, lowered: Sequence[Any], shares: Any, barrier: int) -> Any:
        """Return one program for consecutive lowered nodes."""
        return GpuProgram(self.device, lowered)

    def lower_loop(
        self,
        body: LoopBody,
        arena: tuple[str, int],
        moves: Sequence[LoopOperand],
        iterations: int,
        initial_outputs: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Lowered:
        """Return a loop over a program as the one step of a node."""
        arena_address = Scratch(arena[1], body.arena_bytes)
        loop = Loop(body, arena_address, tuple(moves), iterations)
        # The arena gets an allocation even if it is empty.
        return Lowered((loop,), max(1, arena[1] + body.arena_bytes), name="a loop")

    def precompile_initializers(self) -> None:
        """Start to compile the kernels that initialize the weights of most models.

        Without this, the first layer waits for each kernel in sequence.
        """
        # declares the random operations and all elementwise ones
        import_module("toolkit.random")
        for name, operands, attrs in INITIALIZERS:
            kernel: Any = self.kernels[name]
            kernel.precompile(operands, attrs)

    # --- memory -----------------------------------------------------------------------

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that selects the device and its stream."""
        return self.device.scope()

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return self.device.allocate(shape, dtype, "an array")

    def on_shortage(self, release: Callable[[], None]) -> None:
        self.device.on_shortage(release)

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Array]:
        """Allocate arrays as `empty` does; small ones share one block of memory."""
        offsets, end = _pack_results(tuple(specs))
        if not end:
            return super().allocate_results(specs)
        block = self.empty((end,), "uint8")
        return [
            self.empty(*spec) if offset is None else self.view(block, offset, *spec)
            for offset, spec in zip(offsets, specs, strict=True)
        ]

    def allocate_aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Allocate an array as `empty` does: the pool aligns all allocations."""
        return self.empty(shape, dtype)

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """Allocate the memory of a program's intermediate values.

        Raises:
            OutOfDeviceMemory: the message names the largest values.
        """
        return self.device.allocate((align_up(nbytes),), "uint8", "the arena", plan)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        return self.device.view(arena, offset, shape, dtype)

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """Return an array on this device; copy only if necessary."""
        if self.device.owns(value):
            if dtype is None or dtypes.name_of(value.dtype) == dtype:
                return value
            return self.kernels["cast"](value, dtype=dtype)
        target_dtype = None if dtype is None else dtypes.numpy_dtype(dtype)
        return self.device.upload(np.asarray(to_host(value), target_dtype))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy to host memory; raise the error of an earlier out-of-range index."""
        if not self.device.owns(array):
            return np.asarray(array)
        return self.device.download(self.as_row_major(array))

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Start to copy arrays to the host on a separate stream."""
        return self.device.fetch(list(map(self.as_row_major, arrays)))

    def owns(self, array: Any) -> bool:
        """Return whether an array is in the memory of the device."""
        return self.device.owns(array)

    def adopt(self, array: Any) -> Array:
        """Copy an array of another library to this device, by DLPack or CUDA."""
        with self.device.failing():
            return self.device.adopt(array)

    def copy_array(self, array: Any) -> Array:
        """Return a copy of an array that has no other reference."""
        copy = self.empty(array.shape, dtypes.name_of(array.dtype))
        self.overwrite(copy, array)
        return copy

    def overwrite(self, target: Array, source: Any) -> None:
        """Start a copy of an array, from any device, into one on this device."""
        source = self.as_row_major(source)
        with self.device.scope(), self.device.failing():
            self.device.copy(self.address(target), self.address(source), target.nbytes)

    def as_row_major(self, array: Any) -> Array:
        """Return an array as steps expect it: on the device, in row-major order."""
        result = self.asarray(array)
        if result.flags.c_contiguous:
            return result
        return self.kernels["stop_gradient"](result)

    def constant(self, array: Any) -> Array:
        """Copy a constant of a program to device memory."""
        return self.asarray(np.asarray(array, order="C"))

    def address(self, array: Array) -> int:
        """Return the device address of an array's first element."""
        return self.device.address(array)

    @property
    def handle(self) -> Any:  # type: ignore[override]
        """Return the function that returns the address of an array of a call."""
        return self.device.address

    def call_table(
        self, specs: Sequence[Spec], retained: Collection[int], plan: Any = None
    ) -> CallTable:
        """Return the table that gives a program the array addresses of a call."""
        return CallTable(specs, retained, plan)

    # --- facts ------------------------------------------------------------------------

    def devices(self) -> tuple[str, ...]:
        """Return the GPUs of this machine; each has a backend."""
        return tuple(f"gpu:{i}" for i in range(self.count))

    @property
    def device_name(self) -> str:
        """Return the name of this backend's device."""
        return self.device.name

    def describe(self) -> dict[str, Any]:
        """Return a description of the device, its libraries and its memory."""
        return {
            "device": self.device.name,
            "libraries": ", ".join(sorted(self.device.libraries)) or "none",
            "memory": self.device.memory(),
            "matmul precision": settings.matmul_precision(),
        }


@lru_cache(256)
def _pack_results(
    specs: tuple[tuple[tuple[int, ...], str], ...],
) -> tuple[list[int | None], int]:
    """Return the offsets of small arrays in one block (else None), and its size."""
    sizes = [math.prod(shape) * dtypes.itemsize(dtype) for shape, dtype in specs]
    small = [i for i, nbytes in enumerate(sizes) if nbytes <= SMALL]
    if len(small) < 2:
        return [None] * len(specs), 0
    offsets, end = pack_offsets([sizes[i] for i in small])
    by_index = dict(zip(small, offsets, strict=True))
    return [by_index.get(i) for i in range(len(specs))], end
