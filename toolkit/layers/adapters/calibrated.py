"""Weights quantized by GPTQ or AWQ, and the observation of inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.adapters.whole import Extents, IntegerWeight, ScaleLayout
from toolkit.ops.int4 import matmul_int4
from toolkit.quantizers.affine import QuantizedMatrix
from toolkit.quantizers.configs import QuantizationConfig
from toolkit.quantizers.grouped import pack_int4, unpack_int4


class ObservedWeight(Weight):
    """Floating weight that records the inputs of its products.

    Args:
        layer: the layer of the weight.
        layout: the conversion of the weight to a matrix.
        observe: a function that receives the inputs of each product, (count, rows).
    """

    def __init__(
        self, layer: Any, layout: ScaleLayout, observe: Callable[[Any], None]
    ) -> None:
        super().__init__(layer)
        self._layout = layout
        self._observe = observe

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        rows = self._layout.rows_of(ops.convert_to_tensor(inputs))
        if rows.static_value() is None:
            raise UnsupportedError(
                f"{self.layer.name}: calibration needs a call with values, but the "
                "block of the layer is traced"
            )
        self._observe(ops.convert_to_numpy(rows))
        return super().multiply(product, inputs)


class CalibratedWeight(IntegerWeight):
    """Quantized matrix in groups of rows, in the Variables of Keras.

    The value is `(number - zero) * scale`, divided by the row's scale for AWQ. The
    Variables have columns as their first axis. Two 4-bit numbers from neighbouring
    columns share a byte.
    """

    def __init__(self, layer: Any, layout: ScaleLayout, policy: Any) -> None:
        super().__init__(layer, layout, QuantizationConfig())
        self.mode: str = policy.quantization_mode
        self._bits: int = policy.weight_bits
        self._group_size: int = policy.group_size
        of_rows = ("awq_scales",) if self.mode == "awq" else ()
        scale, zero = f"{self.name}_scale", f"{self.name}_zero"
        self._numbers: str = f"quantized_{self.name}"
        self.scales: tuple[str, ...] = (self._numbers, scale, zero, *of_rows, "g_idx")
        self._shape: Extents = ()

    @property
    def shape(self) -> Any:
        return self._shape

    @property
    def variable(self) -> Any:
        return getattr(self.layer, self._numbers)

    def create(self, shape: Any) -> None:
        self._shape = tuple(shape)
        rows, columns = self.layout.matrix(shape)
        groups = 1 if self._group_size == -1 else -(-rows // self._group_size)
        _, scale, zero, *of_rows, block = self.scales
        packed = -(-columns // 2) if self._bits == 4 else columns
        self._create(self._numbers, (packed, rows), "zeros", "uint8")
        self._create(scale, (columns, groups), "ones")
        self._create(zero, (columns, groups), "zeros", "uint8")
        for name in of_rows:
            self._create(name, (rows,), "ones")
        self._create(block, (rows,), "zeros", "float32")

    def quantized(self, value: Any) -> dict[str, Any]:
        raise ArgumentError(
            f"{self.layer.name}: mode {self.mode!r} needs calibration data; expected "
            "a call of the model's `quantize`"
        )

    def variable_values(self, quantized: QuantizedMatrix) -> dict[str, Any]:
        """Return the values of the layer's Variables for a matrix, by attribute."""
        numbers = quantized.numbers.T
        if self._bits == 4:
            numbers, _, _ = pack_int4(numbers, axis=0, dtype="uint8")
        of_rows = [] if quantized.row_scales is None else [quantized.row_scales]
        block = quantized.block.astype("float32")
        values = (numbers, quantized.scale.T, quantized.zero.T, *of_rows, block)
        return dict(zip(self.scales, values, strict=True))

    def value(self) -> Any:
        _, scale, zero, *of_rows, block = map(self._stored, self.scales)
        numbers = self.variable
        if self._bits == 4:
            numbers = unpack_int4(numbers, scale.shape[0], axis=0, dtype="uint8")
        group = ops.cast(block, "int32")
        shifted = ops.subtract(
            ops.cast(numbers, scale.dtype),
            ops.take(ops.cast(zero, scale.dtype), group, axis=1),
        )
        matrix = ops.transpose(ops.multiply(shifted, ops.take(scale, group, axis=1)))
        for row in of_rows:
            matrix = ops.divide(matrix, ops.expand_dims(row, -1))
        return ops.reshape(matrix, self.shape)

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        if product is not ops.matmul or self._bits != 4:
            return super().multiply(product, inputs)
        packed, scale, zero, *of_rows, block = map(self._stored, self.scales)
        for row in of_rows:
            inputs = ops.divide(inputs, row)
        packed, scale, zero = map(ops.transpose, (packed, scale, zero))
        return matmul_int4(inputs, packed, scale, zero, block)

    def _stored(self, name: str) -> Tensor:
        return ops.convert_to_tensor(getattr(self.layer, name))
