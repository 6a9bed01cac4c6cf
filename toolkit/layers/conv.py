"""Convolutions over 1, 2 and 3 spatial axes, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from toolkit import activations, ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.adapters.low_rank import LowRankLayer
from toolkit.layers.adapters.static_int8 import (
    CalibratedConvolution,
    describe_few_channels,
)
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.weights import (
    choice,
    create_weight,
    declare_weights,
    extents,
    positive,
    static_extent,
)
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    IntOrInts,
    LayerOptions,
    RegularizedLayerOptions,
    RegularizerLike,
    Shape,
    TensorLike,
)


class Convolution(LowRankLayer):
    """Base class of all convolutions: windows, weights, bias and activation.

    Args:
        arguments: all arguments of the constructor, by name: its `locals()`.
        paddings: the valid values of `padding`.
        **kwargs: arguments of Layer.
    """

    rank: int
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation_rate: tuple[int, ...]
    filters: int

    def __init__(
        self,
        arguments: dict[str, Any],
        paddings: tuple[str, ...] = ("same", "valid"),
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            activity_regularizer=arguments["activity_regularizer"], **kwargs
        )
        for name in ("kernel_size", "strides", "dilation_rate"):
            setattr(self, name, extents(self, name, arguments[name], self.rank))
        for name in ("filters", "groups", "depth_multiplier"):
            if name in arguments:
                setattr(self, name, positive(self, name, arguments[name]))
        self.padding: str = choice(
            self, "padding", str(arguments["padding"]).lower(), paddings
        )
        self.data_format: str = standardize_data_format(arguments["data_format"])
        self.activation: Any = activations.get(arguments["activation"])
        self.use_bias: bool = arguments["use_bias"]
        names = ("kernel", "depthwise", "pointwise", "bias")
        weights = (name for name in names if f"{name}_initializer" in arguments)
        declare_weights(self, arguments, *weights)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _channel_axis(self) -> int:
        return -1 if self.data_format == "channels_last" else 1

    def _channels(self, input_shape: Shape) -> int:
        """Return the inputs' channels; all later inputs must have the same number."""
        axis = self._channel_axis
        channels = static_extent(self, input_shape, axis)
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: channels})
        return channels

    def _create_bias(self, channels: int) -> None:
        self.bias: Variable | None = (
            create_weight(self, "bias", (channels,)) if self.use_bias else None
        )

    def _window_options(self) -> dict[str, Any]:
        """Return the window options of the `ops` call."""
        return {
            "strides": self.strides,
            "padding": "valid" if self.padding == "causal" else self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
        }

    def _pad_causally(self, inputs: Tensor) -> Tensor:
        """Pad zeros before the first step, so that no window includes later steps."""
        if self.padding != "causal":
            return inputs
        widths = [(0, 0)] * 3
        axis = 1 if self.data_format == "channels_last" else 2
        widths[axis] = (self.dilation_rate[0] * (self.kernel_size[0] - 1), 0)
        return ops.pad(inputs, widths)

    def _finish(self, x: TensorLike) -> Any:
        """Add the bias and apply the activation."""
        if self.bias is not None:
            bias: Any = self.bias
            if self.data_format == "channels_first":
                bias = ops.reshape(bias, (-1, *(1,) * self.rank))
            x = x + bias
        return x if self.activation is None else self.activation(x)


class _Conv(Convolution, CalibratedConvolution):
    groups: int

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrInts = 1,
        groups: int = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        causal = ("causal",) if self.rank == 1 else ()
        super().__init__(locals(), (*causal, "same", "valid"), **kwargs)
        if filters % groups:
            raise ArgumentError(
                f"{type(self).__name__}: filters must be a multiple of groups; "
                f"received filters={filters}, groups={groups}"
            )

    def build(self, input_shape: Sequence[int | None]) -> None:
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ArgumentError(
                f"{type(self).__name__} {self.name!r}: the channels of the inputs must "
                f"be a multiple of groups={self.groups}; received shape {input_shape}"
            )
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        self._create_adapted(shape)
        self._create_bias(self.filters)
        self._adapt_if_asked()

    @property
    def kernel(self) -> Any:
        """Return the weights of the windows, including the adapter."""
        return self._main_weight()

    def convolution_op(self, inputs: Any, kernel: Any) -> Tensor:
        """Return the convolution with any kernel, without bias and activation.

        Args:
            inputs: the inputs of the layer.
            kernel: a tensor of the shape of the kernel.
        """
        inputs = self._pad_causally(inputs)
        return ops.conv(inputs, kernel, **self._window_options())

    def call(self, inputs: TensorLike) -> Tensor:
        return self._finish(self._convolved(inputs, self.convolution_op))

    # --- quantization -----------------------------------------------------------------

    @property
    def _float_reason(self) -> str | None:
        if self.groups > 1:
            return f"it has {self.groups} groups"
        return describe_few_channels(Weight(self).shape[-2])

    def _as_filters(self, weight: Any) -> Any:
        return weight

    def _product(self, inputs: Any, kernel: Any) -> Tensor:
        return ops.conv(inputs, kernel, **self._window_options())

    def _shared_axes(self) -> tuple[int, ...]:
        return tuple(range(self.rank + 1))


