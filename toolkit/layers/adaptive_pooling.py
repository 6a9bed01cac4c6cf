"""Pooling to a fixed number of windows, whatever the extent of the inputs."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import extents
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import IntOrInts


class _AdaptivePooling(Layer):
    """Window i of n along an extent L covers [floor(i L / n), ceil((i + 1) L / n)).

    Args:
        output_size: how many windows, an integer or one for each spatial axis.
        data_format: "channels_last" or "channels_first"; the global one if None.
    """

    rank: int
    pool: Any

    def __init__(
        self, output_size: IntOrInts, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.output_size: tuple[int, ...] = extents(
            self, "output_size", output_size, self.rank
        )
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Any) -> Any:
        return self.pool(inputs, self.output_size, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Any:
        if self.data_format == "channels_last":
            return (input_shape[0], *self.output_size, input_shape[-1])
        return (*input_shape[:2], *self.output_size)


class AdaptiveAveragePooling1D(_AdaptivePooling):
    """The mean of each of `output_size` windows of a sequence.

    Args:
        output_size: how many windows.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, output_size, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(1.0, 6.0), (1, 5, 1))
        >>> toolkit.layers.AdaptiveAveragePooling1D(2)(x).tolist()
        [[[2.0], [4.0]]]
    """

    rank = 1
    pool: Any = staticmethod(ops.adaptive_average_pool)


class AdaptiveAveragePooling2D(AdaptiveAveragePooling1D):
    """The mean of each of `output_size` windows of images.

    Args:
        output_size: (windows down, windows across), or one integer for both.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).
    """

    rank = 2


class AdaptiveAveragePooling3D(AdaptiveAveragePooling1D):
    """The mean of each of `output_size` windows of volumes.

    Args:
        output_size: three integers, or one for all axes.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).
    """

    rank = 3


class AdaptiveMaxPooling1D(_AdaptivePooling):
    """The largest value of each of `output_size` windows of a sequence.

    Arguments and shapes: those of AdaptiveAveragePooling1D.
    """

    rank = 1
    pool: Any = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling2D(AdaptiveMaxPooling1D):
    """The largest value of each of `output_size` windows of images.

    Arguments and shapes: those of AdaptiveAveragePooling2D.
    """

    rank = 2


class AdaptiveMaxPooling3D(AdaptiveMaxPooling1D):
    """The largest value of each of `output_size` windows of volumes.

    Arguments and shapes: those of AdaptiveAveragePooling3D.
    """

    rank = 3
