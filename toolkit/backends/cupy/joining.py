"""Kernel launches, and their combination into batched launches of one kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from toolkit.backends.cupy.cuda.batched_launch import (
    THREADS,
    build_table,
    partition_levels,
)
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.backends.cupy.device import Device
from toolkit.definitions.records import record

Shape = tuple[int, int, int]


@record
class BoundLaunch:
    """Launch on memory: the kernel's function and all its arguments."""

    kernel: Kernel
    function: Callable[..., None]
    grid: Shape
    block: Shape
    arguments: tuple[Any, ...]
    shared_bytes: int = 0

    def __call__(self) -> None:
        self.function(self.grid, self.block, self.arguments, self.shared_bytes)


Call = tuple[int, Callable[[], None]]


def batch_launches(
    calls: Iterable[Call], device: Device, retained: list[Any]
) -> Iterator[Call]:
    """Combine independent calls of one kernel into batched launches; yield all calls.

    Args:
        calls: each with the index of its node.
        device: the device that runs them.
        retained: gets the tables, which only addresses refer to.
    """
    for may_join, group in groupby(calls, _can_join):
        run = list(group)
        if may_join:
            starts: list[Any] = [start for _, start in run]
            bound = [(s.kernel, tuple(map(int, s.arguments))) for s in starts]
            for level in partition_levels(bound):
                yield from _group_by_kernel([run[i] for i in level], device, retained)
        else:
            yield from run


def _can_join(call: Call) -> bool:
    return isinstance(call[1], BoundLaunch) and call[1].kernel.batched is not None


def _group_by_kernel(
    calls: list[Any], device: Device, retained: list[Any]
) -> Iterator[Call]:
    """Group calls without order dependencies into one call per kernel."""
    groups = defaultdict(list)
    for node, start in calls:
        groups[start.kernel].append((node, start))
    for kernel, group in groups.items():
        if len(group) == 1:
            yield group[0]
            continue
        rows, blocks = build_table([(kernel, start.arguments) for _, start in group])
        table = device.upload([int(word) for row in rows for word in row])
        retained.append(table)
        (function,) = device.load([kernel.batched])
        count = device.scalar(len(rows), "int")
        arguments = (device.address(table), count)
        shape = (blocks, 1, 1), (THREADS, 1, 1)
        yield group[0][0], BoundLaunch(kernel.batched, function, *shape, arguments)
