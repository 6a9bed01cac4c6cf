"""Device meshes, and layouts of tensors over mesh axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np

from toolkit.distribution.devices import list_devices
from toolkit.errors import ArgumentError


class DeviceMesh:
    """Grid of devices with named axes.

    Args:
        shape: the shape of the grid.
        axis_names: the name of each axis.
        devices: the device names, one for each grid cell. None uses the devices of this
            machine.

    Example:
        >>> from toolkit.distribution import DeviceMesh
        >>> mesh = DeviceMesh((2, 1), ["batch", "model"], ["cpu:0", "cpu:1"])
        >>> mesh.devices.tolist()
        [['cpu:0'], ['cpu:1']]
    """

    def __init__(
        self, shape: Sequence[int], axis_names: Sequence[str], devices: Any = None
    ) -> None:
        received = f"received shape={shape}, axis_names={axis_names}"
        if not shape or not axis_names:
            raise ArgumentError(
                f"DeviceMesh: Shape and axis_names cannot be empty; {received}"
            )
        if len(shape) != len(axis_names):
            raise ArgumentError(
                f"DeviceMesh: Shape and axis_names should have same size; {received}"
            )
        if len(set(axis_names)) != len(axis_names):
            raise ArgumentError(f"DeviceMesh: axis_names must be unique; {received}")
        names = np.array(list_devices() if devices is None else devices)
        if math.prod(shape) != names.size:
            raise ArgumentError(
                f"DeviceMesh: Shape does not match the number of devices; {received} "
                f"for {names.size} devices"
            )
        self._shape, self._axis_names = shape, axis_names
        self._devices = names.reshape(tuple(shape))

    @property
    def shape(self) -> Any:
        """The shape of the mesh."""
        return self._shape

    @property
    def axis_names(self) -> Any:
        """The names of its axes."""
        return self._axis_names

    @property
    def devices(self) -> Any:
        """The device names, as an array of the mesh's shape."""
        return self._devices

    def __repr__(self) -> str:
        return f"<DeviceMesh shape={self.shape}, axis_names={self.axis_names}>"


class TensorLayout:
    """Assignment of tensor axes to mesh axes.

    Args:
        axes: for each axis of the tensor, the name of a mesh axis, or None.
        device_mesh: the mesh, which can be set once later.

    Example:
        >>> from toolkit.distribution import DeviceMesh, TensorLayout
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> TensorLayout(["batch", None], mesh).axes
        ('batch', None)
    """

    def __init__(
        self, axes: Sequence[str | None], device_mesh: DeviceMesh | None = None
    ) -> None:
        self._axes = tuple(axes)
        mesh_axes = [axis for axis in self._axes if axis is not None]
        if len(set(mesh_axes)) < len(mesh_axes):
            raise ArgumentError(
                "TensorLayout: expected each axis of the mesh at most once; received "
                f"{list(self._axes)}"
            )
        self._device_mesh: DeviceMesh | None = None
        if device_mesh is not None:
            self.device_mesh = device_mesh

    @property
    def axes(self) -> tuple[str | None, ...]:
        """For each axis of a tensor, the name of a mesh axis, or None."""
        return self._axes

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh, or None if it is not set."""
        return self._device_mesh

    @device_mesh.setter
    def device_mesh(self, device_mesh: DeviceMesh) -> None:
        if self._device_mesh is not None:
            raise ArgumentError(
                "TensorLayout: Cannot override device mesh value; it is "
                f"{self._device_mesh}"
            )
        unknown = set(self._axes) - {None, *device_mesh.axis_names}
        if unknown:
            raise ArgumentError(
                "TensorLayout: Invalid axis names for Layout: expected names among "
                f"{list(device_mesh.axis_names)}; received {list(self._axes)}"
            )
        self._device_mesh = device_mesh

    def __repr__(self) -> str:
        return f"<TensorLayout axes={self.axes}, device_mesh={self.device_mesh}>"


class LayoutMap(MutableMapping[str, Any]):
    """Mapping from variable and tensor paths, or regular expressions, to layouts.

    If a path is not a key, the keys are full-match regular expressions. At most one can
    match. Without a match, the layout is None.

    Args:
        device_mesh: the mesh for layouts that have none.

    Example:
        >>> from toolkit.distribution import DeviceMesh, LayoutMap
        >>> layouts = LayoutMap(DeviceMesh((1,), ["model"], ["cpu:0"]))
        >>> layouts[".*kernel"] = (None, "model")
        >>> layouts["dense/kernel"].axes, layouts["dense/bias"]
        ((None, 'model'), None)
    """

    def __init__(self, device_mesh: DeviceMesh) -> None:
        self._layouts: dict[str, TensorLayout] = {}
        self._device_mesh = device_mesh

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh of the layouts."""
        return self._device_mesh

    def __getitem__(self, key: str) -> TensorLayout | None:
        if key in self._layouts:
            return self._layouts[key]
        patterns = [pattern for pattern in self._layouts if re.fullmatch(pattern, key)]
        if len(patterns) > 1:
            raise ArgumentError(
                f"LayoutMap: Path '{key}' matches multiple layout keys: {patterns}; "
                "expected one match"
            )
        return self._layouts[patterns[0]] if patterns else None

    def __setitem__(self, key: str, layout: Any) -> None:
        if key in self._layouts:
            raise ArgumentError(
                f"LayoutMap: {key} already exist in the LayoutMap with the value "
                f"{self._layouts[key]}"
            )
        if isinstance(layout, (tuple, list)):
            layout = TensorLayout(layout)
        if not isinstance(layout, TensorLayout):
            raise ArgumentError(
                f"LayoutMap: {layout} should be a TensorLayout type, or a tuple of "
                f"names and None; received {type(layout).__name__}"
            )
        if layout.device_mesh is None and self.device_mesh is not None:
            layout.device_mesh = self.device_mesh
        self._layouts[key] = layout

    def __delitem__(self, key: str) -> None:
        del self._layouts[key]

    def __contains__(self, key: object) -> bool:
        return key in self._layouts

    def __len__(self) -> int:
        return len(self._layouts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)
