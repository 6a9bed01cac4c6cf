"""Who computes what: each rank of a job its part of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from toolkit import comm, data
from toolkit.backends.base import Backend
from toolkit.compiler import spreading
from toolkit.compiler.execute import Executable
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.programs import Along, compile_spread
from toolkit.core.convert import convert
from toolkit.core.variable import Variable
from toolkit.distribution.devices import agree_on_seeds, list_devices
from toolkit.distribution.elastic import recovery
from toolkit.distribution.job import Job
from toolkit.distribution.layouts import DeviceMesh, LayoutMap, TensorLayout
from toolkit.distribution.placements import Parts, mesh_axes, placed
from toolkit.errors import ArgumentError, LaunchError, ShapeError, UnsupportedError
from toolkit.ir import Graph
from toolkit.ops.symbolic import is_symbolic
from toolkit.random.drawing import draws

_current: Distribution | None = None


class Distribution(Job):
    """Base of distributions: they tell the layouts of data and variables.

    Args:
        device_mesh: the devices.
        batch_dim_name: the mesh's axis that batches are split over.
        auto_shard_dataset: whether each process gets its part of what it is given; if
            not, it is given its part.
    """

    # Into how many parts each batch is cut, whatever the number of ranks.
    shards = 1
    holds_all = True  # whether each rank has the whole state of the model

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
        """Which part of each batch this process computes."""
        shape, names = tuple(self.device_mesh.shape), list(self.device_mesh.axis_names)
        if self.batch_dim_name is None or np.prod(shape) != self.num_processes:
            return 0
        place = np.unravel_index(comm.world().rank, shape)
        return int(place[names.index(self.batch_dim_name)])

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are: one for each part of a batch."""
        if self.batch_dim_name is None:
            return 1
        names = list(self.device_mesh.axis_names)
        return int(self.device_mesh.shape[names.index(self.batch_dim_name)])

    def get_data_layout(self, data_shape: Any) -> TensorLayout:
        """Batches are split along their first axis."""
        rest = [None] * (len(data_shape) - 1)
        return TensorLayout([self.batch_dim_name, *rest], self.device_mesh)

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """Each device has the whole variable."""
        return TensorLayout([None] * len(variable.shape), self.device_mesh)

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """The layout of an intermediate tensor; None leaves it as it is."""
        return None

    def distribute_dataset(self, dataset: Any) -> Any:
        """A data set of the rows of this process, of each batch of a data set.

        `fit` does this itself: it takes the whole data set, or what this returns. It
        is for loops of one's own. With auto_shard_dataset=False, or in a job of one
        process, it is the data set as it is.

        Args:
            dataset: a `Dataset` of whole batches, the same in all processes.
        """
        if not self.auto_shard_dataset or self.num_processes == 1:
            return dataset
        if not isinstance(dataset, data.Dataset):
            raise ArgumentError(
                f"distribute_dataset: expected a Dataset; received {dataset!r:.60} of "
                f"type {type(dataset).__name__}"
            )
        _need_processes("distribute_dataset", self.device_mesh)
        has_parts = self.batch_dim_name is not None
        rows = self.axes[-1].rows if has_parts else self.rows
        return dataset._own_rows(rows, makes_all=draws(dataset._first_row()))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Make this the current distribution inside."""
        outer = distribution()
        set_distribution(self)
        try:
            yield
        finally:
            set_distribution(outer)

    def resize(self, counts: bool) -> None:
        """Spread steps over the ranks that are there.

        Args:
            counts: whether the results of the step count in which one was lost.
        """
        raise LaunchError(
            f"{type(self).__name__}: a process is lost, and with it a part of the "
            "model; start the job again from a checkpoint"
        )

    def rows(self, count: int) -> range:
        """Which rows of a batch of so many this process needs.

        All, where it may have to do the work of a process that is lost.
        """
        return range(count) if comm.is_elastic() else self.axes[-1].rows(count)

    @property
    def is_spread(self) -> bool:
        """Whether steps are cut at all."""
        return max(self.num_processes, self.shards) > 1

    @cached_property
    def axes(self) -> list[MeshAxis]:
        """The axes of the mesh as this rank sees them, that of the batch last.

        All ranks of the job ask for them at the same time.
        """
        return mesh_axes(self.device_mesh, self.batch_dim_name, self.shards)

    def placement_of(self, variable: Any, like: Any = None) -> Parts | None:
        """The part of a new variable that this rank holds; None: all of it.

        Args:
            variable: the new one.
            like: the variable whose slot it is, if it is one.
        """
        layout = self.get_variable_layout(variable if like is None else like)
        return placed(variable, layout, self.axes)

    def check(self) -> None:
        """Refuse what is not there.

        Raises:
            ArgumentError: for parts of batches that are not those of the shards.
            UnsupportedError: for parts in an elastic job.
        """
        if not self.auto_shard_dataset and comm.is_elastic():
            raise UnsupportedError(
                f"{type(self).__name__}: auto_shard_dataset=False is not supported in "
                "an elastic job: the part of a lost process would be missing"
            )
        parts = self.axes[-1].group.size
        if not self.auto_shard_dataset and self.shards % parts:
            raise ArgumentError(
                f"{type(self).__name__}: with auto_shard_dataset=False, expected "
                f"shards that divide by the {parts} parts of each batch; received "
                f"shards={self.shards}"
            )

    def compile(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool,
        updates: Sequence[tuple[int, int | None]],
        name: str,
        variables: Sequence[Any],
        written: Sequence[Any],
    ) -> Executable:
        """What runs this rank's part of a step: see `Spreading`."""
        if backend.is_accelerator:
            raise UnsupportedError(
                f"{name}: steps are spread over processes on the CPU only; received "
                f"the device {backend.device_name}"
            )
        batch = len(graph.inputs) - len(variables)
        shapes = [x.spec.shape[:1] for x in graph.inputs[:batch]]
        fetched: list[Split | None] = [None] * (len(graph.outputs) - len(written))
        axes = []
        for axis in self.axes:
            if axis.group.size == axis.leaves == 1:
                continue
            cut = axis is self.axes[-1]
            data = [Split(0) if cut and n and n == shapes[0] else None for n in shapes]
            inputs = [*data, *(_split_of(v, axis) for v in variables)]
            outputs = [*fetched, *(_split_of(v, axis) for v in written)]
            stored = range(batch, len(inputs)) if cut else ()
            kept = [number for number in stored if inputs[number] is not None]
            axes.append(Along(axis, inputs, outputs, kept))
        arguments = graph, backend, generate, updates, name
        settle = recovery.settle if comm.is_elastic() else None
        return compile_spread(*arguments, axes, batch, settle, self._keeps(written))

    def begin_run(self) -> None:
        """What all ranks do before a run of `fit` in an elastic job."""

    def _keeps(self, written: Sequence[Any]) -> Callable[[list[Any]], None] | None:
        """What settles steps in which copies of new values are sent, if any are."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self.device_mesh}>"


def _split_of(variable: Any, axis: MeshAxis) -> Split | None:
    """How a variable is split along an axis of the mesh."""
    placement = variable.placement
    return None if placement is None else placement.along(axis)


class ModelParallel(Distribution):
    """Variables are split over devices, and perhaps batches too.

    Args:
        layout_map: path of a variable -> its layout; without one, each device has the
            whole variable.
        batch_dim_name: the mesh's axis that batches are split over; its first if None.
        auto_shard_dataset: see `Distribution`.
        device_mesh: that of the layout map, if given.

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
        self.shards = self.num_model_replicas

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """The layout that the map has for the variable's path."""
        found = self._layout_map[variable.path]
        return super().get_variable_layout(variable) if found is None else found

    def check(self) -> None:
        """Refuse what is not there: data in parts, layouts of what layers return."""
        super().check()
        outputs = [key for key in self._layout_map if key.endswith("output")]
        if outputs:
            raise UnsupportedError(
                "ModelParallel: layouts of outputs are not supported: the compiler "
                f"lays them out by the variables'; received {outputs}"
            )

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """The layout that the map has for a path, or None."""
        return self._layout_map[path]


