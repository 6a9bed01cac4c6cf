"""Depthwise and separable convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.layers.adapters.static_int8 import (
    CalibratedConvolution,
    describe_few_channels,
)
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.conv import Convolution
from toolkit.layers.weights import create_weight
from toolkit.type_aliases import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    IntOrInts,
    LayerOptions,
    RegularizerLike,
    Shape,
    TensorLike,
)


class _DepthwiseConv(Convolution, CalibratedConvolution):
    depth_multiplier: int

    def __init__(
        self,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: IntOrInts = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(locals(), **kwargs)

    def build(self, input_shape: Sequence[int | None]) -> None:
        channels = self._channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self._create_adapted(shape)
        self._create_bias(channels * self.depth_multiplier)

    @property
    def kernel(self) -> Any:
        """Return the weights of the windows."""
        return self._main_weight()

    def call(self, inputs: TensorLike) -> Tensor:
        return self._finish(self._convolved(inputs, self._product))

    def _product(self, inputs: Tensor, kernel: Variable) -> Tensor:
        return ops.depthwise_conv(inputs, kernel, **self._window_options())

    # --- quantization -----------------------------------------------------------------

    @property
    def _float_reason(self) -> str | None:
        if self.depth_multiplier != 1:
            return f"its depth_multiplier is {self.depth_multiplier}"
        if {*self.dilation_rate} != {1}:
            return f"its dilation_rate is {self.dilation_rate}"
        return describe_few_channels(Weight(self).shape[-2])

    def _as_filters(self, weight: Any) -> Any:
        return ops.reshape(weight, (*self.kernel_size, 1, -1))

    def _shared_axes(self) -> tuple[int, ...]:
        return tuple(range(self.rank))

    def _create_adapted(self, shape: Shape) -> None:
        if self.quantization_mode is not None:
            super()._create_adapted(shape)
        else:
            self._kernel: Variable = create_weight(
                self, "kernel", shape, declared="depthwise"
            )


class DepthwiseConv1D(_DepthwiseConv):
    """Depthwise 1D convolution: each channel of a sequence is convolved separately.

    Args:
        kernel_size: the size of a window.
        strides: the stride of the windows.
        padding: "valid", or "same": ceil(extent / stride) windows.
        depth_multiplier: the number of outputs per channel.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        depthwise_initializer: initializer of the kernel, (size, channels,
            depth_multiplier).
        bias_initializer: initializer of the bias, (channels * depth_multiplier,).
        depthwise_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        depthwise_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, windows, channels * depth_multiplier).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.DepthwiseConv1D(3, depth_multiplier=2)
        >>> layer(toolkit.ops.ones((4, 10, 5))).shape
        (4, 8, 10)
    """

    rank = 1


class DepthwiseConv2D(_DepthwiseConv):
    """Depthwise 2D convolution: each channel of an image is convolved separately.

    Args:
        kernel_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows.
        padding: "valid", or "same": ceil(extent / stride) windows.
        depth_multiplier: the number of outputs per channel.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        depthwise_initializer: initializer of the kernel, (rows, columns, channels,
            depth_multiplier).
        bias_initializer: initializer of the bias, (channels * depth_multiplier,).
        depthwise_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        depthwise_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, output rows, output columns, channels * depth_multiplier).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.DepthwiseConv2D(3, padding="same")
        >>> layer(toolkit.ops.ones((4, 10, 10, 5))).shape
        (4, 10, 10, 5)
    """

    rank = 2


class _SeparableConv(Convolution):
    depth_multiplier: int

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrInts = 1,
        depth_multiplier: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike | None = "glorot_uniform",
        pointwise_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        depthwise_regularizer: RegularizerLike | None = None,
        pointwise_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        depthwise_constraint: ConstraintLike | None = None,
        pointwise_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        causal = ("causal",) if self.rank == 1 else ()
        super().__init__(locals(), (*causal, "same", "valid"), **kwargs)

    def build(self, input_shape: Sequence[int | None]) -> None:
        channels = self._channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        mixed = (*(1,) * self.rank, channels * self.depth_multiplier, self.filters)
        self.depthwise_kernel: Variable = create_weight(
            self, "depthwise_kernel", shape, declared="depthwise"
        )
        self.pointwise_kernel: Variable = create_weight(
            self, "pointwise_kernel", mixed, declared="pointwise"
        )
        self._create_bias(self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        x = ops.separable_conv(
            self._pad_causally(inputs),
            self.depthwise_kernel,
            self.pointwise_kernel,
            **self._window_options(),
        )
        return self._finish(x)


class SeparableConv1D(_SeparableConv):
    """Separable 1D convolution: depthwise, then a convolution of size 1 over channels.

    Args:
        filters: the number of output channels.
        kernel_size: the size of a window.
        strides: the stride of the windows.
        padding: "valid", "same" or "causal".
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        depth_multiplier: the number of intermediate channels per channel.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        depthwise_initializer: initializer of the first kernel, (size, channels,
            depth_multiplier).
        pointwise_initializer: initializer of the second kernel, (1, channels *
            depth_multiplier, filters).
        bias_initializer: initializer of the bias, (filters,).
        depthwise_regularizer: regularizer of the first kernel.
        pointwise_regularizer: regularizer of the second kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        depthwise_constraint: constraint of the first kernel, applied after each update.
        pointwise_constraint: constraint of the second kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, windows, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.SeparableConv1D(3, 4)
        >>> layer(toolkit.ops.ones((4, 10, 12))).shape
        (4, 7, 3)
    """

    rank = 1


class SeparableConv2D(_SeparableConv):
    """Separable 2D convolution: depthwise, then a convolution of size 1 over channels.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        depth_multiplier: the number of intermediate channels per channel.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        depthwise_initializer: initializer of the first kernel, (rows, columns,
            channels, depth_multiplier).
        pointwise_initializer: initializer of the second kernel, (1, 1, channels *
            depth_multiplier, filters).
        bias_initializer: initializer of the bias, (filters,).
        depthwise_regularizer: regularizer of the first kernel.
        pointwise_regularizer: regularizer of the second kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        depthwise_constraint: constraint of the first kernel, applied after each update.
        pointwise_constraint: constraint of the second kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, output rows, output columns, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.SeparableConv2D(3, 4)
        >>> layer(toolkit.ops.ones((4, 10, 10, 12))).shape
        (4, 7, 7, 3)
    """

    rank = 2


SeparableConvolution1D = SeparableConv1D
SeparableConvolution2D = SeparableConv2D
