"""Placements of sharded variables: the local shard of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.backends.memory import to_host
from toolkit.comm.local import single
from toolkit.compiler.sharding.collectives import gather
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.definitions.records import record
from toolkit.distribution.chief import notify_gather
from toolkit.distribution.layouts import DeviceMesh, TensorLayout
from toolkit.errors import ArgumentError
from toolkit.ir import Spec


@record
class ShardPlacement:
    """Placement of a value that is split along several mesh axes."""

    splits: Sequence[tuple[MeshAxis, Split]]
    spec: Spec

    def split_along(self, axis: MeshAxis) -> Split | None:
        """Return the split along one of the axes."""
        return next((split for a, split in self.splits if a is axis), None)

    def take_local(self, array: Any) -> Any:
        """Return this rank's shard of a full value."""
        array = to_host(array)
        for axis, split in self.splits:
            array = array[axis.local_slices(split, array)]
        return np.array(array)

    def gather(self, array: Any) -> Any:
        """Return the full value; all ranks call this."""
        notify_gather(self)
        array = to_host(array)
        specs = [self.spec]
        for axis, split in self.splits[:-1]:
            units = split.units(specs[-1])
            specs.append(split.local(specs[-1], len(axis.rows(units))))
        for (axis, split), spec in zip(self.splits[::-1], specs[::-1], strict=True):
            out = np.empty(spec.shape, array.dtype)
            gather(array, out, axis, split)
            array = out
        return array

    def local_bounds(self) -> tuple[tuple[int, int], ...]:
        """Return the box of this rank's shard in the full value."""
        bounds = [(0, extent) for extent in self.spec.shape]
        spec = self.spec
        for axis, split in self.splits:
            rows = axis.rows(split.units(spec))
            first = bounds[split.axis][0] + rows.start * split.minor
            bounds[split.axis] = first, first + len(rows) * split.minor
            spec = split.local(spec, len(rows))
        return tuple(bounds)

    def __str__(self) -> str:
        descriptions = (
            f"axis {split.axis} over {axis.name!r}" for axis, split in self.splits
        )
        return ", ".join(descriptions)


def mesh_axes(
    mesh: DeviceMesh,
    batch: str | None,
    shards: Mapping[str, int],
    reduction: str = "tree",
) -> list[MeshAxis]:
    """Return the mesh axes with more than one part, with the batch axis last.

    Args:
        mesh: a mesh with one device for each rank, in rank order.
        batch: the name of the batch axis, or None.
        shards: by mesh axis, the number of parts; by default the number of devices.
        reduction: "tree" or "nccl", see `MeshAxis`.
    """
    world = comm.world()
    coordinates = np.unravel_index(world.rank, tuple(mesh.shape))
    names = [name for name in mesh.axis_names if name != batch]
    axes = []
    for name in [*names, *([] if batch is None else [batch])]:
        axis_index = list(mesh.axis_names).index(name)
        size, coordinate = int(mesh.shape[axis_index]), int(coordinates[axis_index])
        leaves = shards.get(name, size)
        if leaves == 1 and name != batch:
            continue
        group = world
        if size < world.size:
            other_coordinates = [
                int(p) for i, p in enumerate(coordinates) if i != axis_index
            ]
            extents = [int(n) for i, n in enumerate(mesh.shape) if i != axis_index]
            color = int(np.ravel_multi_index(other_coordinates, extents))
            group = world.split(color, coordinate)
        is_even = name != batch
        axes.append(MeshAxis(name, group, leaves, is_even, reduction=reduction))
    if batch is None:
        axes.append(MeshAxis("batch", single(), 1, even=False))
    return axes


def placement_of_layout(
    variable: Any, layout: TensorLayout, axes: Sequence[MeshAxis]
) -> ShardPlacement | None:
    """Return the placement of a variable by its layout, or None if replicated."""
    if len(layout.axes) > len(variable.shape):
        raise ArgumentError(
            f"variable {variable.path!r}: its layout {layout} has {len(layout.axes)} "
            f"axes, its shape {tuple(variable.shape)} has {len(variable.shape)}"
        )
    splits, shape = [], list(variable.shape)
    for axis in axes:
        is_whole = axis.group.size == 1 and axis.leaves == 1
        if is_whole or axis.name not in layout.axes:
            continue
        axis_index = layout.axes.index(axis.name)
        if axis.even and shape[axis_index] % axis.leaves:
            raise ArgumentError(
                f"variable {variable.path!r}: axis {axis_index} of shape "
                f"{tuple(variable.shape)} is not divisible by the {axis.leaves} "
                f"shards of {axis.name!r} in its layout {layout}"
            )
        if shape[axis_index] < axis.leaves:
            continue  # some ranks would have an empty shard
        splits.append((axis, Split(axis_index)))
        shape[axis_index] = len(axis.rows(shape[axis_index]))
    return ShardPlacement(splits, variable.spec) if splits else None
