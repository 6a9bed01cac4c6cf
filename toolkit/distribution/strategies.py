"""Who computes what: the whole of it, on the one device of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolkit.console.frames import warn
from toolkit.core.convert import convert
from toolkit.distribution.devices import list_devices
from toolkit.distribution.layouts import DeviceMesh, LayoutMap, TensorLayout
from toolkit.errors import ArgumentError, ShapeError, UnsupportedError
from toolkit.ops.symbolic import is_symbolic

_current: Distribution | None = None


class Distribution:
    """Base of distributions: they tell the layouts of data and variables.

    Args:
        device_mesh: the devices.
        batch_dim_name: the mesh's axis that batches are split over.
        auto_shard_dataset: whether each process gets its part of a data set; there is
            one process, which gets all of it.
    """

    num_processes = 1
    data_shard_id = 0

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
        """The part of a data set for this process: all of it."""
        return dataset

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Make this the current distribution inside."""
        outer = distribution()
        set_distribution(self)
        try:
            yield
        finally:
            set_distribution(outer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self.device_mesh}>"


class DataParallel(Distribution):
    """Each device has the whole model and its part of each batch.

    Args:
        device_mesh: the devices, of one axis.
        devices: their names instead; those of this machine if both are None.
        auto_shard_dataset: see `Distribution`.

    Example:
        >>> from toolkit import distribution
        >>> parallel = distribution.DataParallel(devices=["cpu:0"])
        >>> parallel.get_data_layout((32, 8)).axes
        ('batch', None)
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Any = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        if device_mesh is not None and devices is not None:
            raise ArgumentError("DataParallel: give device_mesh or devices, not both")
        if device_mesh is None:
            devices = list_devices() if devices is None else devices
            device_mesh = DeviceMesh((len(devices),), ["batch"], devices)
        names = getattr(device_mesh, "axis_names", [None])
        super().__init__(device_mesh, names[0], auto_shard_dataset)
        if len(names) > 1:
            warn(
                f"DataParallel: expected a mesh of one axis; of {device_mesh} the "
                "first is used"
            )

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are: one for each device."""
        return int(self.device_mesh.devices.size)


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

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """The layout that the map has for the variable's path."""
        found = self._layout_map[variable.path]
        return super().get_variable_layout(variable) if found is None else found

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """The layout that the map has for a path, or None."""
        return self._layout_map[path]


def _need_one_device(function: str, mesh: DeviceMesh) -> None:
    if mesh.devices.size > 1:
        raise UnsupportedError(
            f"{function}: a model is computed by one process on one device; {mesh} has "
            f"{mesh.devices.size} devices, which is not supported"
        )


def distribution() -> Distribution | None:
    """The current distribution, if one was set."""
    return _current


def set_distribution(value: Distribution | None) -> None:
    """Make a distribution the current one; None for none.

    Raises:
        UnsupportedError: if it is over more than one device.

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
        _need_one_device("set_distribution", value.device_mesh)
    _current = value


def distribute_tensor(tensor: Any, layout: TensorLayout) -> Any:
    """The tensor, laid out over the one device of a mesh: as it is.

    Raises:
        UnsupportedError: if the mesh has more than one device.
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
    _need_one_device("distribute_tensor", layout.device_mesh)
    return tensor
