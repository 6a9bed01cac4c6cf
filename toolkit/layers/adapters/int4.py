"""Weight of 4-bit integers, two per byte, in blocks with one scale each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.whole import Extents, IntegerWeight, ScaleLayout
from toolkit.ops.index import lookup
from toolkit.ops.int4 import matmul_int4
from toolkit.quantizers.grouped import (
    abs_max_quantize_grouped_with_zero_point,
    pack_int4,
    unpack_int4,
)
from toolkit.quantizers.quantizer import AbsMaxQuantizer
from toolkit.type_aliases import TensorLike

_RANGE = (-8, 7)


class Int4Weight(IntegerWeight):
    """Integers from -8 to 7 that replace a weight matrix.

    With blocks the weight is `(number - zero) * scale`; without blocks, `number /
    scale`. The Variables are the ones of Keras: numbers of neighbouring columns (or
    rows, depending on the layout) share a byte. Scales and zero points are stored per
    column of a block, and `g_idx` contains the block of each row.
    """

    mode: str = "int4"

    def __init__(
        self, layer: Any, layout: ScaleLayout, config: Any, name: str | None = None
    ) -> None:
        super().__init__(layer, layout, config, name)
        size = config.block_size
        self.block_size: int | None = None if size == -1 else size
        names = f"{self.name}_scale", f"{self.name}_zero", "g_idx"
        self.scales: tuple[str, ...] = names if self.block_size else names[:1]
        self._shape: Extents = ()

    @property
    def shape(self) -> Any:
        return self._shape

    def create(self, shape: Any) -> None:
        self._shape = tuple(shape)
        rows, columns = extents = self.layout.matrix(shape)
        axis, packed = self.layout.blocks, list(extents)
        packed[self.layout.packed] = -(-packed[self.layout.packed] // 2)
        self._create(self.name, tuple(packed), "zeros", "int8")
        if not self.block_size:
            self._create(self.scales[0], (extents[1 - axis],), "ones")
            return
        blocks = -(-extents[axis] // self.block_size)
        of_blocks = (blocks, columns) if axis == 0 else (rows, blocks)
        scale, zero, numbers = self.scales
        self._create(scale, of_blocks, "ones")
        self._create(zero, of_blocks, "zeros", "int8")
        # created for another weight in the same blocks
        if hasattr(self.layer, numbers):
            return
        block_of = np.arange(extents[axis]) // self.block_size
        g_idx = self._create(numbers, block_of.shape, "zeros", "float32")
        g_idx.assign(block_of)

    def quantized(self, value: Any) -> dict[str, Any]:
        matrix = ops.reshape(value, self.layout.matrix(value.shape))
        axis = self.layout.blocks
        if self.block_size:
            lines = matrix if axis == 0 else ops.transpose(matrix)
            expanded = abs_max_quantize_grouped_with_zero_point(
                lines, self.block_size, to_numpy=True
            )
            arrays = expanded if axis == 0 else map(ops.transpose, expanded)
            integers, *scales = arrays
        else:
            quantizer = self.config.weight_quantizer or AbsMaxQuantizer(axis, _RANGE)
            integers, scale = quantizer(matrix, to_numpy=True)
            if scale.shape[axis] != 1 or scale.ndim != 2:
                raise ArgumentError(
                    f"{self.layer.name}: the weight_quantizer must share scales along "
                    f"axis={axis}; received scales of shape {tuple(scale.shape)}"
                )
            scales = [ops.squeeze(scale, axis)]
        packed, _, _ = pack_int4(integers, axis=self.layout.packed)
        values = dict(zip(self.scales, scales, strict=False))
        return {f"_{self.name}": packed, **values}

    def value(self) -> Any:
        axis, packed = self.layout.blocks, self.layout.packed
        count = self.layout.matrix(self.shape)[packed]
        integers = unpack_int4(self.variable, count, axis=packed)
        if not self.block_size:
            scale = ops.expand_dims(self._stored(0), axis)
            return ops.reshape(ops.divide(integers, scale), self.shape)
        scale, zero = (self._expand_blocks(self._stored(i), axis) for i in (0, 1))
        return ops.reshape(_dequantized(integers, scale, zero), self.shape)

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        is_plain = product is ops.matmul and self.layout.packed == 1
        if not is_plain or not self.block_size:
            return super().multiply(product, inputs)
        return matmul_int4(inputs, self.variable, *(map(self._stored, range(3))))

    def rows(self, indices: Tensor) -> Any:
        integers = unpack_int4(super().rows(indices), self.shape[-1], axis=-1)
        expanded = [
            lookup(self._stored(i), indices) for i in range(2 if self.block_size else 1)
        ]
        if not self.block_size:
            return ops.divide(integers, ops.expand_dims(expanded[0], -1))
        return _dequantized(integers, *(self._expand_blocks(x, -1) for x in expanded))

    def _stored(self, number: int) -> Tensor:
        return ops.convert_to_tensor(getattr(self.layer, self.scales[number]))

    def _expand_blocks(self, x: TensorLike, axis: int) -> Tensor:
        """Expand values per block along an axis to values per row or column."""
        return ops.take(x, ops.cast(self._stored(2), "int32"), axis=axis)


def _dequantized(integers: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return ops.multiply(ops.subtract(integers, ops.cast(zero, scale.dtype)), scale)