def _need_processes(function: str, mesh: DeviceMesh) -> None:
    count, found = int(mesh.devices.size), comm.world().size
    if count != found:
        raise ArgumentError(
            f"{function}: expected a mesh with one device for each of the {found} "
            f"processes of the job; received {mesh}. `toolkit run --processes {count}` "
            "starts a script on as many"
        )


def _need_devices(function: str, mesh: DeviceMesh) -> None:
    names = [str(name) for name in mesh.devices.ravel()]
    there = list_devices("cpu") + list_devices("gpu")
    missing = [name for name in names if name.lower() not in there]
    if missing:
        raise ArgumentError(
            f"{function}: expected a mesh of devices among {there}; received {missing}"
        )


def distribution() -> Distribution | None:
    """The current distribution, if one was set."""
    return _current


def set_distribution(value: Distribution | None) -> None:
    """Make a distribution the current one; None for none.

    Raises:
        ArgumentError: if its mesh has another number of devices than the job processes,
            or some that are not there.

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
        _need_processes("set_distribution", value.device_mesh)
        _need_devices("set_distribution", value.device_mesh)
        recovery.follow(value)
        recovery.run(agree_on_seeds)
    spread = value if value is not None and value.is_spread else None
    if spread is not None:
        spread.check()
        assert spread.axes  # all ranks make the groups now
    _current = value
    spreading.set_current(spread)
    Variable._placement_of = None if spread is None else spread.placement_of


def distribute_tensor(tensor: Any, layout: TensorLayout) -> Any:
    """The tensor itself, checked against a layout: every process keeps all of it.

    Only batches and variables are split, inside the steps of models.

    Raises:
        ArgumentError: if the mesh has another number of devices than the job processes.
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
    _need_processes("distribute_tensor", layout.device_mesh)
    return tensor
