"""Products of large matrices in tiles that do not depend on the thread count.

One thread of the BLAS computes each tile, so the result depends on shapes only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Array = Any
Task = Callable[[], object]
Multiply = Callable[[Array, Array, Array], object]

# Multiply-adds from which several threads are worthwhile: some milliseconds. The
# threads wait at the end of a product. If another process occupies a core, they wait
# for a time slice. A step of many small products would take ten times as long.
_MIN_MULTIPLY_ADDS = 1 << 28
# Multiply-adds of a tile: a millisecond. The cost of scheduling it is negligible.
_TILE_MULTIPLY_ADDS = 1 << 26
_MAX_TILES = 64
# For narrower tiles, BLAS would spend most of the time on packing its operands.
_MIN_TILE_SIDE = 64
_TILE_ALIGNMENT = 32


def needs_tiles(a: Array, b: Array) -> bool:
    """Return whether to divide a @ b; only shapes and dtypes decide."""
    if max(a.size * b.shape[-1], b.size * a.shape[-2]) < _MIN_MULTIPLY_ADDS:
        return False
    return a.dtype.kind in "fc" and a.dtype == b.dtype


def multiply_tiled(
    a: Array,
    b: Array,
    out: Array | None,
    threads: int,
    multiply: Multiply | None = None,
) -> Array:
    """Return a @ b for stacks of matrices of a BLAS dtype.

    Args:
        a, b: arrays of two or more axes and one dtype.
        out: the destination; None: a new array.
        threads: the number of threads, including the calling thread.
        multiply: computes a product of matrices into a third, on one thread. None:
            `np.matmul`, while OpenBLAS uses one thread.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is None:
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    side = max(_tile_grid(out.shape[-2], out.shape[-1], a.shape[-1]))
    is_gram = multiply is None and side > 1 and _are_transposes(a, b)
    multiply = multiply or np.matmul
    a, b = _in_blas_layout(a), _in_blas_layout(b)
    lefts = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    rights = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    if math.prod(out.shape[-2:]) * a.shape[-1] <= _TILE_MULTIPLY_ADDS:
        run_tasks(_stack_tasks(lefts, rights, out, multiply), threads)
        return out
    tasks, sums = [], []
    for i in np.ndindex(batch):
        if is_gram:
            tasks += _gram_tasks(lefts[i], out[i], side)
        else:
            first, then = _tile_tasks(lefts[i], rights[i], out[i], multiply)
            tasks += first
            sums += then
    run_tasks(tasks, threads)
    run_tasks(sums, 1)
    return out


