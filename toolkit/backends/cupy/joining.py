"""Kernel launches, and their combination into batched launches of one kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from toolkit.backends.cupy.cuda.batched_launch import THREADS, levels, rows_of
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.backends.cupy.device import Device
from toolkit.definitions.records import record

Shape = tuple[int, int, int]


@record
class Start:
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


def join(calls: Iterable[Call], device: Device, kept: list[Any]) -> Iterator[Call]:
    """Combine independent calls of one kernel into batched launches; yield all calls.

    Args:
        calls: each with the index of its node.
        device: the device that runs them.
        kept: gets the tables, which only addresses refer to.
    """
    for may_join, group in groupby(calls, _may_join):
        found = list(group)
        if may_join:
            starts: list[Any] = [start for _, start in found]
            bound = [(s.kernel, tuple(map(int, s.arguments))) for s in starts]
            for level in levels(bound):
                yield from _by_kernel([found[i] for i in level], device, kept)
        else:
            yield from found


def _may_join(call: Call) -> bool:
    return isinstance(call[1], Start) and call[1].kernel.many is not None


def _by_kernel(calls: list[Any], device: Device, kept: list[Any]) -> Iterator[Call]:
    """Group calls without order dependencies into one call per kernel."""
    groups = defaultdict(list)
    for node, start in calls:
        groups[start.kernel].append((node, start))
    for kernel, group in groups.items():
        if len(group) == 1:
            yield group[0]
            continue
        rows, blocks = rows_of([(kernel, start.arguments) for _, start in group])
        table = device.upload([int(word) for row in rows for word in row])
        kept.append(table)
        (function,) = device.load([kernel.many])
        count = device.scalar(len(rows), "int")
        arguments = (device.address(table), count)
        shape = (blocks, 1, 1), (THREADS, 1, 1)
        yield group[0][0], Start(kernel.many, function, *shape, arguments)
