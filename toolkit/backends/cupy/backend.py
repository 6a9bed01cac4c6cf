"""The GPU backend: steps of generated kernels and libraries on one device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends.array import array_table
from toolkit.backends.base import (
    Backend,
    Move,
    Operand,
    aligned,
    contiguous,
    on_host,
)
from toolkit.backends.cupy import attention, norms, products
from toolkit.backends.cupy.cuda.fused import is_fusable
from toolkit.backends.cupy.cuda.launch import Scratch, generator
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.eager import EagerKernel
from toolkit.backends.cupy.lowering import (
    ANCHORS,
    LibraryCalls,
    Numerics,
    check,
    lower,
)
from toolkit.backends.cupy.memory import SMALL, packed
from toolkit.backends.cupy.passes import PASSES
from toolkit.backends.cupy.program import CallTable, GpuProgram
from toolkit.backends.cupy.steps import Loop, Lowered, named
from toolkit.backends.pending_copy import PendingCopy
from toolkit.backends.places import LoopBody
from toolkit.backends.rendering import Kernel, KernelTable
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec

Array = Any
# The calls that draw float32 from a range, and that fill an array; one kernel serves
# every size.
_LINE, _NUMBER = Spec((4096,), "float32"), Spec((), "float32")
FIRST_VALUES: tuple[tuple[str, tuple[Operand, ...], dict[str, Any]], ...] = (
    (
        "random_uniform",
        (contiguous(Spec((2,), "uint32")),),
        {"shape": _LINE.shape, "dtype": _LINE.dtype},
    ),
    ("multiply", (contiguous(_LINE), contiguous(_NUMBER)), {}),
    ("add", (contiguous(_LINE), contiguous(_NUMBER)), {}),
    ("stop_gradient", (Operand(_LINE, (0,)),), {}),
)
# These need no kernel, in any layout.
VIEWS = ("reshape", "transpose", "broadcast_to", "slice")


class CupyBackend(Backend):
    """Everything on one GPU.

    Args:
        device: which.
        xp: the array module of its memory, for what no generated kernel computes.
        count: how many such devices there are.
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
        others = {name: self.arrays[name] for name in VIEWS}
        super().__init__(eager | others | {"product": products.unlowered})

    def render(self, record: Primitive) -> Kernel | None:
        """The steps of a generator, if it has any, else what CuPy's functions make."""
        other = self.arrays[record.name] if record.name in self.arrays else None
        if other is None and generator(record) is None:
            return None
        return EagerKernel(self, record.name, other)

    def supports(self, name: str) -> bool:
        """Composites are taken apart, so that what they are made of is fused."""
        known = PRIMITIVES.get(name)
        is_composite = known is not None and known.kind is Kind.COMPOSITE
        return not is_composite and super().supports(name)

    def computes(self, node: Any) -> bool:
        """Whether a composite runs as one: in cuDNN's attention, in products."""
        if node.op.name == "attention_grad_of":
            return True
        if node.op.name == "attention" and "cudnn" in self.device.libraries:
            return attention.takes(node)
        if node.op.name in norms.OPS:
            return "cudnn" in self.device.libraries and norms.takes(node)
        if node.op.name in self.passes.parts:  # until products have been joined
            numerics = self.numerics
            dtype = node.outputs[0].spec.dtype
            has_library = "cublaslt" in numerics.libraries
            return has_library and products.takes_gelu(dtype, numerics.precision)
        return super().computes(node)

    # --- compiling --------------------------------------------------------------------

    @property
    def numerics(self) -> Numerics:
        """What decides about steps now."""
        device = self.device
        return Numerics(device.libraries, settings.matmul_precision(), device.offers)

    @property
    def generates(self) -> bool:
        return True

    @property
    def anchors(self) -> Collection[str]:
        """The products and convolutions that take an epilogue."""
        return ANCHORS

    @property
    def calls(self) -> LibraryCalls:  # type: ignore[override]
        """What one call of a library computes now."""
        return LibraryCalls(self.numerics)

    def fuses(self, node: Any) -> bool:
        """Whether the generator knows the operation and its dtypes."""
        return is_fusable(node)

    def lower(
        self,
        node: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Lowered | None:
        """The steps of a node; None where CuPy's functions have to do.

        Raises:
            UnsupportedOnBackend: nothing here computes it.
        """
        found = lower(node, inputs, outputs, is_aligned, self.numerics)
        if found is None:
            check(node, self.arrays)
            return None
        return named(found, node)

    def foresee(self, lowered: Lowered) -> None:
        """Begin to compile kernels and to make plans."""
        self.device.foresee(lowered.steps)

    def forget(self) -> None:
        """Compile no more kernels and make no more plans of those that are begun."""
        self.device.forget()

    def assemble(self, lowered: Sequence[Any], shares: Any, barrier: int) -> Any:
        """One program for consecutive lowered nodes."""
        return GpuProgram(self.device, lowered)

    def repeat(
        self,
        body: LoopBody,
        arena: tuple[str, int],
        moves: Sequence[Move],
        turns: int,
        begun: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Lowered:
        """A loop over a program as the one step of a node."""
        place = Scratch(arena[1], body.arena_bytes)
        loop = Loop(body, place, tuple(moves), turns)
        # The arena has a place even where nothing lies in it.
        return Lowered((loop,), max(1, arena[1] + body.arena_bytes), name="a loop")

    def foresee_first_values(self) -> None:
        """Begin to compile what makes the weights of nearly every model.

        Each would be waited for alone, when the first layer is built.
        """
        import_module("toolkit.random")  # it declares them, and all elementwise ones
        for name, operands, attrs in FIRST_VALUES:
            kernel: Any = self.kernels[name]
            kernel.foresee(operands, attrs)

    # --- memory -----------------------------------------------------------------------

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """The device and its stream."""
        return self.device.scope()

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return self.device.allocate(shape, dtype, "an array")

    def on_shortage(self, release: Callable[[], None]) -> None:
        self.device.on_shortage(release)

    def results(self, specs: Sequence[tuple[tuple[int, ...], str]]) -> list[Array]:
        """As `empty` gives them; small ones lie in one piece of memory."""
        places, end = _places(tuple(specs))
        if not end:
            return super().results(specs)
        block = self.empty((end,), "uint8")
        return [
            self.empty(*spec) if place is None else self.view(block, place, *spec)
            for place, spec in zip(places, specs, strict=True)
        ]

    def aligned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Like `empty`: the pool aligns all that it gives."""
        return self.empty(shape, dtype)

    def arena(self, nbytes: int, plan: Any = None) -> Array:
        """The memory of a program's intermediate values.

        Raises:
            OutOfDeviceMemory: naming the largest of them.
        """
        return self.device.allocate((aligned(nbytes),), "uint8", "the arena", plan)

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        return self.device.view(arena, offset, shape, dtype)

    def asarray(self, value: Any, dtype: str | None = None) -> Array:
        """An array of this device, copied only if it must be."""
        if self.device.owns(value):
            if dtype is None or dtypes.name_of(value.dtype) == dtype:
                return value
            return self.kernels["cast"](value, dtype=dtype)
        wanted = None if dtype is None else dtypes.numpy_dtype(dtype)
        return self.device.upload(np.asarray(on_host(value), wanted))

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy in host memory; here an index that was out of range is an error."""
        if not self.device.owns(array):
            return np.asarray(array)
        return self.device.download(self.in_order(array))

    def fetch(self, arrays: Sequence[Array]) -> PendingCopy:
        """Begin to copy arrays to the host on a stream of its own."""
        return self.device.fetch(list(map(self.in_order, arrays)))

    def owns(self, array: Any) -> bool:
        """Whether an array lies in the memory of the device."""
        return self.device.owns(array)

    def adopt(self, array: Any) -> Array:
        """A copy of another library's array on this device, by DLPack or CUDA's
        interface."""
        with self.device.failing():
            return self.device.adopt(array)

    def owned(self, array: Any) -> Array:
        """A copy of an array that nobody else holds."""
        own = self.empty(array.shape, dtypes.name_of(array.dtype))
        self.overwrite(own, array)
        return own

    def overwrite(self, target: Array, source: Any) -> None:
        """Start a copy of an array, wherever it is, over one of this device."""
        source = self.in_order(source)
        with self.device.scope(), self.device.failing():
            self.device.copy(self.address(target), self.address(source), target.nbytes)

    def in_order(self, array: Any) -> Array:
        """As steps expect an array: on the device, in row-major order."""
        found = self.asarray(array)
        if found.flags.c_contiguous:
            return found
        return self.kernels["stop_gradient"](found)

    def constant(self, array: Any) -> Array:
        """A constant of a program in the device's memory."""
        return self.asarray(np.asarray(array, order="C"))

    def address(self, array: Array) -> int:
        """Where the first element of an array is, on the device."""
        return self.device.address(array)

    @property
    def handle(self) -> Any:  # type: ignore[override]
        """What tells what steps know an array of a call by."""
        return self.device.address

    def call_table(
        self, specs: Sequence[Spec], kept: Collection[int], plan: Any = None
    ) -> CallTable:
        """Where a program finds the addresses of the arrays of a call."""
        return CallTable(specs, kept, plan)

    # --- facts ------------------------------------------------------------------------

    def devices(self) -> tuple[str, ...]:
        """The GPUs of this machine, each of which has a backend."""
        return tuple(f"gpu:{i}" for i in range(self.count))

    @property
    def device_name(self) -> str:
        """The one of this backend."""
        return self.device.name

    def describe(self) -> dict[str, Any]:
        """The device, its libraries and its memory."""
        return {
            "device": self.device.name,
            "libraries": ", ".join(sorted(self.device.libraries)) or "none",
            "memory": self.device.memory(),
            "matmul precision": settings.matmul_precision(),
        }


@lru_cache(256)
def _places(
    specs: tuple[tuple[tuple[int, ...], str], ...],
) -> tuple[list[int | None], int]:
    """Where in one block several small arrays lie, None for large ones; its bytes."""
    sizes = [math.prod(shape) * dtypes.itemsize(dtype) for shape, dtype in specs]
    small = [i for i, nbytes in enumerate(sizes) if nbytes <= SMALL]
    if len(small) < 2:
        return [None] * len(specs), 0
    offsets, end = packed([sizes[i] for i in small])
    found = dict(zip(small, offsets, strict=True))
    return [found.get(i) for i in range(len(specs))], end