def _stack_tasks(a: Array, b: Array, out: Array, multiply: Multiply) -> list[Task]:
    """Return the tasks of a stack of small products, several products each."""
    batch = out.shape[:-2]
    if not batch:
        return [partial(multiply, a, b, out)]
    axis = batch.index(max(batch))
    count = -(-out.size * a.shape[-1] // _TILE_MULTIPLY_ADDS)
    step = max(1, -(-batch[axis] // min(_MAX_TILES, max(1, count))))
    slices = (slice(i, i + step) for i in range(0, batch[axis], step))
    indices = [(*(slice(None),) * axis, segment) for segment in slices]
    return [partial(multiply, a[i], b[i], out[i]) for i in indices]


def _are_transposes(a: Array, b: Array) -> bool:
    """Return whether b is a transposed; NumPy computes only half of a @ a.T."""
    transposed = b.swapaxes(-1, -2)
    same = a.shape == transposed.shape and a.strides == transposed.strides
    where = (x.__array_interface__["data"][0] for x in (a, transposed))
    return same and len(set(where)) == 1 and a.dtype.kind == "f"


def _in_blas_layout(x: Array) -> Array:
    """Return the array in a layout that BLAS reads without a copy."""
    for outer, inner, width in ((-2, -1, x.shape[-1]), (-1, -2, x.shape[-2])):
        rows, remainder = divmod(x.strides[outer], x.itemsize)
        if x.strides[inner] == x.itemsize and not remainder and rows >= width:
            return x
    return np.ascontiguousarray(x)


def _tile_tasks(
    a: Array, b: Array, out: Array, multiply: Multiply
) -> tuple[list[Task], list[Task]]:
    """Return the tasks for the tiles of a matrix product, and the final sums."""
    (rows, depth), columns = a.shape, b.shape[1]
    down, across = _tile_grid(rows, columns, depth)
    slices = 1
    if down * across == 1 and rows * columns < depth:
        slices = min(_MAX_TILES, -(-rows * columns * depth // _TILE_MULTIPLY_ADDS))
    if slices > 1:
        partial_sums = np.empty((slices, rows, columns), out.dtype)
        outputs = zip(_tile_ranges(depth, slices), partial_sums, strict=False)
        task_outputs = [(partial(multiply, a[:, s], b[s], p), p) for s, p in outputs]
        total = partial(_sum_terms, [p for _, p in task_outputs], out)
        return [task for task, _ in task_outputs], [total]
    return [
        partial(multiply, a[r], b[:, c], out[r, c])
        for r in _tile_ranges(rows, down)
        for c in _tile_ranges(columns, across)
    ], []


def _gram_tasks(a: Array, out: Array, side: int) -> list[Task]:
    """Return the tasks for the tiles of a @ a.T on and above the diagonal."""
    spans = list(_tile_ranges(len(a), side))
    diagonal_tasks: list[Task] = [
        partial(np.matmul, a[r], a[r].T, out[r, r]) for r in spans
    ]
    return diagonal_tasks + [
        partial(_multiply_mirrored, a[r], a[c], out[r, c], out[c, r])
        for i, r in enumerate(spans)
        for c in spans[i + 1 :]
    ]


def _multiply_mirrored(a: Array, b: Array, out: Array, other: Array) -> None:
    np.matmul(a, b.T, out)
    other[...] = out.T


def _sum_terms(terms: Sequence[Array], out: Array) -> None:
    out[...] = terms[0]
    for term in terms[1:]:
        out += term


def _tile_grid(rows: int, columns: int, depth: int) -> tuple[int, int]:
    """Return the numbers of tiles along rows and columns, for about square tiles."""
    down = across = 1
    size = rows * columns * depth
    while down * across < _MAX_TILES and size > _TILE_MULTIPLY_ADDS * down * across:
        if rows * across >= columns * down:
            if rows < 2 * down * _MIN_TILE_SIDE:
                break
            down *= 2
        elif columns < 2 * across * _MIN_TILE_SIDE:
            break
        else:
            across *= 2
    return down, across


def _tile_ranges(extent: int, count: int) -> Iterator[slice]:
    """Divide an extent into at most `count` ranges of whole vectors."""
    step = -(-extent // count)
    if count > 1:
        step = -(-step // _TILE_ALIGNMENT) * _TILE_ALIGNMENT
    for start in range(0, extent, max(1, step)):
        yield slice(start, min(start + step, extent))


# --- threads --------------------------------------------------------------------------


class _Pool:
    """A thread pool that starts its threads on demand."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop all threads: after a fork, only the calling thread exists."""
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, *call: Any) -> Future[object]:
        """Start a call; raise RuntimeError after the end of the main thread."""
        if self._executor is None:
            # After the end of the main thread, the import raises the error.
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(_MAX_TILES, "toolkit-product")
        return self._executor.submit(*call)


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def run_tasks(tasks: Sequence[Task], threads: int) -> None:
    """Run each task once, on the calling thread and on free threads of the pool."""
    remaining_tasks = iter(tasks)  # each thread takes the next task

    def work() -> None:
        for task in remaining_tasks:
            task()

    helpers = _start_helpers(work, min(threads, len(tasks)) - 1)
    try:
        work()
    finally:
        for helper in helpers:
            helper.cancel() or helper.result()


def _start_helpers(work: Task, count: int) -> list[Future[object]]:
    """Start up to `count` threads; fewer if the system refuses more."""
    futures: list[Future[object]] = []
    with suppress(RuntimeError):
        for _ in range(count):
            # The context of the calling thread disables the warnings of NumPy.
            futures.append(_pool.submit(copy_context().run, work))
    return futures
