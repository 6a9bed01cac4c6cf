"""Affine quantization: unsigned integers with a scale and a zero point per group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any


class Rounding(NamedTuple):
    """Rounding rule of a group of matrix rows.

    Attributes:
        bits: bits of an integer.
        symmetric: whether 0 is in the middle of the range.
        per_channel: whether each column has a separate range.
    """

    bits: int
    symmetric: bool = False
    per_channel: bool = True

    def compute_scale(self, values: Array) -> tuple[Array, Array]:
        """Return scale and zero point, each (columns,), of a group (rows, columns)."""
        axis = 0 if self.per_channel else None
        # Each range includes 0, so that its zero point is one of the integers.
        low = np.minimum(np.min(values, axis), 0)
        high = np.maximum(np.max(values, axis), 0)
        if self.symmetric:
            high = np.maximum(high, -low)
            low = -high
        is_constant = low == high
        low, high = low - is_constant, high + is_constant
        scale = ((high - low) / self.max_integer).astype("float32")
        middle = (self.max_integer + 1) // 2
        zero = np.round(-low / scale) if not self.symmetric else middle
        columns = values.shape[1]
        return np.broadcast_to(scale, columns), np.broadcast_to(zero, columns)

    @property
    def max_integer(self) -> int:
        """Return the largest integer."""
        return 2**self.bits - 1

    def quantize(self, values: Array, scale: Array, zero: Array) -> Array:
        """Return the integers nearest to the values."""
        return np.clip(np.round(values / scale + zero), 0, self.max_integer)


class QuantizedMatrix(NamedTuple):
    """Quantized matrix, approximately `(numbers - zero[block]) * scale[block]`.

    Attributes:
        numbers: (rows, columns) uint8.
        scale: (groups, columns) float32.
        zero: (groups, columns) uint8.
        block: (rows,), the group of each row.
        row_scales: (rows,), the divisors of rows after dequantization, or None.
    """

    numbers: Array
    scale: Array
    zero: Array
    block: Array
    row_scales: Array | None = None

    def dequantize(self) -> Array:
        """Return the dequantized matrix."""
        zero = self.zero.astype("float32")
        values = (self.numbers - zero[self.block]) * self.scale[self.block]
        return values if self.row_scales is None else values / self.row_scales[:, None]


def group_indices(rows: int, group_size: int) -> Array:
    """Return the group of each row; group_size -1 means one group."""
    return np.arange(rows) // (group_size if group_size > 0 else max(rows, 1))


def round_to_nearest(
    values: Array, rounding: Rounding, group_size: int
) -> QuantizedMatrix:
    """Quantize a matrix, (rows, columns), in groups of rows, by rounding."""
    block = group_indices(len(values), group_size)
    groups = [values[block == i] for i in range(int(block[-1]) + 1)]
    parameters = [rounding.compute_scale(group) for group in groups]
    scale, zero = (np.stack(column) for column in zip(*parameters, strict=True))
    numbers = rounding.quantize(values, scale[block], zero[block])
    return QuantizedMatrix(numbers.astype("uint8"), scale, zero.astype("uint8"), block)
