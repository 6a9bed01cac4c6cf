"""Steps of a GPU program, as plain data that needs no device.

A step is a launch of a generated kernel, a product by cuBLASLt, a graph of cuDNN, or a
loop over the steps of another program. Operands have the same notation as in launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Launch,
    Scratch,
    rebase_launch,
    scratch_bytes,
)
from toolkit.backends.cupy.signatures import Signature
from toolkit.comm.group import Group
from toolkit.comm.sum_plans import SumPlan
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Node, Spec, Value
from toolkit.plans.locations import LoopBody
from toolkit.plans.operands import LoopOperand, Operand, align_up, contiguous

Address = Buffer | Scratch
# Scratch limits in bytes of a product and of a cuDNN graph (None: no limit); after an
# out-of-memory error, the second row.
WORKSPACES = ((32 << 20, None), (1 << 20, 64 << 20))


@record
class Product:
    """Matrix product: a, b, d, and its `extras`.

    offsets: the offset of each of them in its operand, in bytes.
    """

    gemm: Gemm
    operands: tuple[Address, ...]
    offsets: tuple[int, ...]


@record
class Dnn:
    """cuDNN graph on operands, in the order of its uids from 1 on."""

    signature: Signature
    operands: tuple[Address, ...]


@record
class Loop:
    """Program that runs for a number of iterations.

    Attributes:
        body: a program of generated code only.
        arena: the memory of the body's intermediate values.
        moves: the location of each array of the body.
        iterations: the number of iterations.
    """

    body: LoopBody
    arena: Scratch
    moves: tuple[LoopOperand, ...]
    iterations: int


@record
class Exchange:
    """Collective between GPUs: a plan of transfers, kernels and gathers.

    Attributes:
        plan: the plan of this rank.
        launches: the kernels of its combinations, in order.
        operands: the local pieces, the results, and the scratch memory.
        pieces: the number of local pieces.
        group: the group of the ranks, by which the device finds its communicator.
        name: the collective and its layers, for messages.
    """

    plan: SumPlan
    launches: tuple[Launch, ...]
    operands: tuple[Address, ...]
    pieces: int
    group: Group
    name: str


Step = Launch | Product | Dnn | Loop | Exchange


@record
class Lowered:
    """Steps of a node, in order.

    Attributes:
        work: the bytes of scratch memory that they share.
        inputs: the number of inputs of the node; the outputs are the buffers after
            them.
        name: the operation of the node and its layer, for messages.
    """

    steps: tuple[Step, ...] = ()
    work: int = 0
    inputs: int = 0
    name: str = ""


class StepBuilder:
    """Builder of steps and of the scratch memory that they share."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.work: int = 0

    def allocate(self, nbytes: int) -> Scratch:
        """Allocate a piece of scratch memory."""
        piece = Scratch(self.work, nbytes)
        self.work += align_up(nbytes)
        return piece

    def copy(
        self, address: Address, source: Operand, target: Address | None = None
    ) -> Address:
        """Copy an operand into a row-major array, by default in scratch memory."""
        target = target or self.allocate(source.spec.nbytes)
        self.generate("stop_gradient", [source], [address], [target], [source.spec])
        return target

    def generate(
        self,
        name: str,
        sources: Sequence[Operand],
        addresses: Sequence[Address],
        targets: Sequence[Address],
        specs: Sequence[Spec],
        **attrs: Any,
    ) -> None:
        """Append the launches of a primitive on locations of this node's operands."""
        inputs = [Value(x.spec) for x in sources]
        node = Node(PRIMITIVES[name], inputs, attrs, [Value(spec) for spec in specs])
        launches = generate(node, sources, [contiguous(spec) for spec in specs], False)
        if launches is None:
            raise NotLowered(name)
        self.launch(launches, [*addresses, *targets])

    def launch(self, launches: Sequence[Launch], addresses: Sequence[Address]) -> None:
        """Append launches on these buffers, with scratch memory from this builder."""
        inner = (
            self.allocate(scratch_bytes(launches)) if scratch_bytes(launches) else None
        )
        base = inner.offset if inner else 0
        self.steps += [rebase_launch(launch, addresses, base) for launch in launches]

    def build(self) -> Lowered:
        """Return the collected steps."""
        return Lowered(tuple(self.steps), self.work)


class NotLowered(Exception):
    """No generated kernel applies; another provider must compute the node."""


def name_steps(lowered: Lowered, node: Node) -> Lowered:
    """Return the steps of a node with a name for messages."""
    members = node.attrs["body"].nodes if node.op.name == "fused" else (node,)
    names = ", ".join(dict.fromkeys(member.op.name for member in members))
    where = f" in {node.origin}" if node.origin else ""
    steps = lowered.steps
    if where:
        text = where.replace("{", "{{").replace("}", "}}")
        steps = tuple(
            replace(step, problem=step.problem + text)
            if isinstance(step, Launch) and step.problem
            else step
            for step in steps
        )
    return replace(lowered, steps=steps, name=f"{names} {node.outputs[0].spec}{where}")