class Conv1D(_Conv):
    """1D convolution over the steps of a sequence.

    `outputs[b, t, f] = activation(sum(inputs[b, s * t + d * i, c] * kernel[i, c, f]))`
    over i and c, for strides s and dilation d; the bias is added before the activation.

    Args:
        filters: the number of output channels.
        kernel_size: the number of steps in a window.
        strides: the stride of the windows, in steps.
        padding: "valid"; "same": ceil(steps / strides) windows; or "causal": as many
            windows as "same", and no window includes later steps.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window, in steps.
        groups: the number of channel groups, each with separate filters.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (size, channels / groups,
            filters).
        bias_initializer: initializer of the bias, (filters,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, windows, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv1D(32, 3, padding="causal")
        >>> layer(toolkit.ops.ones((4, 10, 128))).shape
        (4, 10, 32)
    """

    rank = 1


class Conv2D(_Conv):
    """2D convolution over images.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        groups: the number of channel groups, each with separate filters.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (rows, columns, channels /
            groups, filters).
        bias_initializer: initializer of the bias, (filters,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, output rows, output columns, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv2D(32, 3, activation="relu")
        >>> layer(toolkit.ops.ones((4, 10, 10, 8))).shape
        (4, 8, 8, 32)
    """

    rank = 2


class Conv3D(_Conv):
    """3D convolution over volumes.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (depth, rows, columns) or one integer for
            all.
        strides: the stride of the windows.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        groups: the number of channel groups, each with separate filters.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (depth, rows, columns, channels /
            groups, filters).
        bias_initializer: initializer of the bias, (filters,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *windows, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv3D(4, 3)
        >>> layer(toolkit.ops.ones((1, 5, 5, 5, 2))).shape
        (1, 3, 3, 3, 4)
    """

    rank = 3


class _ConvTranspose(Convolution):
    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        output_padding: IntOrInts | None = None,
        data_format: str | None = None,
        dilation_rate: IntOrInts = 1,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(locals(), **kwargs)
        self.output_padding: tuple[int, ...] | None = None
        if output_padding is not None:
            self.output_padding = extents(
                self, "output_padding", output_padding, self.rank, minimum=0
            )

    def build(self, input_shape: Sequence[int | None]) -> None:
        shape = (*self.kernel_size, self.filters, self._channels(input_shape))
        self.kernel: Variable = create_weight(self, "kernel", shape)
        self._create_bias(self.filters)

    def call(self, inputs: Tensor) -> Tensor:
        x = ops.conv_transpose(
            inputs,
            self.kernel,
            output_padding=self.output_padding,
            **self._window_options(),
        )
        return self._finish(x)


class Conv1DTranspose(_ConvTranspose):
    """Transposed 1D convolution: each step adds a window to the outputs.

    Args:
        filters: the number of output channels.
        kernel_size: the size of a window.
        strides: the stride of the windows in the outputs.
        padding: "valid" keeps every full window, "same" gives steps * strides.
        output_padding: additional steps at the end; None: determined by `padding`.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (size, filters, channels).
        bias_initializer: initializer of the bias, (filters,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, more steps, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv1DTranspose(4, 3, strides=2, padding="same")
        >>> layer(toolkit.ops.ones((2, 10, 8))).shape
        (2, 20, 4)
    """

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """Transposed 2D convolution: each pixel adds a window to the outputs.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows in the outputs.
        padding: "valid" keeps every full window, "same" gives extent * stride.
        output_padding: additional rows and columns at the end; None: determined by
            `padding`.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of a window.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (rows, columns, filters,
            channels).
        bias_initializer: initializer of the bias, (filters,).
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, larger height, larger width, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv2DTranspose(4, 3, strides=2, padding="same")
        >>> layer(toolkit.ops.ones((2, 5, 5, 8))).shape
        (2, 10, 10, 4)
    """

    rank = 2


class Conv3DTranspose(_ConvTranspose):
    """Transposed 3D convolution: each voxel adds a window to the outputs.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (depth, rows, columns) or one integer for
            all.
        strides: the stride of the windows in the outputs.
        padding: "valid" keeps every full window, "same" gives extent * stride.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        output_padding: additional voxels at the end of each axis; None: determined by
            `padding`.
        **kwargs: the other arguments of Conv2DTranspose, and arguments of Layer.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *larger extents, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Conv3DTranspose(4, 3, strides=2, padding="same")
        >>> layer(toolkit.ops.ones((1, 2, 3, 4, 8))).shape
        (1, 4, 6, 8, 4)
    """

    rank = 3

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        data_format: str | None = None,
        output_padding: IntOrInts | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            *(filters, kernel_size, strides, padding),
            output_padding=output_padding,
            data_format=data_format,
            **kwargs,
        )


Convolution1D = Conv1D
Convolution2D = Conv2D
Convolution3D = Conv3D
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
