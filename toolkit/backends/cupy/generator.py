"""Code generator for GPUs: steps of generated kernels and library calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolkit import settings
from toolkit.backends.cupy import attention, norms, products
from toolkit.backends.cupy.cuda.fused import is_fusable
from toolkit.backends.cupy.cuda.launch import Scratch
from toolkit.backends.cupy.device import Device
from toolkit.backends.cupy.exchange_stream import find_joins
from toolkit.backends.cupy.exchanges import lower_collective, name_collective
from toolkit.backends.cupy.lowering import (
    ANCHORS,
    LibraryCalls,
    Numerics,
    check_supported,
    lower,
)
from toolkit.backends.cupy.passes import PASSES
from toolkit.backends.cupy.program import CallTable, GpuProgram
from toolkit.backends.cupy.steps import Exchange, Loop, Lowered, name_steps
from toolkit.backends.generator import CodeGenerator
from toolkit.backends.kernels import Kernel
from toolkit.comm.group import Group
from toolkit.comm.overlap import can_overlap
from toolkit.ir import Spec
from toolkit.plans.locations import LoopBody, Shares
from toolkit.plans.operands import LoopOperand, Operand

if TYPE_CHECKING:
    from toolkit.ir import Node


class CudaGenerator(CodeGenerator):
    """Generator of steps for one GPU.

    Args:
        device: the device.
        kernels: of the array module, by the name of the primitive. They compute nodes
            without steps.
    """

    can_generate = True
    can_branch = False
    rows_depend_on_batch = True
    # Products and convolutions take an epilogue.
    anchors = ANCHORS
    passes = PASSES

    def __init__(self, device: Device, kernels: Mapping[str, Kernel]) -> None:
        super().__init__("cupy")
        self.device = device
        self.kernels = kernels
        # The identity of an array of a call: its address.
        self.handle = device.address

    @property
    def numerics(self) -> Numerics:
        """Return the current settings that select the steps."""
        device = self.device
        return Numerics(device.libraries, settings.matmul_precision(), device.offers)

    @property
    def library_calls(self) -> LibraryCalls:
        """Return the current limits of one library call."""
        return LibraryCalls(self.numerics)

    def can_fuse(self, node: Node) -> bool:
        """Return whether the code generator supports the operation and its dtypes."""
        return is_fusable(node)

    def can_lower_composite(self, node: Node) -> bool:
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
        return False

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
            check_supported(node, self.kernels)
            return None
        return name_steps(lowered, node)

    def lower_collective(
        self, node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Lowered | None:
        """Lower a collective to a step, if the device has a group of its ranks."""
        if node.attrs["axis"].group not in self.device.groups:
            return None
        lowered = lower_collective(node, inputs, outputs)
        if lowered is None:
            return None
        return name_collective(replace(lowered, inputs=len(inputs)), node)

    def can_overlap(self, group: Group) -> bool:
        """Return whether the GPUs of a group are connected, and overlap is enabled."""
        return group in self.device.groups and can_overlap(group, has_stream=True)

    def precompile(self, lowered: Lowered) -> None:
        """Start to compile kernels and to build plans in background threads."""
        exchanges = (step for step in lowered.steps if isinstance(step, Exchange))
        combinations = (launch for step in exchanges for launch in step.launches)
        self.device.precompile((*lowered.steps, *combinations))

    def cancel_precompile(self) -> None:
        """Cancel the compilations and plans that have not started."""
        self.device.cancel_precompile()

    def assemble(
        self, lowered: Sequence[Any], shares: Shares, barrier: int
    ) -> GpuProgram:
        """Return one program for consecutive lowered nodes."""
        return GpuProgram(self.device, lowered, find_joins(lowered, shares))

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

    def call_table(
        self, specs: Sequence[Spec], retained: Collection[int], plan: Any = None
    ) -> CallTable:
        """Return the table that gives a program the array addresses of a call."""
        return CallTable(specs, retained, plan)
