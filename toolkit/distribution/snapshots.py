"""Write plan of a process for a model's state, and copies of the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from toolkit.comm.group import as_bytes
from toolkit.core.placement import local_shard
from toolkit.distribution import boxes
from toolkit.distribution.boxes import Box, ShardedValue
from toolkit.distribution.shard_files import StoredBox
from toolkit.dtypes import numpy_dtype

_ALIGNMENT = 64  # bytes
# Maximum size of a box in bytes; a read of any element verifies its full box.
_MAX_BOX_SIZE = 4 << 20


def variables_of(model: Any, optimizer: Any = None) -> tuple[dict[str, Any], Any]:
    """Return the variables of a training run by name, and its optimizer or None.

    The names are independent of the names of the layers.

    Args:
        model: a built model.
        optimizer: the optimizer, by default the one of `compile`.
    """
    if optimizer is None:
        optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    groups = {
        "weights": model.trainable_variables,
        "others": model.non_trainable_variables,
        "optimizer": [] if optimizer is None else optimizer.variables,
        "metrics": model.metrics_variables,
    }
    by_name: dict[str, Any] = {}
    visited: set[int] = set()
    for group, variables in groups.items():
        for index, variable in enumerate(variables):
            if id(variable) not in visited:
                by_name[f"{group}/{index}"] = variable
                visited.add(id(variable))
    return by_name, optimizer


def local_box(variable: Any) -> Box:
    """Return the box of a variable that this process holds."""
    placement = variable.placement
    if placement is None:
        return boxes.full_box(variable.spec.shape)
    bounds: Box = placement.local_bounds()
    return bounds


@dataclass
class WritePlan:
    """Write plan of a process.

    Attributes:
        specs: name -> dtype and shape of each variable.
        local_boxes: name -> the box that this process holds.
        byte_ranges: name -> the range of its bytes to write, and the file offset.
        stored_boxes: the boxes in the file.
        nbytes: the size of the file.
    """

    specs: dict[str, Any]
    local_boxes: dict[str, Box]
    byte_ranges: dict[str, tuple[range, int]] = field(default_factory=dict)
    stored_boxes: list[StoredBox] = field(default_factory=list)
    nbytes: int = 0

    @classmethod
    def of(cls, variables: dict[str, Any]) -> WritePlan:
        """Return a plan without writes."""
        specs = {
            name: {"dtype": v.spec.dtype, "shape": list(v.spec.shape)}
            for name, v in variables.items()
        }
        return cls(specs, {name: local_box(v) for name, v in variables.items()})

    def has_same_boxes(self, other: WritePlan) -> bool:
        """Return whether another plan has the same variables and boxes."""
        return (self.specs, self.local_boxes) == (other.specs, other.local_boxes)

    def select_writes(self, boxes_by_rank: list[dict[str, Any]], rank: int) -> None:
        """Select the data that a rank writes.

        Args:
            boxes_by_rank: the box of each variable on each rank.
            rank: the rank of this process.
        """
        values = [
            ShardedValue(
                numpy_dtype(spec["dtype"]).itemsize,
                [
                    tuple((a, b) for a, b in rank_boxes[name])
                    for rank_boxes in boxes_by_rank
                ],
            )
            for name, spec in self.specs.items()
        ]
        element_ranges = boxes.assign_writes(values, rank)
        for name, (size, _), elements in zip(
            self.local_boxes, values, element_ranges, strict=True
        ):
            if not elements:
                continue
            origin, offset = (
                self.local_boxes[name],
                self.nbytes + -self.nbytes % _ALIGNMENT,
            )
            byte_range = range(elements.start * size, elements.stop * size)
            self.byte_ranges[name] = byte_range, offset
            shape = boxes.extents(origin)
            for box in boxes.split_range_into_boxes(
                shape, elements.start, elements.stop, _MAX_BOX_SIZE // size
            ):
                length = prod(boxes.extents(box)) * size
                stored_box = StoredBox(
                    name, boxes.translate(box, origin), offset, length
                )
                self.stored_boxes.append(stored_box)
                offset += length
            self.nbytes = offset

    def copy(self, variables: dict[str, Any], memory: Any) -> None:
        """Copy the data to its offset in the file content."""
        end = 0
        for name, (byte_range, offset) in self.byte_ranges.items():
            variable = variables[name]
            memory[end:offset] = 0
            end = offset + len(byte_range)
            with variable.lock:
                memory[offset:end] = as_bytes(local_shard(variable))[
                    byte_range.start : byte_range.stop
                ]
