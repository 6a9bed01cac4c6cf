"""Kernels of the primitives that hold sub-graphs: each is a small loop.

A control kernel is created once per node, with a Program for each sub-graph. A scan
whose body is generated code becomes generated code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from toolkit.backends.generator import CodeGenerator
from toolkit.core.trace import Trace, inline
from toolkit.ir import Graph, Node, Spec
from toolkit.plans.collectives import describe_collective
from toolkit.plans.operands import LoopOperand, Operand, align_up

Array = Any


class ControlKernel:
    """A kernel that runs programs: `kernel(*arrays, out=(...), work=...)`.

    Args:
        attrs: attributes of the node, including its sub-graphs.
        executable: compiles a sub-graph into an executable, for inputs with the given
            memory layout.
    """

    def __init__(
        self, attrs: Mapping[str, Any], executable: Callable[..., Any]
    ) -> None:
        self.attrs = attrs
        self.executable = executable

    @cached_property
    def programs(self) -> dict[str, Any]:
        """Return the executable of each sub-graph, by attribute."""
        return {
            name: self.executable(value)
            for name, value in self.attrs.items()
            if isinstance(value, Graph)
        }

    def workspace(self, *specs: Spec, **attrs: Any) -> int:
        """Return the bytes of scratch memory, without the arenas of the programs."""
        return 0

    def lower(
        self,
        generator: CodeGenerator,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Return generated code, or None if the programs must be called."""
        return None


class Inlined(ControlKernel):
    """Kernels of a body in sequence.

    A fused node or a composite runs so where no code is generated.
    """

    def __call__(self, *inputs: Array, out: Any, work: Any = None) -> None:
        self.programs["body"].run(inputs, out)


