"""Layers that pad, crop and upsample images, sequences and volumes."""

from __future__ import annotations

from operator import index
from typing import Any, Unpack

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import choice, extents
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import Borders, IntOrInts, RegularizedLayerOptions


class _Spatial(Layer):
    """Base class of layers that change the spatial axes, between batch and channels."""

    rank: int

    def __init__(
        self, data_format: str | None = None, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _first(self) -> int:
        """Return the first spatial axis."""
        return 2 if self.data_format == "channels_first" else 1

    def _margins(self, argument: str, value: Any) -> tuple[tuple[int, int], ...]:
        """Return (before, after) for each spatial axis, from all spellings of Keras."""
        if hasattr(value, "__index__"):
            value = (value,) * self.rank
        elif self.rank == 1:
            value = (value,)
        pairs = _pairs(value)
        if len(pairs) != self.rank or min(map(min, pairs)) < 0:
            raise ArgumentError(
                f"{type(self).__name__}: {argument} must be an integer >= 0, or one or "
                f"two for each of {self.rank} axes; received {value!r}"
            )
        return pairs


def _pairs(value: Any) -> tuple[tuple[int, int], ...]:
    """Return numbers and pairs of numbers as pairs; () for any other value."""
    try:
        pairs = [(n, n) if hasattr(n, "__index__") else tuple(n) for n in value]
        return tuple((index(low), index(high)) for low, high in pairs)
    except (TypeError, ValueError):
        return ()


class _ZeroPadding(_Spatial):
    def __init__(
        self,
        padding: Borders,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        self._pairs = self._margins("padding", padding)
        self.padding: tuple[tuple[int, int], ...] | tuple[int, int] = (
            self._pairs if self.rank > 1 else self._pairs[0]
        )

    def call(self, inputs: Tensor) -> Tensor:
        widths = [(0, 0)] * inputs.ndim
        widths[self._first : self._first + self.rank] = self._pairs
        return ops.pad(inputs, widths)


class ZeroPadding1D(_ZeroPadding):
    """Zero padding before and after the steps of a sequence.

    Args:
        padding: the number of steps on both sides, or (before, after).
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, before + steps + after, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(1.0, 4.0), (1, 3, 1))
        >>> toolkit.layers.ZeroPadding1D((2, 1))(x).tolist()
        [[[0.0], [0.0], [1.0], [2.0], [3.0], [0.0]]]
    """

    rank = 1

    def __init__(
        self,
        padding: Borders = 1,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding2D(_ZeroPadding):
    """Zero padding around images.

    Args:
        padding: an integer, (rows, columns), or ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: the same with larger height and width.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ZeroPadding2D(((1, 1), (2, 0)))
        >>> layer(toolkit.ops.ones((2, 4, 4, 3))).shape
        (2, 6, 6, 3)
    """

    rank = 2

    def __init__(
        self,
        padding: Borders = (1, 1),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding3D(_ZeroPadding):
    """Zero padding around volumes.

    Args:
        padding: an integer, one per axis, or (before, after) per axis.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with larger spatial extents.

    Example:
        >>> import toolkit
        >>> toolkit.layers.ZeroPadding3D(1)(toolkit.ops.ones((2, 4, 4, 4, 3))).shape
        (2, 6, 6, 6, 3)
    """

    rank = 3

    def __init__(
        self,
        padding: Borders = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class _Cropping(_Spatial):
    def __init__(
        self,
        cropping: Borders,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        self._pairs = self._margins("cropping", cropping)
        self.cropping: tuple[tuple[int, int], ...] | tuple[int, int] = (
            self._pairs if self.rank > 1 else self._pairs[0]
        )

    def call(self, inputs: Tensor) -> Tensor:
        region = [slice(None)] * inputs.ndim
        for axis, (low, high) in enumerate(self._pairs, self._first):
            n = inputs.shape[axis]
            if low + high >= n:
                raise ShapeError(
                    f"Values in `cropping` argument should be smaller than the extent "
                    f"of axis {axis}: the `cropping` parameter of "
                    f"`{type(self).__name__}` layer must be smaller than {n} in sum; "
                    f"received {(low, high)} and inputs of shape {inputs.shape}"
                )
            region[axis] = slice(low, n - high)
        return inputs[tuple(region)]


class Cropping1D(_Cropping):
    """Cropping of the first and last steps of a sequence.

    Args:
        cropping: the number of steps on both sides, or (before, after).

    Input shape: (batch, steps, channels).
    Output shape: (batch, steps - before - after, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(5.0), (1, 5, 1))
        >>> toolkit.layers.Cropping1D((1, 2))(x).tolist()
        [[[1.0], [2.0]]]
    """

    rank = 1

    def __init__(
        self, cropping: Borders = (1, 1), **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(cropping, "channels_last", **kwargs)


class Cropping2D(_Cropping):
    """Cropping of the borders of images.

    Args:
        cropping: an integer, (rows, columns), or ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: the same with smaller height and width.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Cropping2D(((1, 1), (2, 0)))
        >>> layer(toolkit.ops.ones((2, 8, 8, 3))).shape
        (2, 6, 6, 3)
    """

    rank = 2

    def __init__(
        self,
        cropping: Borders = ((0, 0), (0, 0)),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(cropping, data_format, **kwargs)


class Cropping3D(_Cropping):
    """Cropping of the borders of volumes.

    Args:
        cropping: an integer, one per axis, or (before, after) per axis.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with smaller spatial extents.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Cropping3D(1)(toolkit.ops.ones((2, 8, 8, 8, 3))).shape
        (2, 6, 6, 6, 3)
    """

    rank = 3

    def __init__(
        self,
        cropping: Borders = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(cropping, data_format, **kwargs)


class _UpSampling(_Spatial):
    def __init__(
        self,
        size: IntOrInts,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.size: tuple[int, ...] = extents(self, "size", size, self.rank)

    def call(self, inputs: Tensor) -> Tensor:
        for axis, n in enumerate(self.size, self._first):
            inputs = ops.repeat(inputs, n, axis=axis)
        return inputs


class UpSampling1D(_UpSampling):
    """Upsampling of a sequence: each step is repeated.

    Args:
        size: the number of repetitions.

    Input shape: (batch, steps, channels).
    Output shape: (batch, size * steps, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(3.0), (1, 3, 1))
        >>> toolkit.layers.UpSampling1D(2)(x).tolist()
        [[[0.0], [0.0], [1.0], [1.0], [2.0], [2.0]]]
    """

    rank = 1

    def __init__(
        self, size: IntOrInts = 2, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(size, "channels_last", **kwargs)


class UpSampling2D(_UpSampling):
    """Upsampling of images, by repetition or interpolation of pixels.

    Args:
        size: the factor, or (rows, columns).
        data_format: "channels_last" or "channels_first"; the global setting if None.
        interpolation: "nearest" repeats pixels; "bilinear", "bicubic", "lanczos3" and
            "lanczos5" as in `ops.image.resize`.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, rows * height, columns * width, channels).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.UpSampling2D((2, 3), interpolation="bilinear")
        >>> layer(toolkit.ops.ones((2, 4, 4, 3))).shape
        (2, 8, 12, 3)
    """

    rank = 2

    def __init__(
        self,
        size: IntOrInts = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(size, data_format, **kwargs)
        methods = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        self.interpolation: str = choice(self, "interpolation", interpolation, methods)

    def call(self, inputs: Any) -> Tensor:
        if self.interpolation == "nearest":
            return super().call(inputs)
        rows, columns = inputs.shape[self._first : self._first + 2]
        return ops.image.resize(
            inputs,
            (rows * self.size[0], columns * self.size[1]),
            interpolation=self.interpolation,
            data_format=self.data_format,
        )


class UpSampling3D(_UpSampling):
    """Upsampling of volumes: each voxel is repeated.

    Args:
        size: the factor, or one per axis.
        data_format: "channels_last" or "channels_first"; the global setting if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with larger spatial extents.

    Example:
        >>> import toolkit
        >>> toolkit.layers.UpSampling3D(2)(toolkit.ops.ones((2, 4, 4, 4, 3))).shape
        (2, 8, 8, 8, 3)
    """

    rank = 3

    def __init__(
        self,
        size: IntOrInts = (2, 2, 2),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(size, data_format, **kwargs)
