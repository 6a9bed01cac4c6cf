"""Pipeline parallelism: each process holds and computes some layers of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np

from toolkit import comm, dtypes
from toolkit.arguments import is_int
from toolkit.backends.base import Backend
from toolkit.backends.target import Target
from toolkit.comm import Group, compare_programs
from toolkit.compiler.sharding.branches import split_branches
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.micro_batches import micro_batches
from toolkit.compiler.sharding.pipelines import pipeline
from toolkit.compiler.sharding.staged import StagedExecutable
from toolkit.compiler.sharding.stages import GRADIENT, Stages
from toolkit.definitions.records import record
from toolkit.distribution.chief import notify_gather
from toolkit.distribution.devices import list_devices
from toolkit.distribution.elastic import recovery
from toolkit.distribution.layouts import DeviceMesh
from toolkit.distribution.strategies import Distribution
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.ir import Graph, Node, Spec

Patterns = Mapping[str, int] | Sequence[str | Sequence[str]]


@record
class StagePlacement:
    """Placement of a value on the process that computes its stage.

    Attributes:
        group: the group of the processes.
        owner: the rank of that process.
        spec: the spec of the value.
    """

    group: Group
    owner: int
    spec: Spec

    def take_local(self, array: Any) -> Any:
        """Return this rank's part of a value: all of it or an empty array."""
        return array[tuple(slice(*bounds) for bounds in self.local_bounds())]

    def gather(self, array: Any) -> Any:
        """Return the whole value; all ranks call this."""
        notify_gather(self)
        if self.group.rank == self.owner:
            whole = np.asarray(array, order="C")
        else:
            whole = np.empty(self.spec.shape, dtypes.numpy_dtype(self.spec.dtype))
        self.group.broadcast(whole, self.owner)
        return whole

    def local_bounds(self) -> tuple[tuple[int, int], ...]:
        """Return the box of this rank's part in the value."""
        is_here = self.group.rank == self.owner
        return tuple((0, extent * is_here) for extent in self.spec.shape)

    def __str__(self) -> str:
        return f"by rank {self.owner}"


