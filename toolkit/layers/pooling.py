"""Pooling over windows, and global pooling."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.layers.call import context
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import choice, extents
from toolkit.ops.symbolic import infer
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import (
    IntOrInts,
    PoolingOptions,
    RegularizedLayerOptions,
    Shape,
)


class _Pooling(Layer):
    """Base class of pooling over windows; `pool` is a function like `ops.max_pool`."""

    rank: int
    pool: Any

    def __init__(
        self,
        pool_size: IntOrInts = 2,
        strides: IntOrInts | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[PoolingOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size: tuple[int, ...] = extents(
            self, "pool_size", pool_size, self.rank
        )
        strides = self.pool_size if strides is None else strides
        self.strides: tuple[int, ...] = extents(self, "strides", strides, self.rank)
        self.padding: str = choice(
            self, "padding", str(padding).lower(), ("same", "valid")
        )
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        first = 2 if self.data_format == "channels_first" else 1
        shape = list(input_shape)
        for axis, n in enumerate(shape[first : first + self.rank]):
            border = self.pool_size[axis] - 1 if self.padding == "valid" else 0
            if n is not None:
                shape[first + axis] = -((border - n) // self.strides[axis])
        return tuple(shape)

    def compute_output_spec(self, inputs: Any) -> Any:
        if None in inputs.shape[1:] or context.layer is not self:
            return super().compute_output_spec(inputs)
        return infer(self.call, (inputs,), {})  # it checks the windows

    def call(self, inputs: Tensor) -> Tensor:
        return self.pool(
            inputs, self.pool_size, self.strides, self.padding, self.data_format
        )


class MaxPooling1D(_Pooling):
    """Max pooling over windows of a sequence.

    Args:
        pool_size: the size of a window.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(steps / strides) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, windows, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(1.0, 6.0), (1, 5, 1))
        >>> toolkit.layers.MaxPooling1D(2)(x).tolist()
        [[[2.0], [4.0]]]
    """

    rank = 1
    pool: Any = staticmethod(ops.max_pool)


class MaxPooling2D(_Pooling):
    """Max pooling over windows of images.

    Args:
        pool_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, output rows, output columns, channels).

    Example:
        >>> import toolkit
        >>> toolkit.layers.MaxPooling2D(2)(toolkit.ops.ones((1, 4, 6, 3))).shape
        (1, 2, 3, 3)
    """

    rank = 2
    pool: Any = staticmethod(ops.max_pool)


class MaxPooling3D(_Pooling):
    """Max pooling over windows of volumes.

    Args:
        pool_size: the shape of a window, (depth, rows, columns) or one integer for all.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *windows, channels).

    Example:
        >>> import toolkit
        >>> toolkit.layers.MaxPooling3D(2)(toolkit.ops.ones((1, 4, 4, 6, 3))).shape
        (1, 2, 2, 3, 3)
    """

    rank = 3
    pool: Any = staticmethod(ops.max_pool)


class _AveragePooling(_Pooling):
    pool: Any = staticmethod(ops.average_pool)

    def __init__(
        self,
        pool_size: IntOrInts,
        strides: IntOrInts | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[PoolingOptions],
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, name, **kwargs)


class AveragePooling1D(_AveragePooling):
    """Average pooling over windows of a sequence; padding is ignored.

    Args:
        pool_size: the size of a window.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(steps / strides) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, windows, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(1.0, 6.0), (1, 5, 1))
        >>> toolkit.layers.AveragePooling1D(2)(x).tolist()
        [[[1.5], [3.5]]]
    """

    rank = 1


class AveragePooling2D(_AveragePooling):
    """Average pooling over windows of images; padding is ignored.

    Args:
        pool_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, output rows, output columns, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(8.0), (1, 2, 4, 1))
        >>> toolkit.layers.AveragePooling2D(2)(x).tolist()
        [[[[2.5], [4.5]]]]
    """

    rank = 2


class AveragePooling3D(_AveragePooling):
    """Average pooling over windows of volumes; padding is ignored.

    Args:
        pool_size: the shape of a window, (depth, rows, columns) or one integer for all.
        strides: the stride of the windows; `pool_size` if None.
        padding: "valid", or "same": ceil(extent / stride) windows.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        name: the name; generated from the class name if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, *windows, channels).

    Example:
        >>> import toolkit
        >>> toolkit.layers.AveragePooling3D(2)(toolkit.ops.ones((1, 4, 4, 6, 3))).shape
        (1, 2, 2, 3, 3)
    """

    rank = 3


class _GlobalPooling(Layer):
    """Base class of global pooling, over all positions."""

    rank: int

    def __init__(
        self,
        data_format: str | None = None,
        keepdims: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.data_format: str = standardize_data_format(data_format)
        self.keepdims = keepdims
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _axes(self) -> tuple[int, ...]:
        first = 2 if self.data_format == "channels_first" else 1
        return tuple(range(first, first + self.rank))


class _GlobalMaxPooling(_GlobalPooling):
    def call(self, inputs: Tensor) -> Tensor:
        return ops.max(inputs, axis=self._axes, keepdims=self.keepdims)


class GlobalMaxPooling1D(_GlobalMaxPooling):
    """Global max pooling of a sequence.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep the steps as an axis of extent 1.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(6.0), (1, 3, 2))
        >>> toolkit.layers.GlobalMaxPooling1D()(x).tolist()
        [[4.0, 5.0]]
    """

    rank = 1


class GlobalMaxPooling2D(_GlobalMaxPooling):
    """Global max pooling of images.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep height and width as axes of extent 1.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((2, 4, 4, 3))
        >>> toolkit.layers.GlobalMaxPooling2D()(x).shape
        (2, 3)
        >>> toolkit.layers.GlobalMaxPooling2D(keepdims=True)(x).shape
        (2, 1, 1, 3)
    """

    rank = 2


class GlobalMaxPooling3D(_GlobalMaxPooling):
    """Global max pooling of volumes.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep the spatial axes with extent 1.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> toolkit.layers.GlobalMaxPooling3D()(toolkit.ops.ones((2, 4, 4, 4, 3))).shape
        (2, 3)
    """

    rank = 3


class _GlobalAveragePooling(_GlobalPooling):
    def call(self, inputs: Tensor) -> Tensor:
        return ops.mean(inputs, axis=self._axes, keepdims=self.keepdims)


class GlobalAveragePooling1D(_GlobalPooling):
    """Global average pooling of a sequence.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep the steps as an axis of extent 1.

    Call arguments:
        mask: (batch, steps); steps with False are ignored.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GlobalAveragePooling1D()
        >>> layer(toolkit.ops.ones((2, 3, 4))).shape
        (2, 4)
    """

    rank = 1

    def __init__(
        self,
        data_format: str | None = None,
        keepdims: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format, keepdims, **kwargs)
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Tensor:
        axis = self._axes[0]
        if mask is None:
            return ops.mean(inputs, axis=axis, keepdims=self.keepdims)
        mask_values = ops.expand_dims(ops.cast(mask, "bool"), 3 - axis)
        total = ops.sum(ops.where(mask_values, inputs, 0), axis, keepdims=self.keepdims)
        count = ops.sum(
            ops.cast(mask_values, inputs.dtype), axis, keepdims=self.keepdims
        )
        return total / count

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Return None: the result has no steps.

        Args:
            inputs: the inputs of the call.
            mask: the mask of the inputs, or None.
        """


