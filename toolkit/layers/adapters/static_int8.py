"""Convolutions in 8-bit integers with a fixed, calibrated range of inputs.

Calibration runs data through a model and records the input range of each convolution.
The rounding of inputs is then an elementwise operation that fuses with the kernel that
computes them. So the activations between two convolutions are stored as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.autodiff.tape import GradientTape
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.adapters.whole import Extents, IntegerWeight, ScaleLayout
from toolkit.layers.layer import Layer
from toolkit.ops.quantize import convolve_whole
from toolkit.quantizers.configs import Int8QuantizationConfig
from toolkit.quantizers.quantizer import AbsMaxQuantizer, StaticQuantizer
from toolkit.settings import epsilon
from toolkit.type_aliases import Shape, TensorLike

# With fewer channels, float convolutions are as fast: the sums are short.
FEWEST_CHANNELS = 8


def describe_few_channels(count: int) -> str | None:
    """Return why a number of channels is too small, or None."""
    if count >= FEWEST_CHANNELS:
        return None
    channels = "1 channel" if count == 1 else f"{count} channels"
    return f"its inputs have {channels}, fewer than {FEWEST_CHANNELS}"


class InputRange(Weight):
    """Floating weight that records the range of the layer's inputs.

    Attributes:
        low, high: the range of all inputs; it includes 0.
        count: the number of recorded calls.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.low: float = 0.0
        self.high: float = 0.0
        self.count: int = 0

    def observe(self, inputs: Any) -> None:
        """Record the inputs of one call."""
        if inputs.static_value() is None:
            raise UnsupportedError(
                f"{self.layer.name}: calibration needs a call with values, but the "
                "model of the layer is traced"
            )
        values = ops.convert_to_numpy(ops.cast(inputs, "float32"))
        if not np.isfinite(values).all():
            raise ArgumentError(
                f"{self.layer.name}: expected finite calibration inputs; received "
                f"{np.count_nonzero(~np.isfinite(values))} values that are not finite"
            )
        if not values.size:
            return
        self.low = min(self.low, float(np.min(values, initial=0)))
        self.high = max(self.high, float(np.max(values, initial=0)))
        self.count += 1

    @property
    def quantizer(self) -> StaticQuantizer:
        """Return the quantizer of inputs in this range."""
        return StaticQuantizer((0, 127) if self.low == 0 else (-64, 63))

    @property
    def scale(self) -> float:
        """Return the factor that maps the largest input to the last integer."""
        low, high = self.quantizer.value_range
        return high / max(self.high, self.low * high / low if low else 0, epsilon())


class StaticInt8Weight(IntegerWeight):
    """Integers that replace the weights of a convolution: weights = integers / scale.

    The inputs are rounded with a fixed scale of the layer.
    """

    mode: str = "int8"

    def __init__(self, layer: Any, layout: ScaleLayout, config: Any) -> None:
        super().__init__(layer, layout, config)
        self.scales: tuple[str, ...] = (f"{self.name}_scale", "input_scale")
        self.weight_quantizer: Any = config.weight_quantizer or AbsMaxQuantizer(
            axis=layout.shared
        )

    def create(self, shape: Shape) -> None:
        self._create(self.name, shape, "zeros", "int8")
        outputs = tuple(n for n in self.layout.scale_shape(shape) if n != 1) or (1,)
        self._create(self.scales[0], outputs, "ones")
        self._create(self.scales[1], (), "ones")

    def quantized(self, value: Any) -> dict[str, Any]:
        integers, scale = self._scaled(self.weight_quantizer, value)
        return {f"_{self.name}": integers, self.scales[0]: ops.reshape(scale, (-1,))}

    def value(self) -> Any:
        return self._divided(self.variable, getattr(self.layer, self.scales[0]))

    def _divided(self, weight: Any, scale: Any) -> Tensor:
        return ops.divide(weight, self.layout.of_weight(scale, weight.shape))

    def convolve(self, inputs: Any) -> Any:
        """Convolve inputs, without bias and activation."""
        layer = self.layer
        scales = (ops.convert_to_tensor(getattr(layer, name)) for name in self.scales)
        return self._integer_function()(
            ops.convert_to_tensor(inputs), self.variable, *scales
        )

    def _integer_function(self) -> Callable[..., Any]:
        layer, quantizer = self.layer, self.inputs_quantizer
        dtype, options = layer.compute_dtype, layer._window_options()

        @ops.custom_gradient
        def convolved(x: TensorLike, weight: Any, scale: Any, x_scale: Any) -> Any:
            integers = quantizer(x, ops.cast(x_scale, dtype))
            y = convolve_whole(
                *(integers, layer._as_filters(weight)),
                **options,
                offset=quantizer.offset,
                bits=quantizer.bits,
            )
            total_scale = ops.cast(ops.multiply(scale, x_scale), dtype)
            y = ops.multiply(
                ops.cast(y, dtype), layer._along_channels(ops.reciprocal(total_scale))
            )

            def grad(g: Any) -> Any:
                with GradientTape() as tape:
                    tape.watch(x)
                    near = layer._product(x, self._divided(weight, scale))
                return tape.gradient(near, x, g), None, None, None

            return y, grad

        return convolved


