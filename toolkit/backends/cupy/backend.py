"""GPU backend: steps of generated kernels and library calls on one device."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from toolkit import settings
from toolkit.backends.array import array_table
from toolkit.backends.base import Backend
from toolkit.backends.cupy import products
from toolkit.backends.cupy.cuda.generators import find_generator
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.device_memory import DeviceMemory
from toolkit.backends.cupy.eager import EagerKernel
from toolkit.backends.cupy.generator import CudaGenerator
from toolkit.backends.kernels import Kernel, KernelTable
from toolkit.comm.group import Group
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec
from toolkit.plans.operands import Operand, contiguous

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
# Primitives of the compiler, which exist only where they can be lowered.
UNNAMED = ("product", "combine_leaves")
VIEWS = ("reshape", "transpose", "broadcast_to", "slice")


class CudaKernels(KernelTable):
    """Kernels that run the steps of one node.

    Args:
        generator: the generator of the steps.
        arrays: the kernels of the array module, for calls without steps.
    """

    def __init__(self, generator: CudaGenerator, arrays: KernelTable) -> None:
        self.generator = generator
        self.arrays = arrays
        steps = {name: self._eager(name, kernel) for name, kernel in arrays.items()}
        views = {name: arrays[name] for name in VIEWS}
        super().__init__(
            steps | views | dict.fromkeys(UNNAMED, products.raise_unlowered), arrays.xp
        )

    def render(self, record: Primitive) -> Kernel | None:
        """Return the steps of a generator if one exists, else CuPy's functions."""
        other = self.arrays[record.name] if record.name in self.arrays else None
        if other is None and find_generator(record) is None:
            return None
        return self._eager(record.name, other)

    def supports(self, name: str) -> bool:
        """Return False for most composites, which the compiler expands and fuses."""
        primitive = PRIMITIVES.get(name)
        is_composite = primitive is not None and primitive.kind is Kind.COMPOSITE
        return not is_composite and super().supports(name)

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that selects the device and its stream."""
        return self.generator.device.scope()

    def _eager(self, name: str, other: Kernel | None) -> EagerKernel:
        return EagerKernel(self.generator, name, other)


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

    def __init__(self, device: Device, xp: Any, count: int = 1) -> None:
        self.device = device
        self.count = count
        arrays = KernelTable(array_table(xp), xp)
        self.generator = CudaGenerator(device, arrays)
        kernels = CudaKernels(self.generator, arrays)
        super().__init__(kernels, DeviceMemory(device, kernels))

    def precompile_initializers(self) -> None:
        """Start to compile the kernels that initialize the weights of most models.

        Without this, the first layer waits for each kernel in sequence.
        """
        # declares the random operations and all elementwise ones
        import_module("toolkit.random")
        for name, operands, attrs in INITIALIZERS:
            kernel: Any = self.kernels[name]
            kernel.precompile(operands, attrs)

    def devices(self) -> tuple[str, ...]:
        """Return the GPUs of this machine; each has a backend."""
        return tuple(f"gpu:{i}" for i in range(self.count))

    @property
    def device_name(self) -> str:
        """Return the name of this backend's device."""
        return self.device.name

    @property
    def device_identity(self) -> str:
        """Return a name of the device that no other device of a job has."""
        return self.device.identity

    @property
    def device_model(self) -> str:
        """Return the device's model and libraries, which determine its bits."""
        return self.device.model

    def connect(self, groups: Sequence[Group], world: Group) -> None:
        """Connect the GPUs of the ranks of groups: see `Backend.connect`.

        Args:
            groups: the groups of this rank.
            world: all ranks.
        """
        new = [group for group in groups if group not in self.device.groups]
        if new:
            self.device.connect(new, world)

    def disconnect(self) -> None:
        """Abort the collectives of the GPU: see `Backend.disconnect`."""
        self.device.disconnect()

    def finish(self) -> None:
        """Wait for all programs on the GPU: see `Backend.finish`."""
        self.device.finish()

    def describe(self) -> dict[str, Any]:
        """Return a description of the device, its libraries and its memory."""
        return {
            "device": self.device.name,
            "libraries": ", ".join(sorted(self.device.libraries)) or "none",
            "memory": self.device.memory(),
            "matmul precision": settings.matmul_precision(),
        }
