"""How a program runs the primitives that hold sub-graphs: each is a small loop.

A control kernel is made once per node, with a Program for each sub-graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.backends.base import Operand, aligned
from toolkit.ir import Node, Spec

Array = Any


class ControlKernel:
    """A kernel that runs programs: `kernel(*arrays, out=(...), work=...)`."""

    def __init__(self, node: Node, programs: dict[str, Any]) -> None:
        self.programs = programs
        self.attrs = node.attrs

    def workspace(self, *specs: Spec, **attrs: Any) -> int:
        """Bytes of scratch memory, besides the arenas of the programs."""
        return 0

    def lower(
        self, backend: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> Any:
        """Generated code for the node; None if the programs have to be called."""
        return None


class Cond(ControlKernel):
    """One of two programs, by a boolean."""

    def __call__(
        self, predicate: Array, *inputs: Array, out: Any, work: Any = None
    ) -> None:
        branch = "true" if predicate else "false"
        self.programs[branch].run(inputs, out)


class _Loop(ControlKernel):
    """What scan and while_loop share: two sets of buffers for the carried values."""

    @property
    def carried(self) -> list[Spec]:
        body = self.programs["body"].graph
        return [value.spec for value in body.inputs[: self.attrs["carry"]]]

    def workspace(self, *specs: Spec, **attrs: Any) -> int:
        return 2 * sum(aligned(spec.nbytes) for spec in self.carried) or 0

    def buffers(self, work: Array | None) -> tuple[list[Array], list[Array]]:
        backend = self.programs["body"].backend
        if work is None:
            work = backend.arena(self.workspace())
        offset, sets = 0, ([], [])  # type: ignore[var-annotated]
        for arrays in sets:
            for spec in self.carried:
                arrays.append(backend.view(work, offset, spec.shape, spec.dtype))
                offset += aligned(spec.nbytes)
        return sets


class Scan(_Loop):
    """A program for each step along the leading axis of xs."""

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
            np.copyto(target, value)


class While(_Loop):
    """A program as long as another one says so."""

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
            np.copyto(target, value)


CONTROL_KERNELS: dict[str, type[ControlKernel]] = {
    "cond": Cond,
    "scan": Scan,
    "while_loop": While,
}
