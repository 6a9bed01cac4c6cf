"""Data parallel training: each rank has the model and a shard of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from toolkit import comm
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.core.variable import Variable
from toolkit.distribution.devices import current_kind, list_devices
from toolkit.distribution.layouts import DeviceMesh, TensorLayout
from toolkit.distribution.placements import ShardPlacement, placement_of_layout
from toolkit.distribution.shard_copies import ShardCopies
from toolkit.distribution.strategies import Distribution
from toolkit.errors import ArgumentError, unknown_choice

# Variables with fewer elements are not split.
MIN_SPLIT_SIZE = 1024


class DataParallel(Distribution):
    """Data parallelism: each device has the model and a shard of each batch.

    Args:
        device_mesh: a one-dimensional mesh of the devices.
        devices: the device names instead. If both are None, all devices of the job of
            the type of the current device: CPUs, or GPUs with TOOLKIT_DEVICE=gpu.
        auto_shard_dataset: see `Distribution`.
        shards: the number of parts of each batch; None means the number of devices. The
            sum over a batch adds the sums of its parts along a tree. Jobs with the same
            `shards` thus have bitwise equal results on any number of processes,
            including one. With gradient accumulation each process stores a sum of
            gradients for each of its parts.
        shard_optimizer: whether each process keeps and updates only a shard of the
            optimizer state (ZeRO stage 1, arXiv:1910.02054).
        reduction: "tree" adds the parts of a batch along a tree. "nccl" adds the sums
            of the processes by ncclAllReduce and ncclReduceScatter, on GPUs only. The
            order of its additions depends on the number of processes and on NCCL. So
            jobs of different sizes are then not bitwise equal.

    Raises:
        ArgumentError: the arguments do not match, or reduction="nccl" on CPUs.

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
        shards: int | None = None,
        shard_optimizer: bool = False,
        reduction: Literal["tree", "nccl"] = "tree",
    ) -> None:
        if device_mesh is not None and devices is not None:
            raise ArgumentError(
                "DataParallel: expected device_mesh or devices; received both"
            )
        if device_mesh is None:
            devices = list_devices(current_kind()) if devices is None else devices
            device_mesh = DeviceMesh((len(devices),), ["batch"], devices)
        names = getattr(device_mesh, "axis_names", [None])
        super().__init__(device_mesh, names[0], auto_shard_dataset)
        if len(names) > 1:
            warn(
                f"DataParallel: expected a mesh of one axis; of {device_mesh} the "
                "first is used"
            )
        if reduction not in ("tree", "nccl"):
            raise unknown_choice("DataParallel: reduction", reduction, ("tree", "nccl"))
        names_of_devices = list(map(str, self.device_mesh.devices.ravel()))
        if reduction == "nccl" and not all(
            name.lower().startswith("gpu") for name in names_of_devices
        ):
            raise ArgumentError(
                "DataParallel: reduction='nccl' needs GPUs; received the devices "
                f"{', '.join(names_of_devices)}. Set TOOLKIT_DEVICE=gpu, or use "
                "reduction='tree'"
            )
        self.reduction = reduction
        self.shard_optimizer = shard_optimizer
        self.has_full_state = not shard_optimizer
        self._devices = self.device_mesh.devices.ravel().tolist()
        has_copies = shard_optimizer and comm.is_elastic()
        self._copies = ShardCopies(self._slot_placement) if has_copies else None
        count = int(self.device_mesh.devices.size)
        self.shards = count if shards is None else shards
        if not is_int(self.shards) or self.shards < count:
            raise ArgumentError(
                f"DataParallel: expected shards of at least {count}, one for each "
                f"device; received {shards!r}"
            )

    @property
    def num_model_replicas(self) -> int:
        """Return the number of model replicas: one for each device."""
        return int(self.device_mesh.devices.size)

    def placement_of(
        self, variable: Variable, like: Variable | None = None
    ) -> ShardPlacement | None:
        """Return None (replicated), except for a slot of a sharded optimizer.

        Args:
            variable: the new variable.
            like: the variable of which it is a slot, if any.
        """
        if not self.shard_optimizer or like is None or like.size < MIN_SPLIT_SIZE:
            return None
        placement = self._slot_placement(variable)
        if placement is not None and self._copies is not None:
            self._copies.add(variable)
        return placement

    def num_accumulated_leaves(self, variable: Variable) -> int:
        """Return the number of sums of a gradient accumulator.

        With shard_optimizer=True it is a slot, of which each process has a shard.

        Args:
            variable: the variable of the gradient.
        """
        return 1 if self.shard_optimizer else super().num_accumulated_leaves(variable)

    def _slot_placement(self, variable: Variable) -> ShardPlacement | None:
        """Return the placement of a slot on this rank, or None if replicated."""
        names = [self.batch_dim_name, *[None] * (variable.ndim - 1)]
        return placement_of_layout(
            variable, TensorLayout(names, self.device_mesh), self.axes
        )

    def resize(self, is_committed: bool) -> None:
        """Distribute batches over the current ranks, in the same number of parts.

        Args:
            is_committed: whether the results of the interrupted step are valid.
        """
        if self._copies is None:
            self._rebuild_mesh()
        else:
            self._copies.redistribute(self._rebuild_mesh, is_committed)

    def _rebuild_mesh(self) -> comm.Group:
        """Create the mesh of the current ranks; return the previous group."""
        has_axes = "axes" in self.__dict__
        previous_group = self.axes[-1].group if has_axes else comm.world()
        names, axis = self._devices[: comm.world().size], str(self.batch_dim_name)
        self.device_mesh = DeviceMesh((len(names),), [axis], names)
        self.__dict__.pop("axes", None)
        assert self.axes  # all ranks create the groups now
        return previous_group

    def _commit_function(
        self, written: Sequence[Variable]
    ) -> Callable[[list[Any]], None] | None:
        """See `Distribution._commit_function`; sharded slots have copies."""
        copies = self._copies
        if copies is None or not any(v.placement for v in written):
            return None
        return lambda arrays: copies.commit(written, arrays)

    def begin_run(self) -> None:
        """Send copies of the values assigned since the last step."""
        if self._copies is not None:
            self._copies.begin()
