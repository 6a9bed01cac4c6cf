"""Pooling to a fixed number of windows for any extent of the inputs."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import extents
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import IntOrInts, RegularizedLayerOptions, Shape


class _AdaptivePooling(Layer):
    """Pooling with windows [floor(i L / n), ceil((i + 1) L / n)) over an extent L.

    Args:
        output_size: the number of windows, an integer or one for each spatial axis.
        data_format: "channels_last" or "channels_first"; the global setting if None.
    """

    rank: int
    pool: Any

    def __init__(
        self,
        output_size: IntOrInts,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.output_size: tuple[int, ...] = extents(
            self, "output_size", output_size, self.rank
        )
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Tensor) -> Tensor:
        return self.pool(inputs, self.output_size, self.data_format)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        if self.data_format == "channels_last":
            return (input_shape[0], *self.output_size, input_shape[-1])
        return (*input_shape[:2], *self.output_size)


class AdaptiveAveragePooling1D(_AdaptivePooling):
    """Average pooling of a sequence to `output_size` windows.

    Args:
        output_size: the number of windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.

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
    """Average pooling of images to `output_size` windows.

    Args:
        output_size: (output rows, output columns), or one integer for both.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((1, 7, 5, 3))
        >>> toolkit.layers.AdaptiveAveragePooling2D(2)(x).shape
        (1, 2, 2, 3)
    """

    rank = 2


class AdaptiveAveragePooling3D(AdaptiveAveragePooling1D):
    """Average pooling of volumes to `output_size` windows.

    Args:
        output_size: three integers, or one for all axes.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((1, 7, 5, 3, 3))
        >>> toolkit.layers.AdaptiveAveragePooling3D(2)(x).shape
        (1, 2, 2, 2, 3)
    """

    rank = 3


class AdaptiveMaxPooling1D(_AdaptivePooling):
    """Max pooling of a sequence to `output_size` windows.

    Args:
        output_size: the number of windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, output_size, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(1.0, 6.0), (1, 5, 1))
        >>> toolkit.layers.AdaptiveMaxPooling1D(2)(x).tolist()
        [[[3.0], [5.0]]]
    """

    rank = 1
    pool: Any = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling2D(AdaptiveMaxPooling1D):
    """Max pooling of images to `output_size` windows.

    Args:
        output_size: (output rows, output columns), or one integer for both.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).

    Example:
        >>> import toolkit
        >>> toolkit.layers.AdaptiveMaxPooling2D(2)(toolkit.ops.ones((1, 7, 5, 3))).shape
        (1, 2, 2, 3)
    """

    rank = 2


class AdaptiveMaxPooling3D(AdaptiveMaxPooling1D):
    """Max pooling of volumes to `output_size` windows.

    Args:
        output_size: three integers, or one for all axes.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *output_size, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((1, 7, 5, 3, 3))
        >>> toolkit.layers.AdaptiveMaxPooling3D(2)(x).shape
        (1, 2, 2, 2, 3)
    """

    rank = 3
