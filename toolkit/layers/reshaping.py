"""Layers that move, repeat or leave out elements, without arithmetic."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops
from toolkit.config import standardize_data_format
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import choice, extents, positive


class Flatten(Layer):
    """All axes but the batch joined into one.

    Args:
        data_format: "channels_first" puts the channels last before joining; the global
            one if None.

    Input shape: (batch, ...).
    Output shape: (batch, features); inputs without features get one.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Flatten()(toolkit.ops.ones((2, 3, 4))).shape
        (2, 12)
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = standardize_data_format(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        if inputs.ndim > 2 and self.data_format == "channels_first":
            inputs = ops.moveaxis(inputs, 1, -1)
        return ops.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))


class Reshape(Layer):
    """The same elements of each sample in another shape.

    Args:
        target_shape: without the batch; one extent may be -1.

    Input shape: (batch, ...).
    Output shape: (batch, *target_shape).

    Example:
        >>> import toolkit
        >>> toolkit.layers.Reshape((-1, 2))(toolkit.ops.ones((5, 12))).shape
        (5, 6, 2)
    """

    def __init__(self, target_shape: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        single = isinstance(target_shape, int)
        target = (target_shape,) if single else tuple(target_shape)
        if target.count(-1) > 1:
            raise ArgumentError(
                f"Reshape: at most one extent may be -1; received {target}"
            )
        self.target_shape = target

    def call(self, inputs: Any) -> Any:
        size = math.prod(inputs.shape[1:])
        fixed = math.prod(n for n in self.target_shape if n != -1)
        inferred = size // fixed if fixed else 0
        target = tuple(inferred if n == -1 else n for n in self.target_shape)
        if math.prod(target) != size:
            raise ShapeError(
                f"Reshape: a sample of shape {inputs.shape[1:]} has {size} elements; "
                f"they do not fit target_shape {self.target_shape}"
            )
        return ops.reshape(inputs, (inputs.shape[0], *target))


class Permute(Layer):
    """The axes of each sample in another order.

    Args:
        dims: a permutation of 1, 2, ...; axis 0, the batch, stays.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Permute((2, 1))(toolkit.ops.ones((5, 10, 64))).shape
        (5, 64, 10)
    """

    def __init__(self, dims: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ArgumentError(
                "Permute: dims must be a permutation of 1, 2, ...; "
                f"received {self.dims}"
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Any) -> Any:
        return ops.transpose(inputs, (0, *self.dims))


class RepeatVector(Layer):
    """Each vector n times.

    Args:
        n: how often.

    Input shape: (batch, features).
    Output shape: (batch, n, features).
    """

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = positive(self, "n", n)
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Any:
        shape = (inputs.shape[0], self.n, inputs.shape[1])
        return ops.broadcast_to(ops.expand_dims(inputs, 1), shape)


class _Spatial(Layer):
    """Base of layers that work along the axes between batch and channels."""

    rank: int

    def __init__(self, data_format: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _first(self) -> int:
        """The first spatial axis."""
        return 2 if self.data_format == "channels_first" else 1

    def _margins(self, argument: str, value: Any) -> tuple[tuple[int, int], ...]:
        """(before, after) for each spatial axis, from all spellings of Keras."""
        if hasattr(value, "__index__"):
            value = (value,) * self.rank
        if self.rank == 1 and all(hasattr(n, "__index__") for n in value):
            value = (value * 2,) if len(value) == 1 else (value,)
        pairs = tuple((n, n) if hasattr(n, "__index__") else tuple(n) for n in value)
        fits = len(pairs) == self.rank and all(len(pair) == 2 for pair in pairs)
        if not fits or min(min(pair) for pair in pairs) < 0:
            raise ArgumentError(
                f"{type(self).__name__}: {argument} must be an integer >= 0, or one or "
                f"two for each of {self.rank} axes; received {value!r}"
            )
        return pairs  # type: ignore[return-value]


class _ZeroPadding(_Spatial):
    def __init__(self, padding: Any, data_format: Any = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.padding = self._margins("padding", padding)

    def call(self, inputs: Any) -> Any:
        widths = [(0, 0)] * inputs.ndim
        widths[self._first : self._first + self.rank] = self.padding
        return ops.pad(inputs, widths)


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and after the steps of a sequence.

    Args:
        padding: how many on both sides, or (before, after).
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, steps, channels) if channels last.
    Output shape: (batch, before + steps + after, channels).
    """

    rank = 1

    def __init__(
        self, padding: Any = 1, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding2D(_ZeroPadding):
    """Zeros around images.

    Args:
        padding: an integer, (rows, columns), or ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: the same with larger height and width.
    """

    rank = 2

    def __init__(
        self, padding: Any = (1, 1), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding3D(_ZeroPadding):
    """Zeros around volumes.

    Args:
        padding: an integer, one for each axis, or (before, after) for each.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with larger spatial extents.
    """

    rank = 3

    def __init__(
        self,
        padding: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(padding, data_format, **kwargs)


class _Cropping(_Spatial):
    def __init__(self, cropping: Any, data_format: Any = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.cropping = self._margins("cropping", cropping)

    def call(self, inputs: Any) -> Any:
        region = [slice(None)] * inputs.ndim
        for axis, (low, high) in enumerate(self.cropping, self._first):
            n = inputs.shape[axis]
            if low + high >= n:
                raise ShapeError(
                    f"{type(self).__name__}: cropping ({low}, {high}) leaves nothing "
                    f"of axis {axis}; received shape {inputs.shape}"
                )
            region[axis] = slice(low, n - high)
        return inputs[tuple(region)]


class Cropping1D(_Cropping):
    """A sequence without its first and last steps.

    Args:
        cropping: how many on both sides, or (before, after).

    Input shape: (batch, steps, channels).
    Output shape: (batch, steps - before - after, channels).
    """

    rank = 1

    def __init__(self, cropping: Any = (1, 1), **kwargs: Any) -> None:
        super().__init__(cropping, "channels_last", **kwargs)


class Cropping2D(_Cropping):
    """Images without their borders.

    Args:
        cropping: an integer, (rows, columns), or ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: the same with smaller height and width.
    """

    rank = 2

    def __init__(
        self,
        cropping: Any = ((0, 0), (0, 0)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cropping, data_format, **kwargs)


class Cropping3D(_Cropping):
    """Volumes without their borders.

    Args:
        cropping: an integer, one for each axis, or (before, after) for each.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with smaller spatial extents.
    """

    rank = 3

    def __init__(
        self,
        cropping: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cropping, data_format, **kwargs)


class _UpSampling(_Spatial):
    def __init__(self, size: Any, data_format: Any = None, **kwargs: Any) -> None:
        super().__init__(data_format, **kwargs)
        self.size = extents(self, "size", size, self.rank)

    def call(self, inputs: Any) -> Any:
        for axis, n in enumerate(self.size, self._first):
            inputs = ops.repeat(inputs, n, axis=axis)
        return inputs


class UpSampling1D(_UpSampling):
    """Each step of a sequence repeated.

    Args:
        size: how often.

    Input shape: (batch, steps, channels).
    Output shape: (batch, size * steps, channels).
    """

    rank = 1

    def __init__(self, size: Any = 2, **kwargs: Any) -> None:
        super().__init__(size, "channels_last", **kwargs)


class UpSampling2D(_UpSampling):
    """Each pixel repeated.

    Args:
        size: how often, or (rows, columns).
        data_format: "channels_last" or "channels_first"; the global one if None.
        interpolation: "nearest".

    Input shape: (batch, height, width, channels) if channels last.
    Output shape: (batch, rows * height, columns * width, channels).
    """

    rank = 2

    def __init__(
        self,
        size: Any = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Any,
    ) -> None:
        super().__init__(size, data_format, **kwargs)
        self.interpolation = choice(self, "interpolation", interpolation, ("nearest",))


class UpSampling3D(_UpSampling):
    """Each voxel repeated.

    Args:
        size: how often, or one for each axis.
        data_format: "channels_last" or "channels_first"; the global one if None.

    Input shape: (batch, depth, height, width, channels) if channels last.
    Output shape: the same with larger spatial extents.
    """

    rank = 3

    def __init__(
        self, size: Any = (2, 2, 2), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(size, data_format, **kwargs)
