"""One launch for many elementwise bodies that differ in nothing but their arrays.

An optimizer's update is the same body for each parameter: a table in device memory has
a row of addresses for each of them, and every block finds its row by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit.backends.cupy.cuda.body import Body
from toolkit.backends.cupy.cuda.flat import emit_elements
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Operand, Table
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.numpy.jit.plan import FULL
from toolkit.ir import Graph

THREADS = 256
# Packs of a thread: a block has enough to do to look for its row.
PACKS = 4

Task = tuple[Graph, Sequence[Operand], Sequence[Operand]]


def join_key(
    graph: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Any:
    """What bodies have in common that one launch can compute; None: no others can."""
    if any(y.spec.size == 0 for y in outputs):
        return None
    body = Body(graph, inputs, outputs, True)
    full = all(step.role == FULL for step in body.plan.steps)
    if not full or body.plan.picks or len(body.extents) != 1:
        return None
    # Extents are not part of a plan, and one of 1 makes neighbours look like one.
    return repr((body.plan, body.strides, body.lanes))


def generate_many(tasks: Sequence[Task]) -> Launch:
    """One launch for bodies of one `join_key`, at addresses that are multiples of 16.

    Its buffers are the inputs and outputs of the first task, then of the second, and
    so on.
    """
    bodies = [Body(graph, inputs, outputs, True) for graph, inputs, outputs in tasks]
    body, rows, first, operand = bodies[0], [], 0, 0
    reads = sorted({read.operand: read.dtype for read in body.plan.reads}.items())
    for (_, inputs, outputs), one in zip(tasks, bodies, strict=True):
        count = prod(one.extents) // one.lanes
        words: list[Any] = [first, count]
        words += [Buffer(operand + k) for k, _ in reads]
        words += [Buffer(operand + len(inputs) + k) for k in range(len(outputs))]
        rows.append(tuple(words))
        first += -(-count // (THREADS * PACKS))
        operand += len(inputs) + len(outputs)
    body.number = "i64"
    w, width = body.w, len(rows[0])
    w(f"int row = 0, last = {len(rows) - 1};")
    with w.block("while (row < last)"):
        w("const int middle = (row + last + 1) / 2;")
        w(f"if (table[middle * {width}] <= blockIdx.x) row = middle;")
        w("else last = middle - 1;")
    w(f"const i64* mine = table + row * {width};")
    pointers = [(f"const {STORED[dtype]}*", f"p{k}") for k, dtype in reads]
    pointers += [
        (f"{STORED[write.dtype]}*", f"q{k}") for k, write in enumerate(body.plan.writes)
    ]
    for number, (ctype, name) in enumerate(pointers, 2):
        w(f"{ctype} {name} = ({ctype})mine[{number}];")
    w(f"const i64 start = (blockIdx.x - mine[0]) * {THREADS * PACKS} + threadIdx.x;")
    with w.block(f"for (int turn = 0; turn < {PACKS}; ++turn)"):
        w(f"const i64 i = start + turn * {THREADS};")
        w("if (i >= mine[1]) return;")
        emit_elements(body)
    parameters = [("const i64*", "table", Table(tuple(rows)))]
    return body.launch("many", parameters, (first, 1, 1), (THREADS, 1, 1))
