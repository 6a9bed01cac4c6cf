"""Products with 4-bit weights: the primitive `matmul_int4`."""

from __future__ import annotations

import math
from typing import Any

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.bits import bitwise_and, bitwise_xor, right_shift
from toolkit.ops.contract import matmul
from toolkit.ops.index import take
from toolkit.ops.shape import reshape, slice_axis, stack
from toolkit.type_aliases import TensorLike


def _body(
    x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor, block: Tensor
) -> Tensor:
    rows, columns = packed.shape[0], scale.shape[-1]
    four, mask, eight = (convert(n, packed.dtype) for n in (4, 15, 8))
    low, high = packed, right_shift(packed, four)
    halves = bitwise_and(stack([low, high], axis=-1), mask)
    if packed.dtype == "int8":
        halves = bitwise_xor(halves, eight) - eight
    flat = reshape(halves, (rows, 2 * packed.shape[1]))
    unpacked = convert(slice_axis(flat, 1, 0, columns), scale.dtype)
    numbers = convert(block, "int32")
    shifted = unpacked - convert(take(zero, numbers, axis=0), scale.dtype)
    return matmul(x, shifted * take(scale, numbers, axis=0))


# A backend may multiply while it unpacks the numbers. With few rows, the time is the
# time to read the weights, which have 1/8 of the bytes.
matmul_int4_p: Primitive = decomposable("matmul_int4", _body)


def matmul_int4(
    x: TensorLike, packed: Any, scale: TensorLike, zero: Any, block: Any
) -> Tensor:
    """Compute `x @ ((numbers - zero[block]) * scale[block])`.

    Args:
        x: (..., rows).
        packed: (rows, ceil(columns / 2)): two numbers in each byte, the first in its
            lower half; from -8 to 7 if it is int8, from 0 to 15 if it is uint8.
        scale: (blocks, columns), of the dtype of x.
        zero: (blocks, columns), of the dtype of packed.
        block: (rows,), the block of each row, as float32.

    Returns:
        (..., columns).
    """
    x, *weight = (convert(operand) for operand in (x, packed, scale, zero, block))
    matrix = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    y = bind(matmul_int4_p, matrix, *weight)
    return reshape(y, (*x.shape[:-1], y.shape[-1]))
