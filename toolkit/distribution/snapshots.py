"""Write plan of a process for a model's state, and copies of the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from toolkit.comm.group import as_bytes
from toolkit.core.placement import local_shard
from toolkit.distribution import boxes
from toolkit.distribution.boxes import Box, Item
from toolkit.distribution.shard_files import Piece
from toolkit.dtypes import numpy_dtype
from toolkit.optimizers.building import build_optimizer

_ALIGNMENT = 64  # bytes
# Maximum size of a box in bytes; a read of any element verifies its whole box.
_MAX_BOX_SIZE = 4 << 20


def variables_of(model: Any) -> dict[str, Any]:
    """Return the variables of a model by names that are independent of layer names."""
    build_optimizer(model)
    optimizer = model.optimizer
    groups = {
        "weights": model.trainable_variables,
        "others": model.non_trainable_variables,
        "optimizer": [] if optimizer is None else optimizer.variables,
        "metrics": model.metrics_variables,
    }
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for group, variables in groups.items():
        for number, variable in enumerate(variables):
            if id(variable) not in seen:
                found[f"{group}/{number}"] = variable
                seen.add(id(variable))
    return found


def held_box(variable: Any) -> Box:
    """Return the box of a variable that this process holds."""
    placement = variable.placement
    if placement is None:
        return boxes.full_box(variable.spec.shape)
    found: Box = placement.local_bounds()
    return found


@dataclass
class Plan:
    """Write plan of a process.

    Attributes:
        described: name -> dtype and shape of each variable.
        held: name -> the box that this process holds.
        ranges: name -> the range of its bytes to write, and the offset in the file.
        pieces: the boxes in the file.
        nbytes: the size of the file.
    """

    described: dict[str, Any]
    held: dict[str, Box]
    ranges: dict[str, tuple[range, int]] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    nbytes: int = 0

    @classmethod
    def of(cls, variables: dict[str, Any]) -> Plan:
        """Return a plan without writes."""
        described = {
            name: {"dtype": v.spec.dtype, "shape": list(v.spec.shape)}
            for name, v in variables.items()
        }
        return cls(described, {name: held_box(v) for name, v in variables.items()})

    def is_like(self, other: Plan) -> bool:
        """Return whether another plan has the same variables and boxes."""
        return (self.described, self.held) == (other.described, other.held)

    def share(self, places: list[dict[str, Any]], rank: int) -> None:
        """Select the data that a rank writes.

        Args:
            places: the box of each variable on each rank.
            rank: the rank of this process.
        """
        items = [
            Item(
                numpy_dtype(about["dtype"]).itemsize,
                [tuple((a, b) for a, b in of_rank[name]) for of_rank in places],
            )
            for name, about in self.described.items()
        ]
        shares = boxes.assign_writes(items, rank)
        for name, (size, _), mine in zip(self.held, items, shares, strict=True):
            if not mine:
                continue
            origin, place = self.held[name], self.nbytes + -self.nbytes % _ALIGNMENT
            raw = range(mine.start * size, mine.stop * size)
            self.ranges[name] = raw, place
            shape = boxes.extents(origin)
            for box in boxes.split_range_into_boxes(
                shape, mine.start, mine.stop, _MAX_BOX_SIZE // size
            ):
                length = prod(boxes.extents(box)) * size
                piece = Piece(name, boxes.translate(box, origin), place, length)
                self.pieces.append(piece)
                place += length
            self.nbytes = place

    def copy(self, variables: dict[str, Any], memory: Any) -> None:
        """Copy the data to its offset in the file content."""
        end = 0
        for name, (raw, place) in self.ranges.items():
            variable = variables[name]
            memory[end:place] = 0
            end = place + len(raw)
            with variable.lock:
                memory[place:end] = as_bytes(local_shard(variable))[
                    raw.start : raw.stop
                ]
