"""Quantization by the largest absolute value of each slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.arguments import is_int
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.ops.checks import normalize_axes
from toolkit.ops.quantize import quantize
from toolkit.ops.symbolic import operation
from toolkit.serialization.recording import Recorded
from toolkit.settings import epsilon as default_epsilon
from toolkit.type_aliases import Axis, TensorLike


@operation
def abs_max_quantize(
    inputs: Any,
    axis: Axis,
    value_range: tuple[int, int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float | None = None,
    to_numpy: bool = False,
) -> tuple[Any, Any]:
    """Return round(inputs * scale), scaled by the largest absolute values.

    scale = value_range[1] / (max(abs(inputs)) + epsilon).

    Args:
        inputs: (...), floating.
        axis: the axes that share a scale.
        value_range: the bounds of the result; values outside are clipped.
        dtype: the dtype of the result.
        epsilon: prevents division by 0 in slices of zeros; `config.epsilon()` if None.
        to_numpy: whether to compute in host memory.

    Returns:
        (quantized, scale): scale with extent 1 along `axis`, in the dtype of `inputs`.

    Example:
        >>> from toolkit import ops, quantizers
        >>> x = ops.array([[1.0, -2.0], [0.5, 0.2]])
        >>> y, scale = quantizers.abs_max_quantize(x, axis=-1)
        >>> y.tolist()
        [[64, -127], [127, 51]]
    """
    x: Any = convert(inputs)
    axis = normalize_axes("abs_max_quantize", axis, x.ndim)
    low, high = value_range
    margin = default_epsilon() if epsilon is None else epsilon
    if to_numpy:
        return _quantize_in_numpy(x, axis, (low, high), dtype, margin)
    largest = ops.max(ops.abs(x), axis=axis, keepdims=True)
    scale = ops.cast(ops.divide(high, ops.add(largest, margin)), x.dtype)
    scaled = ops.multiply(x, scale)
    return ops.cast(ops.clip(ops.round(scaled), low, high), dtype), scale


def _quantize_in_numpy(
    inputs: Tensor, axis: Axis, value_range: tuple[int, int], dtype: str, margin: float
) -> tuple[Tensor, Tensor]:
    """Return the result of `abs_max_quantize`, with one copy of the numbers."""
    wide = dtypes.result_type(inputs.dtype, "float32")
    x = ops.convert_to_numpy(inputs).astype(wide, copy=False)  # a copy
    least, greatest = (f(x, axis=axis, keepdims=True) for f in (np.min, np.max))
    largest = np.maximum(-least, greatest)
    scale = ops.cast(value_range[1] / (largest + margin), inputs.dtype)
    np.multiply(x, ops.convert_to_numpy(scale).astype(wide), out=x)
    np.round(x, out=x)
    np.clip(x, *value_range, out=x)
    return convert(x.astype(dtype)), scale


class Quantizer(Recorded):
    """Base class of quantizers: callables that return a tensor in fewer bits.

    Args:
        output_dtype: the dtype of the result.

    Example:
        >>> from toolkit import ops, quantizers
        >>> class Halves(quantizers.Quantizer):
        ...     def __call__(self, x):
        ...         return ops.cast(ops.round(2 * x), self.output_dtype)
        ...
        >>> Halves(output_dtype="int8")(ops.array([0.5, -1.0])).tolist()
        [1, -2]
    """

    def __init__(self, output_dtype: str = "int8") -> None:
        self.output_dtype = output_dtype

    def __call__(self, x: TensorLike) -> Any:
        return x


class StaticQuantizer(Quantizer):
    """Quantizer with a fixed scale, for the inputs of a calibrated layer.

    Args:
        value_range: the bounds of `round(x * scale)`: at most 256 integers that include
            0. The result is uint8: the integer minus the lower bound.

    Example:
        >>> from toolkit.quantizers import StaticQuantizer
        >>> StaticQuantizer((-64, 63))([-0.1, 0.0, 9.0], 10.0).tolist()
        [63, 64, 127]
    """

    def __init__(self, value_range: tuple[int, int] = (0, 127)) -> None:
        super().__init__("uint8")
        low, high = value_range
        counts = [1 << bits for bits in range(1, 9)]
        if not low <= 0 <= high or high - low + 1 not in counts:
            raise ArgumentError(
                "StaticQuantizer: expected a value_range around 0 with the values of "
                f"at most 8 bits; received {tuple(value_range)}"
            )
        self.value_range: tuple[int, int] = low, high

    @property
    def offset(self) -> int:
        """Return the code of 0."""
        return -self.value_range[0]

    @property
    def bits(self) -> int:
        """Return the number of bits of the results."""
        low, high = self.value_range
        return (high - low).bit_length()

    def __call__(self, x: TensorLike, scale: Any = 1.0) -> Any:
        """Return the codes of `x * scale`, as uint8.

        Args:
            x: a tensor.
            scale: the scale.
        """
        return quantize(x, scale, self.offset, self.bits)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {"value_range": self.value_range}


class AbsMaxQuantizer(Quantizer):
    """Quantizer by the largest absolute value of each slice: see `abs_max_quantize`.

    Args:
        axis: the default axes that share a scale; -1 if None.
        value_range: the bounds of the results; values outside are clipped.
        epsilon: prevents division by 0 in slices of zeros; `config.epsilon()` if None.
        output_dtype: the dtype of the result.

    Example:
        >>> from toolkit import ops, quantizers
        >>> y, scale = quantizers.AbsMaxQuantizer()(ops.array([1.0, -2.0]))
        >>> y.tolist()
        [64, -127]
    """

    def __init__(
        self,
        axis: Any = None,
        value_range: tuple[int, int] = (-127, 127),
        epsilon: float | None = None,
        output_dtype: str = "int8",
    ) -> None:
        super().__init__(output_dtype)
        low, high = value_range
        if output_dtype == "int8" and (low < -128 or high > 127):
            raise ArgumentError(
                "AbsMaxQuantizer: output_dtype='int8' needs a value_range within "
                f"[-128, 127]; received value_range={value_range}"
            )
        self.axis: Any = (axis,) if is_int(axis) else axis and tuple(axis)
        self.value_range: tuple[int, int] = low, high
        self.epsilon: float = default_epsilon() if epsilon is None else epsilon

    def __call__(
        self, x: TensorLike, axis: Axis | None = None, to_numpy: bool = False
    ) -> Any:
        """Return (quantized, scale) of x; `axis` shares a scale.

        Args:
            x: a tensor.
            axis: the axes that share a scale; None for the axes of the constructor.
            to_numpy: whether to compute in host memory.
        """
        axis = next((a for a in (axis, self.axis) if a is not None), -1)
        options = self.value_range, self.output_dtype, self.epsilon
        return abs_max_quantize(x, axis, *options, to_numpy)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        names = "value_range", "epsilon", "output_dtype", "axis"
        config = {name: getattr(self, name) for name in names}
        return {name: value for name, value in config.items() if value is not None}