class GlobalAveragePooling2D(_GlobalAveragePooling):
    """Global average pooling of images.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep height and width as axes of extent 1.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(8.0), (1, 2, 2, 2))
        >>> toolkit.layers.GlobalAveragePooling2D()(x).tolist()
        [[3.0, 4.0]]
    """

    rank = 2


class GlobalAveragePooling3D(_GlobalAveragePooling):
    """Global average pooling of volumes.

    Args:
        data_format: "channels_last" or "channels_first"; the global setting if None.
        keepdims: whether to keep the spatial axes with extent 1.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: (batch, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((2, 4, 4, 4, 3))
        >>> toolkit.layers.GlobalAveragePooling3D()(x).shape
        (2, 3)
    """

    rank = 3


MaxPool1D = MaxPooling1D
MaxPool2D = MaxPooling2D
MaxPool3D = MaxPooling3D
AvgPool1D = AveragePooling1D
AvgPool2D = AveragePooling2D
AvgPool3D = AveragePooling3D
GlobalMaxPool1D = GlobalMaxPooling1D
GlobalMaxPool2D = GlobalMaxPooling2D
GlobalMaxPool3D = GlobalMaxPooling3D
GlobalAvgPool1D = GlobalAveragePooling1D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalAvgPool3D = GlobalAveragePooling3D