class Cond(ControlKernel):
    """Kernel that runs one of two programs, selected by a boolean."""

    def __call__(
        self, predicate: Array, *inputs: Array, out: Any, work: Any = None
    ) -> None:
        branch = "true" if predicate else "false"
        self.programs[branch].run(inputs, out)

    def lower(
        self,
        generator: CodeGenerator,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Generate code for the choice, if both branches are generated code."""
        if not generator.can_jump:
            return None
        graphs = (self.attrs[name] for name in ("true", "false"))
        branches = [self.executable(graph, inputs[1:]).program for graph in graphs]
        if any(branch.code is None for branch in branches):
            return None
        return generator.lower_branch(branches, inputs, outputs)


class _Loop(ControlKernel):
    """Base of scan and while_loop: two sets of buffers for the carried values."""

    @property
    def carried(self) -> list[Spec]:
        inputs = self.attrs["body"].inputs[: self.attrs["carry"]]
        return [value.spec for value in inputs]

    def workspace(self, *specs: Spec, **attrs: Any) -> int:
        return 2 * sum(align_up(spec.nbytes) for spec in self.carried) or 0

    def lowered_body(
        self, generator: CodeGenerator, body: Graph, inputs: Sequence[Operand]
    ) -> tuple[Any, list[int]]:
        """Return the program of one iteration, and the values that it updates in place.

        A carried value is updated in place if the body writes a part of it (as of a
        cache) and does not read the old value afterwards.
        """
        producers = body.producers()
        writers = [producers.get(y) for y in body.outputs[: self.attrs["carry"]]]
        in_place = [
            i
            for i, (x, node) in enumerate(zip(body.inputs, writers, strict=False))
            if node is not None
            and node.op.name in _UPDATE_PRIMITIVES
            and node.inputs[0] is x
        ]
        in_place = in_place if generator.can_jump else []
        while True:
            program = self.executable(body, inputs, [(i, i) for i in in_place]).program
            producers, outputs = program.graph.producers(), program.graph.outputs
            confirmed = [
                i
                for i in in_place
                if producers[outputs[i]].op.name in _UPDATE_PRIMITIVES
            ]
            confirmed = confirmed if program.in_place else []
            if confirmed == in_place:
                return program, in_place
            in_place = confirmed

    def buffers(self, work: Array | None) -> tuple[list[Array], list[Array]]:
        memory = self.programs["body"].program.backend.memory
        if work is None:
            work = memory.arena(self.workspace())
        offset, sets = 0, ([], [])  # type: ignore[var-annotated]
        for arrays in sets:
            for spec in self.carried:
                arrays.append(memory.view(work, offset, spec.shape, spec.dtype))
                offset += align_up(spec.nbytes)
        return sets


# Least number of iterations for which the preparation of loop-invariant operands, such
# as weights, pays off.
_MANY_ITERATIONS = 4
# Primitives that change a part of their first operand, and may do so in place.
_UPDATE_PRIMITIVES = ("dynamic_update_slice", "scatter")


def _mark_varying(operands: Sequence[Operand]) -> list[Operand]:
    """Return the operands of the first iteration that change in later iterations."""
    return [replace(x, is_frozen=False) for x in operands]


class Scan(_Loop):
    """Kernel that runs a program for each step along the leading axis of xs."""

    def __call__(self, *inputs: Array, out: Any, work: Any = None) -> None:
        n, m = self.attrs["carry"], self.attrs["xs"]
        length, run = self.attrs["length"], self.programs["body"].run
        carry: Sequence[Array] = inputs[:n]
        xs, consts = inputs[n : n + m], inputs[n + m :]
        current, following = self.buffers(work)
        steps = range(length)
        for t in reversed(steps) if self.attrs["reverse"] else steps:
            at = [x[t, ...] for x in xs]
            targets = [*following, *(y[t, ...] for y in out[n:])]
            run([*carry, *at, *consts], targets)
            carry, current, following = following, following, current
        for target, value in zip(out[:n], carry, strict=True):
            target[...] = value

    def lower(
        self,
        generator: CodeGenerator,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Generate code for the loop, if the whole body is generated code.

        The carried values alternate between two sets of buffers.
        """
        n, m, iterations = self.attrs["carry"], self.attrs["xs"], self.attrs["length"]
        # The first iteration reads these; each later one reads the results of the
        # iteration before it.
        if not all(x.is_contiguous for x in inputs[:n]):
            return None
        inputs = [*_mark_varying(inputs[:n]), *inputs[n:]]
        at_turn = [
            Operand(x.spec.with_shape(x.spec.shape[1:]), x.strides[1:])
            for x in inputs[n : n + m]
        ]
        same = inputs[n + m :]
        changing = {("in", i) for i, x in enumerate(same, n + m) if not x.is_frozen}
        if iterations >= _MANY_ITERATIONS and generator.can_jump:
            same = [replace(x, is_frozen=True) for x in same]
        at_step = [*inputs[:n], *at_turn, *same]
        body, updated = self.lowered_body(generator, self.attrs["body"], at_step)
        carried = [
            0 if i in updated else align_up(spec.nbytes)
            for i, spec in enumerate(self.carried)
        ]
        if iterations == 0 or body.code is None:
            return None
        starts = list(accumulate(carried, initial=0))
        set_bytes = starts[-1]
        moves = [
            LoopOperand(("out", i))
            if i in updated
            else LoopOperand(
                ("work", starts[i]), phase=1, delta=set_bytes, first=("in", i)
            )
            for i in range(n)
        ]

        def along(kind: str, number: int, stride: int) -> LoopOperand:
            if self.attrs["reverse"]:
                return LoopOperand((kind, number), (iterations - 1) * stride, -stride)
            return LoopOperand((kind, number), 0, stride)

        moves += [along("in", i, inputs[i].strides[0]) for i in range(n, n + m)]
        moves += [LoopOperand(("in", i)) for i in range(n + m, len(inputs))]
        moves += [
            LoopOperand(("out", i))
            if i in updated
            else LoopOperand(("work", starts[i]), delta=set_bytes, last=("out", i))
            for i in range(n)
        ]
        moves += [
            along("out", i, outputs[i].strides[0]) for i in range(n, len(outputs))
        ]
        copies = [(i, self.carried[i]) for i in updated]
        return generator.lower_loop(
            body, ("work", 2 * set_bytes), moves, iterations, copies, changing
        )


class While(_Loop):
    """Kernel that runs a program while another program returns true."""

    def __call__(self, *inputs: Array, out: Any, work: Any = None) -> None:
        n, limit = self.attrs["carry"], self.attrs["maximum_iterations"]
        condition, body = self.programs["condition"].run, self.programs["body"].run
        carry: Sequence[Array] = inputs[:n]
        consts = inputs[n:]
        current, following = self.buffers(work)
        count = 0
        while (limit is None or count < limit) and condition([*carry, *consts])[0]:
            body([*carry, *consts], following)
            carry, current, following = following, following, current
            count += 1
        for target, value in zip(out, carry, strict=True):
            target[...] = value

    def lower(
        self,
        generator: CodeGenerator,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Generate code for the loop, if condition and body are generated code."""
        n = self.attrs["carry"]
        if not generator.can_jump or not all(x.is_contiguous for x in inputs[:n]):
            return None
        inputs = [*_mark_varying(inputs[:n]), *inputs[n:]]
        condition = self.executable(self.attrs["condition"], inputs).program
        body, updated = self.lowered_body(generator, self._body_and_condition(), inputs)
        if condition.code is None or body.code is None:
            return None
        limit = self.attrs["maximum_iterations"]
        return generator.lower_while(condition, body, inputs, outputs, limit, updated)

    def _body_and_condition(self) -> Graph:
        """Return a graph of the new carried values and the condition on them."""
        body, condition = self.attrs["body"], self.attrs["condition"]
        with Trace("while_loop") as trace:
            placeholders = [trace.placeholder(x.spec) for x in body.inputs]
            outputs = inline(body, placeholders)
            answer = inline(condition, [*outputs, *placeholders[self.attrs["carry"] :]])
        return trace.finish([*outputs, *answer])


# Host kernels of collectives: filled by `toolkit.compiler.sharding.collectives`.
COLLECTIVE_KERNELS: dict[str, Callable[[Node, str], Any]] = {}


def collective_kernel(node: Node) -> Any:
    """Return the kernel of a collective, which stores its description.

    The `background` of a kernel, if it has one, runs it in parallel with other steps.
    """
    return COLLECTIVE_KERNELS[node.op.name](node, describe_collective(node))


CONTROL_KERNELS: dict[str, type[ControlKernel]] = {
    "cond": Cond,
    "scan": Scan,
    "while_loop": While,
}
