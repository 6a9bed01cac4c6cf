"""Window functions of `tf.nn` on images: maxima with indices, dilation, erosion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import dtype_name, extents
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.type_aliases import Array, DTypeLike, IntOrInts, TensorLike

_PADDINGS = ("SAME", "VALID")


def _pair(sizes: int | Sequence[int], function: str, argument: str) -> tuple[int, int]:
    """Return the sizes of the two spatial axes of NHWC."""
    values = extents(sizes)
    if len(values) == 1:
        return values[0], values[0]
    if len(values) == 2:
        return values[0], values[1]
    if len(values) == 4 and values[0] == values[3] == 1:
        return values[1], values[2]
    raise ArgumentError(
        f"{function}: {argument}: expected 1, 2 or 4 sizes, 1 for batch and channels; "
        f"received {values}"
    )


def _window_positions(
    extent: int, size: int, step: int, rate: int, padding: str
) -> Array:
    """Return the positions of windows along an axis, (windows, size)."""
    reach = (size - 1) * rate + 1
    if padding == "SAME":
        count = -(-extent // step)
        before = max((count - 1) * step + reach - extent, 0) // 2
    else:
        count, before = max((extent - reach) // step + 1, 0), 0
    return np.arange(count)[:, None] * step + np.arange(size) * rate - before


class _Windows:
    """The windows of a batch of images, NHWC."""

    def __init__(
        self,
        function: str,
        input: Any,
        sizes: IntOrInts,
        strides: IntOrInts,
        padding: str,
        dilations: IntOrInts | None = None,
    ) -> None:
        self.x: Tensor = convert(input)
        if self.x.ndim != 4:
            raise ShapeError(
                f"{function}: expected (batch, height, width, channels); received "
                f"{tuple(self.x.shape)}"
            )
        if padding not in _PADDINGS:
            raise unknown_choice(f"{function}: padding", padding, _PADDINGS)
        high, wide = _pair(sizes, function, "ksize")
        steps = _pair(strides, function, "strides")
        rate = _pair(1 if dilations is None else dilations, function, "dilations")
        _, height, width, _ = self.x.shape
        self.rows: Array = _window_positions(height, high, steps[0], rate[0], padding)
        self.columns: Array = _window_positions(width, wide, steps[1], rate[1], padding)

    def values(self) -> Tensor:
        """Return (batch, rows, columns, positions of a window, channels).

        Positions outside of an image have the lowest number.
        """
        _, height, width, channels = self.x.shape
        rows, columns = self.rows, self.columns
        x = ops.take(self.x, np.clip(rows, 0, height - 1), 1)
        x = ops.take(x, np.clip(columns, 0, width - 1), 3)
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        is_inside = ((rows >= 0) & (rows < height))[:, None, :, None]
        is_inside = is_inside & ((columns >= 0) & (columns < width))[None, :, None, :]
        lowest = -np.inf
        if dtypes.is_integer(x.dtype):
            lowest = np.iinfo(x.dtype).min
        x = ops.where(is_inside[..., None], x, ops.full_like(x, lowest))
        return ops.reshape(x, (*x.shape[:3], -1, channels))

    def numbers(self) -> Array:
        """Return the index of each position in its image: row * width + column."""
        rows, columns = self.rows[:, None, :, None], self.columns[None, :, None, :]
        numbers = rows * self.x.shape[2] + columns
        return numbers.reshape(len(self.rows), len(self.columns), -1)


def max_pool_with_argmax(
    input: TensorLike,
    ksize: int | Sequence[int],
    strides: IntOrInts,
    padding: str,
    data_format: str = "NHWC",
    output_dtype: DTypeLike = "int64",
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the maxima of windows, and their indices.

    Args:
        input: (batch, height, width, channels).
        ksize, strides: one number, two, or four with 1 for batch and channels.
        padding: SAME or VALID.
        data_format: only NHWC.
        output_dtype: of the indices.
        include_batch_in_index: whether an index refers to the whole batch.

    Returns:
        Both (batch, rows, columns, channels). An index is
        (row * width + column) * channels + channel; for equal values it is the first.
    """
    if data_format != "NHWC":
        raise unknown_choice(
            "max_pool_with_argmax: data_format", data_format, ("NHWC",)
        )
    windows = _Windows("max_pool_with_argmax", input, ksize, strides, padding)
    values = windows.values()
    best = ops.argmax(values, 3, True)
    largest = ops.squeeze(ops.take_along_axis(values, best, 3), 3)
    batch, height, width, channels = windows.x.shape
    numbers = convert(windows.numbers()[None, ..., None], "int64")
    numbers = ops.broadcast_to(numbers, values.shape)
    indices = ops.squeeze(ops.take_along_axis(numbers, best, 3), 3) * channels
    indices = indices + ops.arange(channels, dtype="int64")
    if include_batch_in_index:
        first = np.arange(batch).reshape(-1, 1, 1, 1) * (height * width * channels)
        indices = indices + convert(first, "int64")
    return largest, ops.cast(indices, dtype_name(output_dtype))


def dilation2d(
    input: TensorLike,
    filters: TensorLike,
    strides: IntOrInts,
    padding: str,
    data_format: str,
    dilations: int | Sequence[int],
    name: str | None = None,
) -> Tensor:
    """Return the maximum of window plus filter, for each channel.

    Args:
        input: (batch, height, width, channels).
        filters: (height, width, channels).
        strides, dilations: four numbers, 1 for batch and channels.
        padding: SAME or VALID.
        data_format: only NHWC.
    """
    return _dilation(
        "dilation2d", input, filters, strides, padding, data_format, dilations
    )


def _dilation(
    function: str,
    input: TensorLike,
    filters: TensorLike,
    strides: IntOrInts,
    padding: str,
    data_format: str,
    dilations: int | Sequence[int],
) -> Tensor:
    if data_format != "NHWC":
        raise unknown_choice(f"{function}: data_format", data_format, ("NHWC",))
    kernel = convert(filters)
    if kernel.ndim != 3 or kernel.shape[-1] != convert(input).shape[-1]:
        raise ShapeError(
            f"{function}: expected filters (height, width, "
            f"{convert(input).shape[-1]}); received {tuple(kernel.shape)}"
        )
    sizes = kernel.shape[:2]
    windows = _Windows(function, input, sizes, strides, padding, dilations)
    sums = windows.values() + ops.reshape(kernel, (-1, kernel.shape[-1]))
    return ops.max(sums, 3)


def erosion2d(
    value: TensorLike,
    filters: TensorLike,
    strides: IntOrInts,
    padding: str,
    data_format: str,
    dilations: int | Sequence[int],
    name: str | None = None,
) -> Tensor:
    """Return the minimum of window minus filter, for each channel.

    Args:
        value: (batch, height, width, channels).
        filters, strides, padding, data_format, dilations: as in `dilation2d`.
    """
    flipped = ops.flip(convert(filters), (0, 1))
    negative = ops.negative(value)
    options = strides, padding, data_format, dilations
    return ops.negative(_dilation("erosion2d", negative, flipped, *options))


make_operations(__name__)
