"""Backends: kernels, memory and a code generator, for the devices of one library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from toolkit import settings
from toolkit.backends.composites import CompositeKernel
from toolkit.backends.generator import CodeGenerator
from toolkit.backends.kernels import Kernel, KernelTable, Reads
from toolkit.backends.memory import Memory
from toolkit.comm.group import Group
from toolkit.errors import ArgumentError, BackendUnavailable
from toolkit.ir import PRIMITIVES, Node, Primitive, Spec, Value
from toolkit.machine import available_cores, cpu_model


class Backend:
    """Kernels by the name of their primitive, with their memory and a code generator.

    A subclass sets `name`. It overrides `generator` if it generates code.

    Args:
        kernels: by the name of the primitive, or a table with other rules.
        memory: of the arrays; None: the host's memory.
    """

    name = "backend"
    # The lookup name in `get_backend`: the name, with a number if it is one of several.
    key = "backend"
    # Whether its arrays are outside the host's memory.
    is_accelerator = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for part, attribute in ((CodeGenerator, "generator"), (Memory, "memory")):
            for name in vars(cls):
                if name in vars(part) and not hasattr(Backend, name):
                    raise ArgumentError(
                        f"{cls.__name__}.{name}: {part.__name__} has this member, and "
                        f"a Backend does not use it; define it in a subclass of "
                        f"{part.__name__}, and set `{attribute}` to an instance"
                    )

    def __init__(
        self, kernels: Mapping[str, Kernel], memory: Memory | None = None
    ) -> None:
        if not isinstance(kernels, KernelTable):
            kernels = KernelTable(kernels)
        self.kernels: KernelTable = kernels
        self.memory: Memory = Memory() if memory is None else memory
        self._eager_kernels: dict[str, Kernel] = {}

    @cached_property
    def generator(self) -> CodeGenerator:
        """Return the code generator, which is created at its first use."""
        return CodeGenerator(self.name)

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

    def sized_kernel(
        self,
        primitive: Primitive,
        specs: Sequence[Spec],
        attrs: Mapping[str, object],
        used: Sequence[bool] = (True, True),
    ) -> Kernel:
        """Return a kernel that does for these operands what the `eager_kernel` does.

        Args:
            primitive: the primitive.
            specs: the specs of the operands.
            attrs: the attributes of the call.
            used: whether a result is used, for each result. None can replace others.
        """
        return self.eager_kernel(primitive)

    def hot_kernel(
        self, primitive: Primitive, specs: Sequence[Spec], attrs: Mapping[str, object]
    ) -> Kernel | None:
        """Return a kernel for many calls with these specs, or None without another one.

        It has the same bits as the `sized_kernel`. Its compilation takes milliseconds.

        Args:
            primitive: the primitive.
            specs: the specs of the operands.
            attrs: the attributes of the calls.
        """
        return None

    def fuse_steps(
        self,
        steps: Sequence[tuple[Kernel, Node]],
        outputs: Sequence[Value],
        constants: Mapping[Value, object],
    ) -> list[tuple[Kernel, Node]]:
        """Return steps for many calls, with the bits of the given ones.

        Args:
            steps: kernels and their nodes, in order.
            outputs: the values to compute.
            constants: the arrays of the other values that the kernels read.
        """
        return list(steps)

    def has_equal_code(self, kernel: Kernel, node: Node, reads: Reads) -> bool:
        """Return whether code of a program has the same bits as a kernel.

        Args:
            kernel: the kernel of a call outside of programs.
            node: the node that it computes, on operands with row-major axes.
            reads: the arrays that a loop reads to compute the operands.
        """
        return False

    def make_eager_kernel(self, primitive: Primitive) -> Kernel:
        """Create the `eager_kernel`, which is cached for declared primitives."""
        if primitive.graph is not None and not self.kernels.supports(primitive.name):
            return CompositeKernel(self, primitive)
        return self.kernels[primitive.name]

    def set_thread_count(self, count: int) -> None:
        """Set the number of compute threads."""

    def devices(self) -> tuple[str, ...]:
        """Return the names of this backend's devices."""
        return tuple(f"cpu:{i}" for i in range(settings.logical_devices("cpu")))

    @property
    def device_identity(self) -> str:
        """Return a name of the device that no other device of a job has."""
        return self.device_name

    @property
    def device_model(self) -> str:
        """Return the device's model and libraries, which determine its bits."""
        return self.name

    def connect(self, groups: Sequence[Group], world: Group) -> None:
        """Connect the devices of the ranks of groups; all ranks of a job call this.

        Collectives of the groups then run on the devices.

        Args:
            groups: the groups of this rank, in the same order on all ranks.
            world: all ranks. Either all of them connect their groups, or none.

        Raises:
            BackendUnavailable: on all ranks, if one of them cannot connect its device.
        """
        raise BackendUnavailable(f"{self.name}: no library connects its devices")

    def disconnect(self) -> None:
        """Abort the collectives of the device, after the loss of a rank."""

    def finish(self) -> None:
        """Wait for all programs on the device.

        Raises:
            RankLostError: a rank is lost, for which a collective waits.
            ToolkitError: the error of another rank that failed.
        """

    @property
    def device_name(self) -> str:
        """Return the default device of programs."""
        return self.devices()[0]

    def describe(self) -> dict[str, Any]:
        """Return facts for `toolkit.config.show()`."""
        return {"cpu": cpu_model(), "cores": available_cores()}
