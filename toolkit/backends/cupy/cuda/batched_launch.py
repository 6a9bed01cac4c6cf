"""One launch for many launches of the same kernel, for example all weight updates.

The kernel of a flat body has a batched twin that reads a table in device memory. The
table has one row per launch, with its first block and its arguments. A block finds its
row by its block index.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.backends.cupy.cuda.launch import Kernel, make_kernel
from toolkit.backends.cupy.cuda.prelude import PRELUDE
from toolkit.backends.cupy.cuda.scalars import SourceWriter
from toolkit.type_aliases import Array

THREADS = 256
# Packs of elements per thread, which amortize the search for the row of a block.
ITEMS = 4

# A launch with bound arguments: its kernel, and an address or number per parameter.
Bound = tuple[Kernel, tuple[int, ...]]


def make_batched_kernel(
    parameters: Sequence[tuple[str, str]], lines: Sequence[str]
) -> Kernel:
    """Return the kernel for many launches.

    Args:
        parameters: (type, name) of each parameter of the kernel for one launch; the
            last is `count`.
        lines: the statements that compute the i-th of `count` elements.
    """
    w, width = SourceWriter(), 1 + len(parameters)
    w("int row = 0, last = rows - 1;")
    with w.block("while (row < last)"):
        w("const int middle = (row + last + 1) / 2;")
        w(f"if (table[middle * {width}] <= blockIdx.x) row = middle;")
        w("else last = middle - 1;")
    w(f"const i64* mine = table + row * {width};")
    for number, (ctype, name) in enumerate(parameters, 1):
        w(f"{ctype} {name} = ({ctype})mine[{number}];")
    w(f"const i64 start = (blockIdx.x - mine[0]) * {THREADS * ITEMS} + threadIdx.x;")
    with w.block(f"for (int turn = 0; turn < {ITEMS}; ++turn)"):
        w(f"const i64 i = start + turn * {THREADS};")
        w("if (i >= count) return;")
        w(*lines)
    head = f'extern "C" __global__ void __launch_bounds__({THREADS}, 1)'
    text = f"{PRELUDE}\n{head}\nKERNEL(const i64* table, int rows) {{\n{w.text}\n}}\n"
    return make_kernel("many", text, ("const i64*", "int"))


def partition_levels(launches: Sequence[Bound]) -> list[list[int]]:
    """Partition launches into levels; within a level the order is free.

    Args:
        launches: launches in order, of kernels that have a batched twin.

    Returns:
        The indices of the launches, by level.
    """
    levels: list[list[int]] = []
    # (start, end, whether it is written, level) for the memory of earlier launches.
    accesses = np.zeros((0, 4), np.int64)
    for i, launch in enumerate(launches):
        ranges = _memory_ranges(launch)
        level = max((_level_after(accesses, *one) for one in ranges), default=0)
        levels += [[]] * (level == len(levels))
        levels[level] = [*levels[level], i]
        accesses = np.concatenate([accesses, [(*one, level) for one in ranges]])
    return levels


def _level_after(accesses: Array, start: int, end: int, written: int) -> int:
    """Return the level after all conflicting accesses, where one of the two writes."""
    overlap = (accesses[:, 0] < end) & (accesses[:, 1] > start)
    waits = overlap if written else overlap & (accesses[:, 2] != 0)
    return int(accesses[waits, 3].max(initial=-1)) + 1


def build_table(launches: Sequence[Bound]) -> tuple[list[list[int]], int]:
    """Return the table for launches of one kernel, and the number of blocks."""
    rows, first = [], 0
    for _, values in launches:
        rows.append([first, *values])
        first += -(-values[-1] // (THREADS * ITEMS))
    return rows, first


def _memory_ranges(launch: Bound) -> list[tuple[int, int, int]]:
    """Return (start, end, whether it is written) for the memory of a launch."""
    kernel, values = launch
    rows = zip(kernel.parameters[:-1], values, kernel.strides, strict=False)
    return [
        (address, address + max(8, stride * values[-1]), not ctype.startswith("const"))
        for ctype, address, stride in rows
    ]
