"""Collectives between GPUs: plans of `comm.sum_plans` by NCCL and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scalar
from toolkit.backends.cupy.cuda.tree import generate_combine
from toolkit.backends.cupy.device import Device, DeviceGroup
from toolkit.backends.cupy.joining import BoundLaunch
from toolkit.comm.nccl import Span
from toolkit.comm.sum_plans import (
    AllGather,
    Combine,
    LibrarySum,
    Location,
    Move,
    SumPlan,
    Transfer,
)
from toolkit.dtypes import itemsize


def generate_combinations(plan: SumPlan) -> tuple[Launch, ...]:
    """Return the launches of the combinations of a plan, in order."""
    combines = (step for step in plan.steps if isinstance(step, Combine))
    return tuple(map(generate_combine, combines))


def bind_plan(
    plan: SumPlan,
    starts: Sequence[tuple[Launch, Callable[..., None]]],
    group: DeviceGroup,
    device: Device,
    at: Callable[[Location], int],
    name: str,
) -> Iterator[Callable[[], None]]:
    """Yield the calls that enqueue the steps of a plan on the stream, in order.

    Args:
        plan: the plan of this rank; all ranks of the group have built the same.
        starts: each launch of its combinations, with its loaded kernel.
        group: the ranks.
        device: the device of this rank.
        at: a function that returns the address of a location.
        name: the collective in error messages.
    """

    def spans(moves: Sequence[Move]) -> list[tuple[int, Span]]:
        return [(m.peer, Span(at(m.location), m.nbytes)) for m in moves]

    remaining = iter(starts)
    for step in plan.steps:
        if isinstance(step, Transfer):
            moves = spans(step.sends), spans(step.receives)
            yield partial(group.transfer, *moves, name)
        elif isinstance(step, AllGather):
            pairs = [
                (Span(at(shard), n), Span(at(full), n * group.size))
                for shard, full, n in step.gathers
            ]
            yield partial(group.all_gathers, pairs)
        elif isinstance(step, LibrarySum):
            parts = group.size if step.operation == "reduce_scatter" else 1
            buffers = []
            for source, target, size, dtype in step.terms:
                nbytes = size * itemsize(dtype)
                spans_of_term = (
                    Span(at(source), parts * nbytes),
                    Span(at(target), nbytes),
                )
                buffers.append((*spans_of_term, dtype))
            yield partial(group.sums, step.operation, buffers)
        else:
            yield _bind_combination(step, *next(remaining), device, at)


def _bind_combination(
    step: Combine,
    launch: Launch,
    start: Callable[..., None],
    device: Device,
    at: Callable[[Location], int],
) -> BoundLaunch:
    received = () if step.received is None else (step.received,)
    buffers = list(map(at, (*step.local_pieces, *received, step.target)))

    def value(argument: Any) -> Any:
        if isinstance(argument, Buffer):
            return buffers[argument.index]
        assert isinstance(argument, Scalar)
        return device.scalar(argument.value, argument.ctype)

    arguments = tuple(map(value, launch.arguments))
    shape = launch.grid, launch.block
    return BoundLaunch(launch.kernel, start, *shape, arguments, launch.shared_bytes)


class DeviceSum:
    """Reusable plan of a sum on a device, safe under graph capture.

    Args:
        device: of this rank; its stream is the stream of the group.
        group: the ranks, which have built the same plan.
        plan: the steps.
    """

    def __init__(self, device: Device, group: DeviceGroup, plan: SumPlan) -> None:
        self.device = device
        self.group = group
        self.plan = plan
        launches = generate_combinations(plan)
        with device.scope():
            kernels = device.load([launch.kernel for launch in launches])
        self._starts = list(zip(launches, kernels, strict=True))

    def start(self, pieces: Sequence[int], outs: Sequence[int], scratch: int) -> None:
        """Enqueue all steps on the stream, in the order of the plan.

        Args:
            pieces: the addresses of this rank's pieces, through all terms.
            outs: the addresses of the results.
            scratch: the address of `plan.scratch` bytes, a multiple of 256.
        """
        bases = {"piece": pieces, "out": outs, "scratch": [scratch]}

        def at(location: Location) -> int:
            return bases[location.kind][location.number] + location.offset

        with self.device.scope(), self.device.failing():
            for call in bind_plan(
                self.plan, self._starts, self.group, self.device, at, "all_reduce"
            ):
                call()
