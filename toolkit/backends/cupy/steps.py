"""What a program on a GPU does, step by step, as plain data made without a device.

A step is a launch of a generated kernel, a product by cuBLASLt, a graph of cuDNN, or a
loop over the steps of another program. Operands are named as in launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.backends.base import Move, Operand, aligned, contiguous
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Launch,
    Scratch,
    generate,
    moved,
    scratch_bytes,
)
from toolkit.backends.cupy.signatures import Signature
from toolkit.backends.places import LoopBody
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Node, Spec, Value

Place = Buffer | Scratch
# Bytes that a product may use as scratch memory, and a graph of cuDNN (None: as many as
# it likes); after running out of memory, those of the second row.
WORKSPACES = ((32 << 20, None), (1 << 20, 64 << 20))


@record
class Product:
    """A matrix product: a, b, d, and what its `extras` name.

    offsets: the bytes at which each of them begins in its operand.
    """

    gemm: Gemm
    operands: tuple[Place, ...]
    offsets: tuple[int, ...]


@record
class Dnn:
    """A graph of cuDNN on operands, in the order of its uids from 1 on."""

    signature: Signature
    operands: tuple[Place, ...]


@record
class Loop:
    """A program that runs turn after turn.

    Attributes:
        body: a program that is generated code alone.
        arena: where the body keeps its intermediate values.
        moves: where each array of the body is.
        turns: how often it runs.
    """

    body: LoopBody
    arena: Scratch
    moves: tuple[Move, ...]
    turns: int


Step = Launch | Product | Dnn | Loop


@record
class Lowered:
    """The steps of a node, in order.

    Attributes:
        work: the bytes of scratch memory that they share.
        inputs: how many inputs the node has: buffers count on with its outputs.
        name: what the node computes and which layer it is from, for messages.
    """

    steps: tuple[Step, ...] = ()
    work: int = 0
    inputs: int = 0
    name: str = ""


class Pieces:
    """Steps in the making, with the scratch memory that they share."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.work: int = 0

    def take(self, nbytes: int) -> Scratch:
        """A piece of scratch memory."""
        piece = Scratch(self.work, nbytes)
        self.work += aligned(nbytes)
        return piece

    def copy(self, place: Place, source: Operand, target: Place | None = None) -> Place:
        """Copy an operand into a row-major array: scratch memory, if not given."""
        target = target or self.take(source.spec.nbytes)
        self.generate("stop_gradient", [source], [place], [target], [source.spec])
        return target

    def generate(
        self,
        name: str,
        sources: Sequence[Operand],
        places: Sequence[Place],
        targets: Sequence[Place],
        specs: Sequence[Spec],
        **attrs: Any,
    ) -> None:
        """Append the launches of a primitive on places of this node's operands."""
        inputs = [Value(x.spec) for x in sources]
        node = Node(PRIMITIVES[name], inputs, attrs, [Value(spec) for spec in specs])
        launches = generate(node, sources, [contiguous(spec) for spec in specs], False)
        if launches is None:
            raise NotLowered(name)
        self.launch(launches, [*places, *targets])

    def launch(self, launches: Sequence[Launch], places: Sequence[Place]) -> None:
        """Append launches whose buffers are at these places; their scratch is here."""
        inner = self.take(scratch_bytes(launches)) if scratch_bytes(launches) else None
        base = inner.offset if inner else 0
        self.steps += [moved(launch, places, base) for launch in launches]

    def done(self) -> Lowered:
        """What was collected."""
        return Lowered(tuple(self.steps), self.work)


class NotLowered(Exception):
    """No generated kernel fits: another provider, or NumPy's interface, has to do."""


def named(lowered: Lowered, node: Node) -> Lowered:
    """The steps of a node, with what to say of them."""
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
