"""Tree sums between GPUs: plans of `comm.sum_plans` on memory, by NCCL and kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scalar
from toolkit.backends.cupy.cuda.tree import generate_combine
from toolkit.backends.cupy.device import Device
from toolkit.comm.nccl import NcclGroup, Span
from toolkit.comm.sum_plans import AllGather, Combine, Location, Move, SumPlan, Transfer


class DeviceSum:
    """Reusable plan of a sum on a device, safe under graph capture.

    Args:
        device: of this rank; its stream is the stream of the group.
        group: the ranks, which have built the same plan.
        plan: the steps.
    """

    def __init__(self, device: Device, group: NcclGroup, plan: SumPlan) -> None:
        self.device = device
        self.group = group
        self.plan = plan
        combines = [step for step in plan.steps if isinstance(step, Combine)]
        launches = [generate_combine(step) for step in combines]
        with device.scope():
            starts = device.load([launch.kernel for launch in launches])
        self._kernels: list[tuple[Combine, Launch, Callable[..., None]]] = list(
            zip(combines, launches, starts, strict=True)
        )

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

        def spans(moves: Sequence[Move]) -> list[tuple[int, Span]]:
            return [(m.peer, Span(at(m.location), m.nbytes)) for m in moves]

        kernels = iter(self._kernels)
        with self.device.scope(), self.device.failing():
            for step in self.plan.steps:
                if isinstance(step, Transfer):
                    sends, receives = spans(step.sends), spans(step.receives)
                    self.group.transfer(sends, receives, "all_reduce")
                elif isinstance(step, AllGather):
                    self.group.all_gathers(
                        (Span(at(shard), n), Span(at(full), n * self.group.size))
                        for shard, full, n in step.gathers
                    )
                else:
                    self._launch(*next(kernels), at)

    def _launch(
        self,
        step: Combine,
        launch: Launch,
        start: Callable[..., None],
        at: Callable[[Location], int],
    ) -> None:
        received = () if step.received is None else (step.received,)
        buffers = [
            at(location) for location in (*step.local_pieces, *received, step.target)
        ]

        def value(argument: Any) -> Any:
            if isinstance(argument, Buffer):
                return buffers[argument.index]
            assert isinstance(argument, Scalar)
            return self.device.scalar(argument.value, argument.ctype)

        arguments = [value(argument) for argument in launch.arguments]
        start(launch.grid, launch.block, arguments, launch.shared_bytes)