class PipelineParallel(Distribution):
    """Pipeline parallelism: layers are assigned to stages, and stages to processes.

    A batch is split into micro-batches, which pass through the stages in sequence, so
    that all stages work in parallel. Gradients are accumulated over the micro-batches
    in order before the weights change. With S stages on S processes and M
    micro-batches, each process is idle for (S - 1) / (M + S - 1) of a step if stages
    take equal time.

    Args:
        stages: for each stage in order, one or several patterns of layer paths; or a
            dict of pattern -> stage number. Patterns are regular expressions. Nested
            layers belong to the stage of their parent. Layers without weights need no
            pattern; they use the stage of their inputs.
        micro_batches: the number of micro-batches in a batch.
        device_mesh: a mesh with one axis "stage"; None uses all devices of the job.
            With fewer devices than stages, each device gets several consecutive stages.

    Example:
        >>> from toolkit.distribution import PipelineParallel
        >>> parallel = PipelineParallel(["block_1", "block_2|head"], micro_batches=4)
        >>> parallel.stage_of("model/block_2/dense/kernel")
        1

    Reference: https://arxiv.org/abs/1806.03377
    """

    def __init__(
        self,
        stages: Patterns,
        micro_batches: int = 8,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        if device_mesh is None:
            devices = list_devices()
            device_mesh = DeviceMesh((len(devices),), ["stage"], devices)
        super().__init__(device_mesh)
        if list(device_mesh.axis_names) != ["stage"]:
            raise UnsupportedError(
                "PipelineParallel: expected a mesh of the one axis 'stage'; received "
                f"{device_mesh}"
            )
        self.stages = Stages(*_patterns(stages))
        count = int(device_mesh.devices.size)
        if count > self.stages.count:
            raise ArgumentError(
                f"PipelineParallel: expected a stage for each of the {count} devices; "
                f"received {self.stages.count} stages"
            )
        if not is_int(micro_batches) or micro_batches < 1:
            raise ArgumentError(
                "PipelineParallel: expected micro_batches of at least 1; received "
                f"{micro_batches!r}"
            )
        self.micro_batches = self.shards = int(micro_batches)
        # id of a variable -> (weak reference, stage).
        self._held: dict[int, tuple[ref[Any], int]] = {}

    @property
    def is_spread(self) -> bool:
        """Return True: steps are always split, for equal bits on any ranks."""
        return True

    @cached_property
    def axes(self) -> list[MeshAxis]:
        """Return the single axis of the mesh; no value is split along it."""
        return [MeshAxis("stage", comm.world(), self.num_processes)]

    def rows(self, count: int) -> range:
        """Return all rows: the first stage reads inputs, the last targets."""
        return range(count)

    @cached_property
    def ranks(self) -> list[int]:
        """Return the rank of each stage."""
        count = self.stages.count
        return [stage * self.num_processes // count for stage in range(count)]

    def stage_of(self, path: str) -> int | None:
        """Return the stage of a layer or variable path, or None without a match."""
        return self.stages.of(path)

    def placement_of(self, variable: Any, like: Any = None) -> Any:
        """Return a placement on the rank of the stage, or None (replicated)."""
        if like is None:
            stage = self.stages.of(variable.path)
        else:
            stage = self._stage_that_holds(like)
        if stage is None or not variable.shape:
            return None
        self._held[id(variable)] = ref(variable), stage
        if self.num_processes == 1:
            return None
        return StagePlacement(comm.world(), self.ranks[stage], variable.spec)

    def compile(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool,
        updates: Sequence[tuple[int, int | None]],
        name: str,
        variables: Sequence[Any],
        written: Sequence[Any],
    ) -> Any:
        """Return a runner of this rank's part of a step: see `DistributionContext`.

        `updates` has no effect, because new values use separate memory.
        """
        if backend.is_accelerator:
            raise UnsupportedError(
                f"{name}: steps are spread over processes on the CPU only; received "
                f"the device {backend.device_name}"
            )
        self._check_weights(name, variables)
        target = Target(backend, generate, rows_independent=True)
        batch = len(graph.inputs) - len(variables)
        shapes = [x.spec.shape[:1] for x in graph.inputs[:batch]]
        layouts = [Split(0) if n and n == shapes[0] else None for n in shapes]
        layouts += [None] * len(variables)
        takers: list[int | None] = [None] * (len(graph.outputs) - len(written))
        takers += map(self._stage_that_holds, written)
        graph = split_branches(graph, takers)
        count = self.micro_batches
        step = micro_batches(graph, layouts, batch, count, self._stays_whole, target)
        owners = {
            x: stage
            for x, v in zip(step.first.inputs[batch:], variables, strict=False)
            if (stage := self._stage_that_holds(v)) is not None
        }
        made = pipeline(graph, step, self.stages, owners, takers, name)
        compare_programs(comm.world(), list(made.described()), f"program of {name}")
        world = comm.world()
        settle = recovery.settle if comm.is_elastic() else None
        return StagedExecutable(made, target, world, self.ranks, settle)

    def _stage_that_holds(self, variable: Any) -> int | None:
        """Return the only stage with the value of a variable, or None if replicated."""
        made, stage = self._held.get(id(variable), (None, None))
        return stage if made is not None and made() is variable else None

    def _check_weights(self, name: str, variables: Sequence[Any]) -> None:
        lost = [v.path for v in variables if v.trainable and not _has(self.stages, v)]
        if lost:
            raise ArgumentError(
                f"{name}: expected a stage for each layer that has weights; no pattern "
                f"of PipelineParallel(stages=...) fits {lost}"
            )

    def _stays_whole(self, node: Node) -> str | None:
        path = "/".join(n for n in node.origin.split("/") if n != GRADIENT)
        if not path:
            return None
        return (
            f"PipelineParallel: layer {path!r} needs something of the whole batch "
            f"({node.op.name}), as batch normalization does, but micro-batches pass "
            "one after the other"
        )


def _has(stages: Stages, variable: Any) -> bool:
    return stages.of(variable.path) is not None


def _patterns(stages: Patterns) -> tuple[list[tuple[str, int]], int]:
    """Return (pattern, stage) pairs and the number of stages."""
    found: list[tuple[str, int]] = []
    if isinstance(stages, Mapping):
        found = [(pattern, stage) for pattern, stage in stages.items()]
    elif not isinstance(stages, str):
        for number, given in enumerate(stages):
            several: Any = given if isinstance(given, (list, tuple)) else [given]
            found += [(pattern, number) for pattern in several]
    numbers = {stage for _, stage in found}
    is_text = all(isinstance(pattern, str) for pattern, _ in found)
    if not found or not is_text or numbers != set(range(len(numbers))):
        raise ArgumentError(
            "PipelineParallel: expected stages as a list of patterns, or a dict of "
            f"pattern -> number of the stage, from 0 on; received {stages!r}"
        )
    return found, len(numbers)
