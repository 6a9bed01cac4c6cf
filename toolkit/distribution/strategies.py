"""Distributions: each rank of a job computes its part of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from toolkit import comm, data
from toolkit.arguments import is_int
from toolkit.backends.base import Backend
from toolkit.compiler import distribution_context
from toolkit.compiler.execute import Executable
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.programs import AxisSharding, compile_sharded
from toolkit.core.convert import convert
from toolkit.core.variable import Variable
from toolkit.distribution.devices import agree_on_seeds, list_devices
from toolkit.distribution.elastic import recovery
from toolkit.distribution.gpus import check_device, connect_gpus
from toolkit.distribution.job import Job
from toolkit.distribution.layouts import DeviceMesh, LayoutMap, TensorLayout
from toolkit.distribution.placements import (
    ShardPlacement,
    mesh_axes,
    placement_of_layout,
)
from toolkit.errors import ArgumentError, LaunchError, ShapeError, UnsupportedError
from toolkit.ir import Graph
from toolkit.ops.symbolic import is_symbolic
from toolkit.optimizers.accumulators import has_leaves
from toolkit.random.draw_detection import draws_random_numbers

_current: Distribution | None = None


class Distribution(Job):
    """Base class of distributions: layouts of data and variables.

    Args:
        device_mesh: the devices.
        batch_dim_name: the mesh axis of batches.
        auto_shard_dataset: whether each process takes its shard of the given data. If
            not, the given data is already the shard.
    """

    # Number of parts of each batch, independent of the number of ranks.
    shards = 1
    # The same for other mesh axes. An axis without an entry has a part for each device.
    axis_shards: Mapping[str, int] = MappingProxyType({})
    # The order of sums over the ranks: "tree" or "nccl".
    reduction = "tree"
    # Whether each rank has the full state. `resize` refuses lost ranks in distributions
    # that split weights, before the value is read.
    has_full_state = True

    def __init__(
        self,
        device_mesh: DeviceMesh,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        if not isinstance(device_mesh, DeviceMesh):
            raise ArgumentError(
                f"{type(self).__name__}: Expect `mesh` to be an instance of "
                f"`DeviceMesh`; received {device_mesh!r}"
            )
        if batch_dim_name not in (None, *device_mesh.axis_names):
            raise ArgumentError(
                f"{type(self).__name__}: batch_dim_name must be one of "
                f"{list(device_mesh.axis_names)}; received {batch_dim_name!r}"
            )
        self.device_mesh = device_mesh
        self.batch_dim_name = batch_dim_name
        self.auto_shard_dataset = auto_shard_dataset

    @property
    def data_shard_id(self) -> int:
        """Return the index of the batch part that this process computes."""
        shape, names = tuple(self.device_mesh.shape), list(self.device_mesh.axis_names)
        if self.batch_dim_name is None or np.prod(shape) != self.num_processes:
            return 0
        coordinates = np.unravel_index(comm.world().rank, shape)
        return int(coordinates[names.index(self.batch_dim_name)])

    @property
    def num_model_replicas(self) -> int:
        """Return the number of model replicas: one for each part of a batch."""
        if self.batch_dim_name is None:
            return 1
        names = list(self.device_mesh.axis_names)
        return int(self.device_mesh.shape[names.index(self.batch_dim_name)])

    def get_data_layout(self, data_shape: Any) -> TensorLayout:
        """Return the layout of data: split along the first axis.

        Args:
            data_shape: the shape of a batch.
        """
        unsplit_axes = [None] * (len(data_shape) - 1)
        return TensorLayout([self.batch_dim_name, *unsplit_axes], self.device_mesh)

    def get_variable_layout(self, variable: Variable) -> TensorLayout:
        """Return the layout of a variable: replicated.

        Args:
            variable: a variable of any shape.
        """
        return TensorLayout([None] * len(variable.shape), self.device_mesh)

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of an intermediate tensor, or None for no constraint.

        Args:
            path: the path of the layer that computes the tensor.
        """
        return None

    def distribute_dataset(self, dataset: Any) -> Any:
        """Return a data set of the rows of this process in each batch.

        `fit` does this itself; it accepts the global data set or this result. The
        method is for custom training loops, whose step is a `toolkit.function` with
        `distribute=True`. With auto_shard_dataset=False, or in a job of one process,
        the result is the given data set.

        Args:
            dataset: a `Dataset` of global batches, equal in all processes.
        """
        if not self.auto_shard_dataset or self.num_processes == 1:
            return dataset
        if not isinstance(dataset, data.Dataset):
            raise ArgumentError(
                f"distribute_dataset: expected a Dataset; received {dataset!r:.60} of "
                f"type {type(dataset).__name__}"
            )
        _check_process_count("distribute_dataset", self.device_mesh)
        has_batch_axis = self.batch_dim_name is not None
        rows = self.axes[-1].rows if has_batch_axis else self.rows
        return dataset._local_shard(
            rows, makes_all=draws_random_numbers(dataset._first_row())
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Return a context in which this is the current distribution."""
        outer = distribution()
        set_distribution(self)
        try:
            yield
        finally:
            set_distribution(outer)

    def resize(self, is_committed: bool) -> None:
        """Distribute steps over the current ranks.

        Args:
            is_committed: whether the results of the interrupted step are valid.
        """
        raise LaunchError(
            f"{type(self).__name__}: a process is lost with its shard of the model; "
            "restart the job from a checkpoint"
        )

    def rows(self, count: int) -> range:
        """Return the rows of a batch that this process needs.

        It needs all rows if it could replace a lost process.

        Args:
            count: the number of rows of the batch.
        """
        return range(count) if self._needs_all_rows else self.axes[-1].rows(count)

    @cached_property
    def _needs_all_rows(self) -> bool:
        return comm.is_elastic()

    @property
    def is_partitioned(self) -> bool:
        """Return whether steps are partitioned."""
        return max(self.num_processes, self.shards, *self.axis_shards.values()) > 1

    @cached_property
    def axes(self) -> list[MeshAxis]:
        """Return the mesh axes from the view of this rank, with the batch axis last.

        The first call is collective.
        """
        shards = {str(self.batch_dim_name): self.shards, **self.axis_shards}
        names = self.device_mesh, self.batch_dim_name
        return mesh_axes(*names, shards, self.reduction)

    def placement_of(
        self, variable: Variable, like: Variable | None = None
    ) -> ShardPlacement | None:
        """Return the placement of a new variable on this rank, or None if replicated.

        Args:
            variable: the new variable.
            like: the variable of which it is a slot, if any.
        """
        layout = self.get_variable_layout(variable if like is None else like)
        return placement_of_layout(variable, layout, self.axes)

    def num_accumulated_leaves(self, variable: Variable) -> int:
        """Return the number of sums of a gradient accumulator.

        With a sum for each part of a batch, the processes exchange gradients once for
        each update. In an elastic job each process needs the sums of all processes,
        because the sums of a lost process would be missing. The processes exchange
        rows of a large table in each step, because the sum has the size of the table.

        Args:
            variable: the variable of the gradient.
        """
        is_split = self.batch_dim_name in self.get_variable_layout(variable).axes
        if is_split or self.batch_dim_name is None or comm.is_elastic():
            return 1
        if variable.is_table:
            return 1
        return self.shards

    def place_leaves(
        self, accumulator: Variable, variable: Variable
    ) -> ShardPlacement | None:
        """Return the placement of a gradient accumulator with a sum for each leaf.

        Args:
            accumulator: the accumulator: (leaves, ...).
            variable: the variable of the gradient: (...).
        """
        axes = self.get_variable_layout(variable).axes
        layout = TensorLayout([self.batch_dim_name, *axes], self.device_mesh)
        return placement_of_layout(accumulator, layout, self.axes)

    def check(self) -> None:
        """Raise an error for unsupported combinations.

        Raises:
            ArgumentError: the number of batch parts does not match the shards.
            UnsupportedError: auto_shard_dataset=False in an elastic job.
        """
        if not self.auto_shard_dataset and comm.is_elastic():
            raise UnsupportedError(
                f"{type(self).__name__}: auto_shard_dataset=False is not supported "
                "in an elastic job: the rows of a lost process would be missing"
            )
        batch_parts = self.axes[-1].group.size
        if not self.auto_shard_dataset and self.shards % batch_parts:
            raise ArgumentError(
                f"{type(self).__name__}: with auto_shard_dataset=False, expected "
                f"shards that divide by the {batch_parts} parts of each batch; "
                f"received shards={self.shards}"
            )

    def compile(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool,
        updates: Sequence[tuple[int, int | None]],
        name: str,
        variables: Sequence[Variable],
        written: Sequence[Variable],
    ) -> Executable:
        """Return a runner of this rank's part of a step.

        Args:
            graph: the graph of the full step. Its last inputs are the variables.
            backend: the backend that runs the step.
            generate: whether the backend generates code.
            updates: pairs of an output, and the input that it may overwrite, by index.
            name: the name of the step in errors.
            variables: the variables among the inputs, after the batch.
            written: the variables whose new values are the last outputs.
        """
        check_device(name, self.device_mesh, backend)
        if backend.is_accelerator:
            groups = [axis.group for axis in self.axes]
            connect_gpus(name, backend, groups, self.reduction == "nccl")
        batch = len(graph.inputs) - len(variables)
        shapes = [x.spec.shape[:1] for x in graph.inputs[:batch]]
        fetched: list[Split | None] = [None] * (len(graph.outputs) - len(written))
        axes = []
        for axis in self.axes:
            if axis.group.size == axis.leaves == 1:
                continue
            is_batch_axis = axis is self.axes[-1]
            data = [
                Split(0) if is_batch_axis and n and n == shapes[0] else None
                for n in shapes
            ]
            inputs = [*data, *(_split_of(v, axis) for v in variables)]
            outputs = [*fetched, *(_split_of(v, axis) for v in written)]
            stored = [
                index
                for index, v in enumerate(variables, batch)
                if is_batch_axis and inputs[index] is not None and not has_leaves(v)
            ]
            axes.append(AxisSharding(axis, inputs, outputs, stored))
        arguments = graph, backend, generate, updates, name
        recovery.use_backend(backend)
        commit = recovery.commit_step if comm.is_elastic() else None
        return compile_sharded(
            *arguments, axes, batch, commit, self._commit_function(written)
        )

    def begin_run(self) -> None:
        """Prepare a run of `fit` in an elastic job; all ranks call this."""

    def _commit_function(
        self, written: Sequence[Variable]
    ) -> Callable[[list[Any]], None] | None:
        """Return the function that commits steps with copies of new values, if any."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self.device_mesh}>"


def _split_of(variable: Variable, axis: MeshAxis) -> Split | None:
    """Return the split of a variable along a mesh axis."""
    placement = variable.placement
    return (
        placement.split_along(axis) if isinstance(placement, ShardPlacement) else None
    )


class ModelParallel(Distribution):
    """Model parallelism: variables, and optionally batches, are split over devices.

    Args:
        layout_map: path of a variable -> its layout. A variable without a layout is
            replicated. A layout of a path such as "dense/output" is a hint: the
            compiler derives the layouts of tensors from the layouts of the variables,
            and results are the same.
        batch_dim_name: the mesh axis of batches; None uses the first axis.
        auto_shard_dataset: see `Distribution`.
        device_mesh: must be the mesh of the layout map, if given.
        shards: the number of parts of each batch, as in `DataParallel`; or a dict from
            the names of mesh axes to numbers of parts. None, and an axis that is not in
            the dict: a part for each device. Sums over the batch, and over an axis of a
            weight that is split, add the sums of the parts along a tree. Jobs with the
            same layouts, and the same parts of all axes, thus have bitwise equal
            results on a mesh of any shape. The number of devices along an axis divides
            its parts; along the batch axis it may be any number up to the parts.

    Example:
        >>> from toolkit.distribution import DeviceMesh, LayoutMap, ModelParallel
        >>> mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
        >>> layouts = LayoutMap(mesh)
        >>> layouts[".*kernel"] = (None, "model")
        >>> ModelParallel(layout_map=layouts).get_tensor_layout("dense/kernel").axes
        (None, 'model')
    """

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
        device_mesh: DeviceMesh | None = None,
        shards: int | Mapping[str, int] | None = None,
    ) -> None:
        if not isinstance(layout_map, LayoutMap):
            raise ArgumentError(
                "ModelParallel: You must specify a layout_map argument, which must be "
                f"a `LayoutMap` instance; received {layout_map!r}"
            )
        mesh = layout_map.device_mesh
        if device_mesh not in (None, mesh):
            raise ArgumentError(
                f"ModelParallel: the layout_map is over {mesh}; received "
                f"device_mesh={device_mesh}"
            )
        batch_dim_name = batch_dim_name or mesh.axis_names[0]
        super().__init__(mesh, batch_dim_name, auto_shard_dataset)
        self._layout_map = layout_map
        parts = _parse_shards(shards, mesh, batch_dim_name)
        self.shards = parts.pop(batch_dim_name, self.num_model_replicas)
        self.axis_shards = parts

    def get_variable_layout(self, variable: Variable) -> TensorLayout:
        """Return the layout of a variable from the map, or replicated.

        Args:
            variable: a variable whose path the map can match.
        """
        layout = self._layout_map[variable.path]
        return super().get_variable_layout(variable) if layout is None else layout

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of a path from the map, or None.

        Args:
            path: the path of the layer that computes the tensor.
        """
        return self._layout_map[path]


def _parse_shards(
    shards: int | Mapping[str, int] | None, mesh: DeviceMesh, batch: str
) -> dict[str, int]:
    """Return the parts of mesh axes of the argument `shards` of ModelParallel."""
    if shards is None:
        return {}
    parts = dict(shards) if isinstance(shards, Mapping) else {batch: shards}
    sizes = dict(zip(mesh.axis_names, map(int, mesh.shape), strict=True))
    for name, count in parts.items():
        if name not in sizes:
            raise ArgumentError(
                f"ModelParallel: expected shards of the axes {list(sizes)}; received "
                f"{name!r}"
            )
        is_valid = is_int(count) and count >= sizes[name]
        if not is_valid or (name != batch and count % sizes[name]):
            rule = "at least" if name == batch else "a multiple of"
            raise ArgumentError(
                f"ModelParallel: expected shards of {name!r} to be {rule} its "
                f"{sizes[name]} devices; received {count!r}"
            )
    return parts


def _check_process_count(function: str, mesh: DeviceMesh) -> None:
    count, num_processes = int(mesh.devices.size), comm.world().size
    if count != num_processes:
        raise ArgumentError(
            f"{function}: expected a mesh with one device for each of the "
            f"{num_processes} processes of the job; received {mesh}. `toolkit run "
            f"--processes {count}` starts a script with this number"
        )


def _check_devices(function: str, mesh: DeviceMesh) -> None:
    names = [str(name) for name in mesh.devices.ravel()]
    available_names = list_devices("cpu") + list_devices("gpu")
    missing_names = [name for name in names if name.lower() not in available_names]
    if missing_names:
        raise ArgumentError(
            f"{function}: expected a mesh of devices among {available_names}; received "
            f"{missing_names}"
        )


def distribution() -> Distribution | None:
    """Return the current distribution.

    Returns:
        The argument of the last `set_distribution`; None without a distribution.

    Example:
        >>> from toolkit import distribution
        >>> with distribution.DataParallel(devices=["cpu:0"]).scope():
        ...     distribution.distribution().num_model_replicas
        1
    """
    return _current


def set_distribution(value: Distribution | None) -> None:
    """Set the current distribution; None removes it.

    Args:
        value: a `DataParallel`, `ModelParallel` or `PipelineParallel`, or None.

    Raises:
        ArgumentError: its mesh has unknown devices, or not one for each process.

    Example:
        >>> from toolkit import distribution
        >>> distribution.set_distribution(distribution.DataParallel(devices=["cpu:0"]))
        >>> distribution.distribution().batch_dim_name
        'batch'
        >>> distribution.set_distribution(None)
    """
    global _current
    if value is not None:
        if not isinstance(value, Distribution):
            raise ArgumentError(
                f"set_distribution: expected a distribution or None; received {value!r}"
            )
        _check_process_count("set_distribution", value.device_mesh)
        _check_devices("set_distribution", value.device_mesh)
        recovery.use_distribution(value)
        recovery.run(agree_on_seeds)
    active_distribution = value if value is not None and value.is_partitioned else None
    if active_distribution is not None:
        active_distribution.check()
        assert active_distribution.axes  # all ranks create the groups now
    _current = value
    distribution_context.set_current(active_distribution)
    Variable._placement_of = (
        None if active_distribution is None else active_distribution.placement_of
    )


def distribute_tensor(tensor: Any, layout: TensorLayout) -> Any:
    """Check a tensor against a layout and return it; every process keeps all of it.

    Only batches and variables are split, inside the steps of models.

    Args:
        tensor: an array, or a tensor, also a symbolic one.
        layout: a layout with a mesh, and one axis for each axis of the tensor.

    Returns:
        The tensor, of the same shape.

    Raises:
        ArgumentError: the number of mesh devices differs from the number of processes.

    Example:
        >>> import numpy as np
        >>> from toolkit import distribution
        >>> mesh = distribution.DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> layout = distribution.TensorLayout(["batch", None], mesh)
        >>> distribution.distribute_tensor(np.ones((4, 2)), layout).shape
        (4, 2)
    """
    if not isinstance(layout, TensorLayout) or layout.device_mesh is None:
        raise ArgumentError(
            "distribute_tensor: expected a TensorLayout with a device_mesh; received "
            f"{layout!r}"
        )
    if is_symbolic(tensor):
        return tensor
    tensor = convert(tensor)
    if len(layout.axes) != tensor.ndim:
        raise ShapeError(
            f"distribute_tensor: the layout has {len(layout.axes)} axes; received a "
            f"tensor of shape {tuple(tensor.shape)}"
        )
    _check_process_count("distribute_tensor", layout.device_mesh)
    return tensor
