"""What the compiler made of a function, to print: passes, nodes, memory."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compiler.execute import Frame, Program
from toolkit.compiler.passes import stages


class Inspection:
    """The graph after each pass, the memory plan, and the schedule of a program.

    Print it, or read `passes` (name -> graph), `peak_bytes` and `live_bytes`.
    """

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.program = program

    @property
    def passes(self) -> list[tuple[str, Any]]:
        """Pairs of a pass's name and the graph after it, in order."""
        return list(stages(self.program.source, self.program.backend))

    @property
    def graph(self) -> Any:
        """The final graph, in the order in which it runs."""
        return self.program.graph

    @property
    def peak_bytes(self) -> int:
        """Bytes of the arena, sub-programs included."""
        return self.program.nbytes

    @property
    def live_bytes(self) -> int:
        """Bytes that live at the worst point of the schedule."""
        return self.program.plan.live_peak

    def measure(self, repeats: int = 5) -> list[tuple[float, Any]]:
        """Run on made-up inputs (halves for floats, zeros for integers).

        Returns:
            (median seconds, node) of every kernel call, the slowest first.
        """
        program = self.program
        inputs = [
            np.full(v.spec.shape, 0.5, dtypes.numpy_dtype(v.spec.dtype))
            for v in program.graph.inputs
        ]
        frame = Frame(program)
        runs: list[list[float]] = []
        with program.backend.errstate():
            for _ in range(repeats):
                times: list[float] = []
                frame.run(inputs, None, times)
                runs.append(times)
        medians = [median(column) for column in zip(*runs, strict=True)]
        rows = zip(medians, frame.step_nodes, strict=True)
        return sorted(rows, key=lambda row: -row[0])

    def __str__(self) -> str:
        parts = [f"function {self.name} on backend {self.program.backend.name}"]
        parts.append("\npasses:")
        for name, graph in self.passes:
            counts = Counter(node.op.kind.value for node in graph.nodes)
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
            parts.append(f"  {name:10} {len(graph.nodes):5} nodes  ({kinds})")
        parts.append("\nschedule:")
        parts.append(str(self.graph))
        parts.append("\narena:")
        parts += self._arena_rows()
        parts.append(
            f"peak {self.peak_bytes:,} bytes; live at the worst point "
            f"{self.live_bytes:,} bytes"
        )
        return "\n".join(parts)

    __repr__ = __str__

    def _arena_rows(self) -> list[str]:
        rows = ["      offset       bytes  first  last  what"]
        for b in sorted(self.program.plan.distinct, key=lambda b: (b.offset, b.first)):
            rows.append(
                f"  {b.offset:10,}  {b.nbytes:10,}  {b.first:5}  {b.last:4}  {b.label}"
            )
        return rows
