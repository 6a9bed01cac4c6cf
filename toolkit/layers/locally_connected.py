"""Convolutions with unshared weights, as in Keras 2."""

from __future__ import annotations

from itertools import product
from typing import Any, Unpack

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.conv import Convolution
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.weights import choice, create_weight
from toolkit.ops.ranges import check_range, index_range
from toolkit.type_aliases import (
    ActivationLike,
    Array,
    ConstraintLike,
    InitializerLike,
    IntOrInts,
    LayerOptions,
    RegularizerLike,
    TensorLike,
)

Extents = tuple[int, ...]


class LocallyConnected(Convolution):
    """Base class of convolutions with a separate kernel for each window."""

    implementation: int

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        data_format: str | None = None,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        implementation: int = 1,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__({**locals(), "dilation_rate": 1}, **kwargs)
        self.implementation = choice(self, "implementation", implementation, (1, 2, 3))
        if implementation == 1 and self.padding != "valid":
            raise ArgumentError(
                f"{type(self).__name__}: implementation=1 needs padding='valid'; "
                f"received padding={padding!r}"
            )

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        is_last = self.data_format == "channels_last"
        extents = tuple(input_shape[1:-1] if is_last else input_shape[2:])
        if None in extents:
            raise ShapeError(
                f"{type(self).__name__} {self.name!r}: expected inputs with known "
                f"extents; received shape {tuple(input_shape)}"
            )
        axes = {i + (1 if is_last else 2): n for i, n in enumerate(extents)}
        axes[self._channel_axis] = channels
        self.input_spec = InputSpec(ndim=self.rank + 2, axes=axes)
        self._extents: Extents = extents
        self._output_extents = self._count_windows(extents)
        shape = self._kernel_shape(channels)
        self.kernel: Variable = create_weight(self, "kernel", shape)
        bias_shape = (*self._output_extents, self.filters)
        self.bias = create_weight(self, "bias", bias_shape) if self.use_bias else None

    def _count_windows(self, extents: Extents) -> Extents:
        """Return the number of windows along each axis."""
        windows = zip(extents, self.kernel_size, self.strides, strict=True)
        is_same = self.padding == "same"
        counts = tuple(
            -(-n // step) if is_same else (n - size) // step + 1
            for n, size, step in windows
        )
        if min(counts) < 1:
            raise ShapeError(
                f"{type(self).__name__} {self.name!r}: the kernel of size "
                f"{self.kernel_size} is larger than the inputs, {extents}"
            )
        return counts

    def _count_inputs(self) -> int:
        """Return the number of inputs of all windows, with repetition."""
        count = 1
        for axis, extent in enumerate(self._extents):
            size, step = self.kernel_size[axis], self.strides[axis]
            before = size // 2 if self.padding == "same" else 0
            starts = index_range(self._output_extents[axis]) * step - before
            stops = np.minimum(starts + size, extent)
            count *= int(np.sum(stops - np.maximum(starts, 0)))
        return count

    def _windows(self) -> list[Array]:
        """Return the positions of each window's inputs in the flat input."""
        check_range(int(np.prod(self._output_extents) * np.prod(self.kernel_size)))
        positions = index_range(int(np.prod(self._extents))).reshape(self._extents)
        windows = []
        for window in product(*map(range, self._output_extents)):
            ranges = []
            for axis, index in enumerate(window):
                before = self.kernel_size[axis] // 2 if self.padding == "same" else 0
                start = index * self.strides[axis] - before
                ranges.append(slice(max(start, 0), start + self.kernel_size[axis]))
            windows.append(positions[tuple(ranges)].ravel())
        return windows

    def _kernel_shape(self, channels: int) -> Extents:
        inputs, outputs = self._extents, self._output_extents
        if self.implementation == 1:
            size = int(np.prod(self.kernel_size)) * channels
            return int(np.prod(outputs)), size, self.filters
        if self.implementation == 3:
            return (self._count_inputs() * channels * self.filters,)
        if self.data_format == "channels_last":
            return *inputs, channels, *outputs, self.filters
        return channels, *inputs, self.filters, *outputs

    def call(self, inputs: Any) -> Tensor:
        if self.data_format == "channels_first":
            inputs = ops.moveaxis(inputs, 1, -1)
        channels = inputs.shape[-1]
        x = ops.reshape(inputs, (-1, int(np.prod(self._extents)), channels))
        if self.implementation == 1:
            y = self._by_window(x)
        else:
            x = ops.reshape(x, (-1, x.shape[1] * channels))
            y = ops.matmul(x, self._matrix(channels))
        y = ops.reshape(y, (-1, *self._output_extents, self.filters))
        if self.bias is not None:
            y = y + self.bias
        if self.data_format == "channels_first":
            y = ops.moveaxis(y, -1, 1)
        return y if self.activation is None else self.activation(y)

    def _by_window(self, x: TensorLike) -> Tensor:
        windows = np.stack(self._windows())
        patches = ops.take(x, windows, axis=1)  # (batch, window, position, channel)
        if self.data_format == "channels_first":
            patches = ops.moveaxis(patches, -1, 2)
        patches = ops.reshape(patches, (-1, len(windows), self.kernel.shape[1]))
        return ops.einsum("bwi,wif->bwf", patches, self.kernel)

    def _matrix(self, channels: int) -> Tensor:
        """Return the kernel as a matrix from flat inputs to outputs, channels last."""
        inputs, outputs = np.prod(self._extents), np.prod(self._output_extents)
        shape = (int(inputs) * channels, int(outputs) * self.filters)
        if self.implementation == 3:
            return ops.scatter(self._entries(channels), self.kernel, shape)
        kernel: Any = self.kernel
        if self.data_format == "channels_first":
            kernel = ops.moveaxis(kernel, (0, self.rank + 1), (self.rank, -1))
        mask = np.zeros((inputs, 1, outputs, 1), kernel.dtype)
        for i, window in enumerate(self._windows()):
            mask[window, :, i] = 1
        mask = mask.repeat(channels, 1).repeat(self.filters, 3)
        return ops.reshape(kernel, shape) * mask.reshape(shape)

    def _entries(self, channels: int) -> Array:
        """Return the row and column in the matrix of each element of the kernel."""
        is_last = self.data_format == "channels_last"
        inputs, outputs = np.prod(self._extents), np.prod(self._output_extents)
        entries = []
        for i, window in enumerate(self._windows()):
            for f, p, c in product(range(self.filters), window, range(channels)):
                row, column = p * channels + c, i * self.filters + f
                order = (column, row) if is_last else (f * outputs + i, c * inputs + p)
                entries.append((order, (row, column)))
        return np.array([offset for _, offset in sorted(entries)])


class LocallyConnected1D(LocallyConnected):
    """1D convolution over steps with a separate kernel for each window.

    Keras 2 has this layer, Keras 3 does not. Models in Keras 2 files use it.

    Args:
        filters: the number of output channels.
        kernel_size: the number of steps in a window.
        strides: the stride of the windows, in steps.
        padding: "valid"; "same" needs an `implementation` of 2 or 3.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias, (windows, filters).
        kernel_initializer: initializer of the kernel.
        bias_initializer: initializer of the bias.
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.
        implementation: the shape of the kernel. 1: (windows, size * channels, filters).
            2: (steps, channels, windows, filters), of which only the inputs of each
            window are used. 3: only the used elements, in one axis.

    Input shape: (batch, steps, channels) if channels last; steps must be known.
    Output shape: (batch, windows, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.LocallyConnected1D(8, 3)
        >>> layer(toolkit.ops.ones((2, 10, 4))).shape
        (2, 8, 8)
    """

    rank = 1


class LocallyConnected2D(LocallyConnected):
    """2D convolution over images with a separate kernel for each window.

    Keras 2 has this layer, Keras 3 does not. Models in Keras 2 files use it.

    Args:
        filters: the number of output channels.
        kernel_size: the shape of a window, (rows, columns) or one integer for both.
        strides: the stride of the windows.
        padding: "valid"; "same" needs an `implementation` of 2 or 3.
        data_format: "channels_last" or "channels_first"; the global setting if None.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias, (*windows, filters).
        kernel_initializer: initializer of the kernel.
        bias_initializer: initializer of the bias.
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.
        implementation: the shape of the kernel. 1: (windows, size * channels, filters).
            2: (*extents, channels, *windows, filters), of which only the inputs of each
            window are used. 3: only the used elements, in one axis.

    Input shape: (batch, rows, columns, channels) if channels last; all must be known.
    Output shape: (batch, *windows, filters).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.LocallyConnected2D(8, 3)
        >>> layer(toolkit.ops.ones((2, 6, 6, 4))).shape
        (2, 4, 4, 8)
    """

    rank = 2
