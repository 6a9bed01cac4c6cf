"""4-bit integers: one scale per group of rows, two numbers per byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError, ShapeError, unknown_choice
from toolkit.ops.symbolic import operation
from toolkit.settings import epsilon as default_epsilon
from toolkit.type_aliases import TensorLike

# The most elements that are quantized at once in host memory.
_MAX_ELEMENTS = 1 << 20


@operation
def abs_max_quantize_grouped_with_zero_point(
    inputs: Any,
    block_size: int,
    value_range: tuple[int, int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float | None = None,
    to_numpy: bool = False,
) -> tuple[Any, Any, Any]:
    """Return round(inputs / scale) + zero_point, per column of each group of rows.

    Args:
        inputs: (rows, columns), floating.
        block_size: the number of rows in a group; the last group can be smaller.
        value_range: the smallest and the largest value of the result.
        dtype: the dtype of the result.
        epsilon: a summand of the range; `config.epsilon()` if None.
        to_numpy: whether to compute in host memory.

    Returns:
        (quantized, scale, zero_point): (rows, columns), (groups, columns) in the dtype
        of inputs, (groups, columns) int8. `(quantized - zero_point) * scale`
        approximates the inputs.

    Example:
        >>> from toolkit import ops, quantizers
        >>> x = ops.array([[0.0], [15.0], [28.0], [60.0]])
        >>> y, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(x, 2)
        >>> y.tolist(), zero.tolist()
        ([[-8], [7], [-1], [7]], [[-8], [-8]])
    """
    x: Any = convert(inputs)
    if x.ndim != 2:
        raise ShapeError(
            "abs_max_quantize_grouped_with_zero_point: inputs must be (rows, columns); "
            f"received shape {tuple(x.shape)}"
        )
    if block_size < 1:
        raise ArgumentError(
            "abs_max_quantize_grouped_with_zero_point: block_size must be at least 1; "
            f"received {block_size}"
        )
    if to_numpy and x.size > _MAX_ELEMENTS and x.shape[1] > 1:
        # The columns are independent: temporary arrays of some of them are small.
        pieces = -(-x.size // _MAX_ELEMENTS)
        results = [
            abs_max_quantize_grouped_with_zero_point(
                piece, block_size, value_range, dtype, epsilon, to_numpy
            )
            for piece in ops.array_split(x, min(pieces, x.shape[1]), axis=1)
        ]
        y, scales, zeros = (
            ops.concatenate(ys, axis=1) for ys in zip(*results, strict=True)
        )
        return y, scales, zeros
    xp: Any = np if to_numpy else ops
    name = x.dtype
    x = ops.convert_to_numpy(x).astype("float32") if to_numpy else x
    rows, columns = x.shape
    groups = -(-rows // block_size)
    padded = xp.pad(x, ((0, groups * block_size - rows), (0, 0)))
    grouped = xp.reshape(padded, (groups, block_size, columns))
    low, high = value_range
    margin = default_epsilon() if epsilon is None else epsilon
    # Each range includes 0, so that its zero point is one of the integers.
    minima = xp.minimum(xp.min(grouped, axis=1, keepdims=True), 0)
    maxima = xp.maximum(xp.max(grouped, axis=1, keepdims=True), 0)
    is_constant = xp.equal(minima, maxima)
    minima, maxima = (
        xp.where(is_constant, minima - 1, minima),
        xp.where(is_constant, maxima + 1, maxima),
    )
    scale = xp.divide(xp.add(xp.subtract(maxima, minima), margin), high - low)
    zero = xp.clip(xp.add(xp.round(xp.divide(-minima, scale)), low), low, high)
    y = xp.clip(xp.add(xp.round(xp.divide(grouped, scale)), zero), low, high)
    y = xp.reshape(y, (groups * block_size, columns))[:rows]
    group_shape = (groups, columns)
    return (
        ops.cast(y, dtype),
        ops.cast(xp.reshape(scale, group_shape), name),
        ops.cast(xp.reshape(zero, group_shape), "int8"),
    )


_DTYPES = ("int8", "uint8")


def pack_int4(arr: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, Any, int]:
    """Pack two 4-bit integers into each byte, the first in the lower half.

    Args:
        arr: numbers from -8 to 7, or 0 to 15 for "uint8", in `dtype`.
        axis: the axis along which neighbours share a byte; an odd end is padded with 0.
        dtype: "int8" or "uint8".

    Returns:
        (packed, its shape, the original extent of `axis`).

    Example:
        >>> import numpy as np
        >>> from toolkit import quantizers
        >>> packed, shape, extent = quantizers.pack_int4(np.array([1, -1, 2], "int8"))
        >>> packed.tolist(), shape, extent
        ([-15, 2], (2,), 3)
    """
    x = _check_dtype("pack_int4", arr, dtype)
    if x.dtype != dtype:
        raise ArgumentTypeError(
            f"pack_int4: Expected {dtype} tensor for packing; received {x.dtype}"
        )
    x = ops.moveaxis(x, axis, 0)
    extent = int(x.shape[0])
    x = ops.pad(x, ((0, extent % 2), *((0, 0) for _ in x.shape[1:])))
    low, high = (ops.bitwise_and(x[i::2], ops.cast(15, dtype)) for i in (0, 1))
    packed = ops.bitwise_or(low, ops.left_shift(high, ops.cast(4, dtype)))
    packed = ops.moveaxis(packed, 0, axis)
    return packed, tuple(packed.shape), extent


@operation
def unpack_int4(
    packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8"
) -> Tensor:
    """Unpack the integers that `pack_int4` packed.

    Args:
        packed: int8 or uint8.
        orig_len: the original extent of `axis`.
        axis: the axis along which numbers share a byte.
        dtype: "int8" for numbers from -8 to 7, "uint8" for those from 0 to 15.

    Returns:
        An array with the original extent of `axis`.

    Example:
        >>> import numpy as np
        >>> from toolkit import quantizers
        >>> quantizers.unpack_int4(np.array([-15, 2], "int8"), 3).tolist()
        [1, -1, 2]
    """
    x = _check_dtype("unpack_int4", packed, dtype)
    if x.dtype not in _DTYPES:
        raise ArgumentTypeError(
            f"unpack_int4: Expected int8 or uint8 tensor; received {x.dtype}"
        )
    x = ops.moveaxis(x, axis, 0)
    four, mask = (ops.cast(n, x.dtype) for n in (4, 15))
    low = ops.bitwise_and(x, mask)
    high = ops.bitwise_and(ops.right_shift(x, four), mask)
    nibbles = ops.cast(ops.stack([low, high], axis=1), dtype)
    if dtype == "int8":
        eight = ops.cast(8, dtype)
        nibbles = ops.subtract(ops.bitwise_xor(nibbles, eight), eight)
    flat = ops.reshape(nibbles, (2 * x.shape[0], *x.shape[1:]))
    return ops.moveaxis(flat[:orig_len], 0, axis)


def _check_dtype(function: str, x: TensorLike, dtype: str) -> Tensor:
    if dtype not in _DTYPES:
        raise unknown_choice(
            f"{function}: Expected dtype to be 'int8' or 'uint8'", dtype, _DTYPES
        )
    return convert(x)
