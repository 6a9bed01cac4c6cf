"""ConvLSTM1D, 2D and 3D: recurrent layers over sequences of images."""

from __future__ import annotations

import math
from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.cells import Cell, LSTMCell
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.recurrent import CellLayer, cell_property
from toolkit.layers.weights import choice, create_weight, extents, static_extent
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import (
    ActivationLike,
    CellOptions,
    ConstraintLike,
    InitializerLike,
    IntOrInts,
    RegularizerLike,
)

_WINDOWS = ("kernel_size", "strides", "padding", "data_format", "dilation_rate")


class ConvLSTMCell(LSTMCell):
    """LSTM cell whose products are convolutions.

    The arguments are the same as in ConvLSTM2D; states are (batch, *positions,
    filters). One dropout mask applies to all gates and all steps of a sequence.
    """

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts,
        padding: str,
        data_format: str | None,
        dilation_rate: IntOrInts,
        **kwargs: Any,
    ) -> None:
        super().__init__(filters, **kwargs)
        self.rank = rank
        self.filters: int = self.units
        self.kernel_size: tuple[int, ...] = extents(
            self, "kernel_size", kernel_size, rank
        )
        self.strides: tuple[int, ...] = extents(self, "strides", strides, rank)
        self.padding: str = choice(
            self, "padding", str(padding).lower(), ("same", "valid")
        )
        self.data_format: str = standardize_data_format(data_format)
        self.dilation_rate: tuple[int, ...] = extents(
            self, "dilation_rate", dilation_rate, rank
        )
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ArgumentError(
                f"{type(self).__name__}: Specifying `strides > 1` is not compatible "
                f"with `dilation_rate > 1`; received {self.strides} and "
                f"{self.dilation_rate}"
            )
        self.gate_axis = -1 if self.data_format == "channels_last" else 1

    def build(self, input_shape: Any) -> None:
        channels = static_extent(self, input_shape, self.gate_axis)
        self.output_size: Any = self.positions_of(input_shape[1:])
        if None in self.output_size:
            raise ArgumentError(
                f"{type(self).__name__} {self.name!r}: the spatial extents must be "
                f"known; received shape {tuple(input_shape)}"
            )
        self._input_extents = tuple(input_shape[1:])
        width = self.gates * self.filters
        self.kernel: Variable = create_weight(
            self, "kernel", (*self.kernel_size, channels, width)
        )
        self.recurrent_kernel: Variable = create_weight(
            self,
            "recurrent_kernel",
            (*self.kernel_size, self.filters, width),
            declared="recurrent",
        )
        self.bias: Variable | None = self._create_bias(width) if self.use_bias else None

    def positions_of(self, image: Any) -> tuple[int | None, ...]:
        """Return the state shape for this input shape, both without the batch."""
        spatial = image[:-1] if self.gate_axis == -1 else image[1:]
        return self._in_format(map(self._positions, range(self.rank), spatial))

    def _positions(self, axis: int, extent: int | None) -> int | None:
        """Return the number of windows along a spatial axis."""
        if extent is None:
            return None
        if self.padding == "valid":
            extent -= (self.kernel_size[axis] - 1) * self.dilation_rate[axis]
        return math.ceil(extent / self.strides[axis])

    def _in_format(self, positions: Any) -> tuple[int | None, ...]:
        shape = tuple(positions)
        return (
            (*shape, self.filters) if self.gate_axis == -1 else (self.filters, *shape)
        )

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return zeros for both states."""
        shape = (batch_size, *self.output_size)
        return [ops.zeros(shape, dtype=self.compute_dtype) for _ in self.state_size]

    def dropout_masks(
        self, batch: int, features: int, training: bool | None
    ) -> tuple[Any, Any]:
        """Return the dropout masks of inputs and state for one call, or None."""
        rates = (
            (self.dropout, self._input_extents),
            (self.recurrent_dropout, self.output_size),
        )
        inputs, state = (
            random.dropout(
                ops.ones((batch, *shape), dtype=self.compute_dtype),
                rate,
                seed=self.seed_generator,
            )
            if training and rate > 0
            else None
            for rate, shape in rates
        )
        return inputs, state

    def project(self, inputs: Any, mask: Any = None) -> Tensor:
        """Convolve the inputs, for one step or for all steps (one more axis)."""
        steps = inputs.ndim - self.rank - 2
        if mask is not None:
            inputs = inputs * mask
        shape = inputs.shape
        x = ops.reshape(inputs, (-1, *shape[2:])) if steps else inputs
        x = ops.conv(
            *(x, self.kernel, self.strides, self.padding),
            data_format=self.data_format,
            dilation_rate=self.dilation_rate,
        )
        if self.bias is not None:
            ones = (1,) * (self.rank if self.gate_axis == 1 else 0)
            x = x + ops.reshape(self.bias, (-1, *ones))
        return ops.reshape(x, (*shape[:2], *x.shape[1:])) if steps else x

    def recur(self, h: Any) -> Tensor:
        kernel = self.recurrent_kernel
        return ops.conv(h, kernel, 1, "same", data_format=self.data_format)


class _ConvLSTM(CellLayer):
    rank: int
    cell_class: type[Cell] = ConvLSTMCell

    def __init__(
        self,
        filters: int,
        kernel_size: IntOrInts,
        strides: IntOrInts = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: IntOrInts = 1,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        recurrent_initializer: InitializerLike | None = "orthogonal",
        bias_initializer: InitializerLike | None = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Seed = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **kwargs: Unpack[CellOptions],
    ) -> None:
        arguments = {**locals(), "rank": self.rank}
        super().__init__(arguments, "conv_lstm_cell", **kwargs)
        self.input_spec = InputSpec(ndim=self.rank + 3)

    def compute_output_shape(
        self, sequences_shape: Any, initial_state_shape: Any = None
    ) -> Any:
        """Return the shape of the output, and of the states if they are returned.

        Args:
            sequences_shape: the shape of the sequences.
            initial_state_shape: shapes of the states, or None.
        """
        batch, steps, *image = sequences_shape
        state = (batch, *self.cell.positions_of(image))
        shape = (batch, steps, *state[1:]) if self.return_sequences else state
        return (shape, state, state) if self.return_state else shape


for _name in ("recurrent_activation", "unit_forget_bias", "filters", *_WINDOWS):
    setattr(_ConvLSTM, _name, cell_property(_name))


class ConvLSTM1D(_ConvLSTM):
    """LSTM over sequences of rows: its matrix products are 1D convolutions.

    Args:
        filters: the number of channels of states and outputs.
        kernel_size: the shape of a window, an integer or one for each spatial axis.
        strides: the stride of the windows of the inputs; for the state it is 1.
        padding: "valid" or "same", for the inputs; for the state it is "same".
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of the windows of the inputs.
        activation: the activation of the candidate and of the carry.
        recurrent_activation: the activation of the three gates.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (*kernel_size, channels, 4 *
            filters).
        recurrent_initializer: initializer of the recurrent kernel, (*kernel_size,
            filters, 4 * filters).
        bias_initializer: initializer of the bias, (4 * filters,).
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: regularizers.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint, recurrent_constraint, bias_constraint: constraints, applied
            after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last states.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final states of the previous call.

    Input shape: (batch, steps, rows, channels) if channels last.
    Output shape: (batch, positions, filters), with `steps` if `return_sequences`.

    Example:
        >>> import toolkit
        >>> toolkit.layers.ConvLSTM1D(4, 3)(toolkit.ops.ones((2, 5, 8, 3))).shape
        (2, 6, 4)
    """

    rank = 1


class ConvLSTM2D(_ConvLSTM):
    """LSTM over sequences of images: its matrix products are convolutions.

    Args:
        filters: the number of channels of states and outputs.
        kernel_size: the shape of a window, an integer or one for each spatial axis.
        strides: the stride of the windows of the inputs; for the state it is 1.
        padding: "valid" or "same", for the inputs; for the state it is "same".
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of the windows of the inputs.
        activation: the activation of the candidate and of the carry.
        recurrent_activation: the activation of the three gates.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (*kernel_size, channels, 4 *
            filters).
        recurrent_initializer: initializer of the recurrent kernel, (*kernel_size,
            filters, 4 * filters).
        bias_initializer: initializer of the bias, (4 * filters,).
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: regularizers.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint, recurrent_constraint, bias_constraint: constraints, applied
            after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last states.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final states of the previous call.

    Call arguments:
        sequences: (batch, steps, rows, columns, channels) if channels last.
        initial_state, mask, training: as for RNN.

    Returns:
        (batch, rows, columns, filters), with an axis of steps if `return_sequences`;
        followed by both states if `return_state`.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ConvLSTM2D(4, 3)
        >>> layer(toolkit.ops.ones((2, 5, 8, 8, 3))).shape
        (2, 6, 6, 4)

    Reference: https://arxiv.org/abs/1506.04214
    """

    rank = 2


class ConvLSTM3D(_ConvLSTM):
    """LSTM over sequences of volumes: its matrix products are 3D convolutions.

    Args:
        filters: the number of channels of states and outputs.
        kernel_size: the shape of a window, an integer or one for each spatial axis.
        strides: the stride of the windows of the inputs; for the state it is 1.
        padding: "valid" or "same", for the inputs; for the state it is "same".
        data_format: "channels_last" or "channels_first"; the global setting if None.
        dilation_rate: the dilation of the windows of the inputs.
        activation: the activation of the candidate and of the carry.
        recurrent_activation: the activation of the three gates.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (*kernel_size, channels, 4 *
            filters).
        recurrent_initializer: initializer of the recurrent kernel, (*kernel_size,
            filters, 4 * filters).
        bias_initializer: initializer of the bias, (4 * filters,).
        unit_forget_bias: whether the bias of the forget gate starts at 1.
        kernel_regularizer, recurrent_regularizer, bias_regularizer: regularizers.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint, recurrent_constraint, bias_constraint: constraints, applied
            after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last states.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final states of the previous call.

    Input shape: (batch, steps, depth, rows, columns, channels) if channels last.
    Output shape: (batch, *positions, filters), with `steps` if `return_sequences`.

    Example:
        >>> import toolkit
        >>> toolkit.layers.ConvLSTM3D(2, 3)(toolkit.ops.ones((1, 2, 4, 4, 4, 3))).shape
        (1, 2, 2, 2, 2)
    """

    rank = 3
