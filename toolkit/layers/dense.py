"""Dense: a matrix product with a kernel, plus a bias."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import activations, ops
from toolkit.arguments import Positive
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.whole import ScaleLayout
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.weights import (
    create_weight,
    declare_weight,
    positive,
    static_extent,
)
from toolkit.type_aliases import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    LayerOptions,
    RegularizerLike,
)


class Dense(QuantizableLayer):
    """Fully connected layer: `activation(inputs @ kernel + bias)`.

    Args:
        units: the size of the last output axis.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, units).
        bias_initializer: initializer of the bias, (units,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.
        lora_rank: rank of a LoRA adaptation of the kernel (see `enable_lora`), or None.
        lora_alpha: the adaptation is scaled by `lora_alpha / lora_rank`.

    Input shape: (batch, ..., features).
    Output shape: (batch, ..., units).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Dense(4, activation="relu")
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    _kernel: Variable

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        lora_rank: Positive | None = None,
        lora_alpha: float | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            activity_regularizer=activity_regularizer,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            **kwargs,
        )
        self.units: int = positive(self, "units", units)
        self.activation: Any = activations.get(activation)
        self.use_bias = use_bias
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        features = static_extent(self, input_shape)
        self._create_adapted((features, self.units))
        self.bias: Variable | None = (
            create_weight(self, "bias", (self.units,)) if self.use_bias else None
        )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: features})
        self._adapt_if_asked()

    @property
    def kernel(self) -> Any:
        """Return the kernel, (features, units), including the adapter."""
        return self._main_weight()

    def _scale_layout(self) -> ScaleLayout:
        return ScaleLayout(shared=(0,))

    def call(self, inputs: Any) -> Tensor:
        if self._adapter is None:
            x = ops.matmul(inputs, self._kernel)
        else:
            x = self._adapter.multiply(ops.matmul, inputs)
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is None else self.activation(x)
