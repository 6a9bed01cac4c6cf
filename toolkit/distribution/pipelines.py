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
        """Return the full value; all ranks call this."""
        notify_gather(self)
        if self.group.rank == self.owner:
            value = np.asarray(array, order="C")
        else:
            value = np.empty(self.spec.shape, dtypes.numpy_dtype(self.spec.dtype))
        self.group.broadcast(value, self.owner)
        return value

    def local_bounds(self) -> tuple[tuple[int, int], ...]:
        """Return the box of this rank's part in the value."""
        is_owner = self.group.rank == self.owner
        return tuple((0, extent * is_owner) for extent in self.spec.shape)

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
        self.stages = Stages(*_parse_patterns(stages))
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
        self._stages_by_id: dict[int, tuple[ref[Any], int]] = {}

    @property
    def is_partitioned(self) -> bool:
        """Return True: steps are always split, for equal bits on any ranks."""
        return True

    @cached_property
    def axes(self) -> list[MeshAxis]:
        """Return the single axis of the mesh; no value is split along it."""
        return [MeshAxis("stage", comm.world(), self.num_processes)]

    def rows(self, count: int) -> range:
        """Return all rows: the first stage reads inputs, the last targets.

        Args:
            count: the number of rows of the batch.
        """
        return range(count)

    @cached_property
    def ranks(self) -> list[int]:
        """Return the rank of each stage."""
        count = self.stages.count
        return [stage * self.num_processes // count for stage in range(count)]

    def stage_of(self, path: str) -> int | None:
        """Return the stage of a layer or variable, or None without a match.

        Args:
            path: the path of the layer or variable.
        """
        return self.stages.of(path)

    def placement_of(self, variable: Any, like: Any = None) -> Any:
        """Return a placement on the rank of the stage, or None (replicated).

        Args:
            variable: the new variable.
            like: the variable of which it is a slot, if any.
        """
        if like is None:
            stage = self.stages.of(variable.path)
        else:
            stage = self._stage_of_variable(like)
        if stage is None or not variable.shape:
            return None
        self._stages_by_id[id(variable)] = ref(variable), stage
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
        """Return a runner of this rank's part of a step.

        Args:
            graph: the graph of the full step. Its last inputs are the variables.
            backend: the backend that runs the step.
            generate: whether the backend generates code.
            updates: has no effect, because new values use separate memory.
            name: the name of the step in errors.
            variables: the variables among the inputs, after the batch.
            written: the variables whose new values are the last outputs.
        """
        if backend.is_accelerator:
            raise UnsupportedError(
                f"{name}: distributed steps are supported only on the CPU; received "
                f"the device {backend.device_name}"
            )
        self._check_weights(name, variables)
        target = Target(backend, generate, rows_independent=True)
        batch = len(graph.inputs) - len(variables)
        shapes = [x.spec.shape[:1] for x in graph.inputs[:batch]]
        layouts = [Split(0) if n and n == shapes[0] else None for n in shapes]
        layouts += [None] * len(variables)
        output_stages: list[int | None] = [None] * (len(graph.outputs) - len(written))
        output_stages += map(self._stage_of_variable, written)
        graph = split_branches(graph, output_stages)
        count = self.micro_batches
        step = micro_batches(
            graph, layouts, batch, count, self._describe_batch_dependency, target
        )
        owners = {
            x: stage
            for x, v in zip(step.first.inputs[batch:], variables, strict=False)
            if (stage := self._stage_of_variable(v)) is not None
        }
        program = pipeline(graph, step, self.stages, owners, output_stages, name)
        compare_programs(comm.world(), list(program.described()), f"program of {name}")
        world = comm.world()
        commit = recovery.commit if comm.is_elastic() else None
        return StagedExecutable(program, target, world, self.ranks, commit)

    def _stage_of_variable(self, variable: Any) -> int | None:
        """Return the only stage with the value of a variable, or None if replicated."""
        reference, stage = self._stages_by_id.get(id(variable), (None, None))
        return stage if reference is not None and reference() is variable else None

    def _check_weights(self, name: str, variables: Sequence[Any]) -> None:
        unassigned_paths = [
            v.path for v in variables if v.trainable and self.stages.of(v.path) is None
        ]
        if unassigned_paths:
            raise ArgumentError(
                f"{name}: expected a stage for each layer with weights; no pattern "
                f"of PipelineParallel(stages=...) fits {unassigned_paths}"
            )

    def _describe_batch_dependency(self, node: Node) -> str | None:
        """Return the error for a node that needs the full batch, or None."""
        path = "/".join(n for n in node.origin.split("/") if n != GRADIENT)
        if not path:
            return None
        return (
            f"PipelineParallel: layer {path!r} needs a value of the full batch "
            f"({node.op.name}), for example batch normalization, but micro-batches "
            "run one after the other"
        )


def _parse_patterns(stages: Patterns) -> tuple[list[tuple[str, int]], int]:
    """Return (pattern, stage) pairs and the number of stages."""
    pairs: list[tuple[str, int]] = []
    if isinstance(stages, Mapping):
        pairs = [(pattern, stage) for pattern, stage in stages.items()]
    elif not isinstance(stages, str):
        for index, entry in enumerate(stages):
            patterns: Any = entry if isinstance(entry, (list, tuple)) else [entry]
            pairs += [(pattern, index) for pattern in patterns]
    used_stages = {stage for _, stage in pairs}
    is_text = all(isinstance(pattern, str) for pattern, _ in pairs)
    if not pairs or not is_text or used_stages != set(range(len(used_stages))):
        raise ArgumentError(
            "PipelineParallel: expected stages as a list of patterns, or a dict of "
            f"pattern -> number of the stage, from 0 on; received {stages!r}"
        )
    return pairs, len(used_stages)