class CalibratedConvolution(QuantizableLayer):
    """Base class of convolutions that calibration can quantize to 8 bits.

    A subclass defines the parts that depend on the layout of its weights.
    """

    _modes: tuple[str, ...] = ("int8",)
    rank: int
    activation: Any
    data_format: str

    # --- subclass interface -----------------------------------------------------------

    def _as_filters(self, weight: Any) -> Any:
        """Return the weights in the layout of a convolution."""
        raise NotImplementedError

    def _product(self, inputs: Any, kernel: Any) -> Any:
        """Convolve padded inputs with floating weights."""
        raise NotImplementedError

    @property
    def _float_reason(self) -> str | None:
        """Return why there is no fast integer kernel for this layer, or None."""
        raise NotImplementedError

    def _describe_float(self) -> str:
        """Return the warning for a layer that stays in floating point."""
        return (
            f"{type(self).__name__} {self.name!r}: not quantized, because "
            f"{self._float_reason}"
        )

    # --- computation ------------------------------------------------------------------

    def _along_channels(self, values: Any) -> Any:
        """Reshape one number per channel to the layout of the outputs."""
        if self.data_format == "channels_last":
            return values
        return ops.reshape(values, (-1, *(1,) * self.rank))

    def _convolved(self, inputs: Any, product: Callable[[Any, Any], Any]) -> Any:
        """Return `product` of inputs and weights, in integers if quantized."""
        if isinstance(self._adapter, InputRange):
            self._adapter.observe(ops.convert_to_tensor(inputs))
        if isinstance(self._adapter, StaticInt8Weight):
            return self._adapter.convolve(self._pad_causally(inputs))
        return product(inputs, self._main_weight())

    def _pad_causally(self, inputs: Any) -> Any:
        return inputs

    # --- conversion -------------------------------------------------------------------

    def _whole_weight(self) -> IntegerWeight:
        layout = ScaleLayout(self._shared_axes())
        return StaticInt8Weight(self, layout, self.quantization_config)

    def _shared_axes(self) -> Extents:
        """Return the axes of the weights that share a scale."""
        raise NotImplementedError

    def _check_quantizable(self, config: Any, type_check: bool) -> None:
        super()._check_quantizable(config, type_check)
        if not config.is_static and self._float_reason is not None:
            raise UnsupportedError(self._describe_float())
        if not config.is_static:
            raise UnsupportedError(
                f"{type(self).__name__} {self.name!r}: quantize(mode='int8') needs "
                "calibration data for convolutions; expected a call of the model's "
                "`quantize` with `Int8QuantizationConfig(dataset=...)`"
            )
        if self.lora_enabled:
            raise UnsupportedError(
                f"{self.name}: a convolution adapted by lora cannot be quantized"
            )

    def _accept_quantized(self, policy: Any) -> None:
        config = self.quantization_config
        is_static = config is not None and config.is_static
        if policy.quantization_mode == "int8" and not is_static:
            Layer._accept_quantized(self, policy)  # it raises
        super()._accept_quantized(policy)

    # --- calibration ------------------------------------------------------------------

    def _observe_range(self) -> InputRange:
        """Record the inputs of calls until `_end_observation`."""
        self._adapter = InputRange(self)
        return self._adapter

    def _quantize_static(self, recorded: InputRange, config: Any) -> None:
        """Replace the weights by integers, for inputs of a recorded range."""
        fixed_config = Int8QuantizationConfig(None, recorded.quantizer)
        policy = self._policy_for(fixed_config)
        self.quantization_config = fixed_config
        weight = self._whole_weight()
        values = weight.quantized(Weight(self).variable.value)
        self._replace_weight(
            weight, values | {"input_scale": np.float32(recorded.scale)}
        )
        self.dtype_policy = policy
