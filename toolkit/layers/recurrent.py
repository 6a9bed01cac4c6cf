"""SimpleRNN, GRU and LSTM: recurrent layers with the cells of this package."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit.arguments import Seed
from toolkit.errors import ArgumentError
from toolkit.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.rnn import RNN
from toolkit.type_aliases import (
    ActivationLike,
    CellOptions,
    ConstraintLike,
    InitializerLike,
    RegularizerLike,
)

_OF_CELL = (
    *("units", "activation", "use_bias", "dropout", "recurrent_dropout"),
    *("kernel_initializer", "recurrent_initializer", "bias_initializer"),
    *("kernel_regularizer", "recurrent_regularizer", "bias_regularizer"),
    *("kernel_constraint", "recurrent_constraint", "bias_constraint"),
)
_OF_LAYER = (
    *("return_sequences", "return_state", "go_backwards", "stateful", "unroll"),
    "activity_regularizer",
)
_NOT_OF_CELL = (*_OF_LAYER, "use_cudnn", "self", "kwargs", "__class__")


class CellLayer(RNN):
    """RNN with the arguments of its cell.

    Args:
        arguments: all arguments of the constructor, by name: its `locals()`.
        cell_name: the name of the cell.
        use_cudnn: "auto" or False.
        **kwargs: arguments of RNN.
    """

    cell_class: type[Cell]

    def __init__(
        self,
        arguments: dict[str, Any],
        cell_name: str,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        cell_arguments = {
            name: arguments[name] for name in arguments if name not in _NOT_OF_CELL
        }
        layer_arguments = {
            name: arguments[name] for name in _OF_LAYER if name in arguments
        }
        # Both are hints for the implementation, which is not selectable.
        kwargs.pop("implementation", None)
        if use_cudnn not in ("auto", False):
            raise ArgumentError(
                f"{type(self).__name__}: use_cudnn must be 'auto' or False, because "
                f"cuDNN is unsupported; received {use_cudnn!r}"
            )
        cell = self.cell_class(
            **cell_arguments,
            name=cell_name,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
        )
        super().__init__(cell, **layer_arguments, **kwargs)
        self.input_spec = InputSpec(ndim=3)


def cell_property(name: str) -> property:
    """Return a property that forwards to the cell's `name`."""
    return property(lambda self: getattr(self.cell, name), doc=f"The cell's {name}.")


for _name in _OF_CELL:
    setattr(CellLayer, _name, cell_property(_name))


class SimpleRNN(CellLayer):
    """Recurrent layer of SimpleRNNCell: `h' = activation(x @ W + h @ U + b)`.

    Args:
        units: the size of state and output.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of W, (features, units).
        recurrent_initializer: initializer of U, (units, units).
        bias_initializer: initializer of b, (units,).
        kernel_regularizer: regularizer of W.
        recurrent_regularizer: regularizer of U.
        bias_regularizer: regularizer of b.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of W, applied after each update.
        recurrent_constraint: constraint of U, applied after each update.
        bias_constraint: constraint of b, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last state.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final state of the previous call.
        unroll: whether to unroll the loop in the graph.
        seed: the seed of the dropout.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h], (batch, units); zeros if None.
        mask: (batch, steps); steps with False leave the state unchanged.
        training: whether to apply dropout.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; a tuple with the
        state if `return_state`.

    Example:
        >>> import toolkit
        >>> toolkit.layers.SimpleRNN(4)(toolkit.ops.ones((2, 5, 3))).shape
        (2, 4)
    """

    cell_class: type[Cell] = SimpleRNNCell

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        recurrent_initializer: InitializerLike | None = "orthogonal",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        recurrent_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: Seed = None,
        **kwargs: Unpack[CellOptions],
    ) -> None:
        super().__init__(locals(), "simple_rnn_cell", **kwargs)


class GRU(CellLayer):
    """Gated recurrent unit (GRU) over sequences; see GRUCell for the formula.

    Args:
        units: the size of state and output.
        activation: the activation of the candidate.
        recurrent_activation: the activation of the update and reset gates.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, 3 * units).
        recurrent_initializer: initializer of the recurrent kernel, (units, 3 * units).
        bias_initializer: initializer of the bias: (2, 3 * units) if `reset_after`, else
            (3 * units,).
        kernel_regularizer: regularizer of the kernel.
        recurrent_regularizer: regularizer of the recurrent kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        recurrent_constraint: constraint of the recurrent kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last state.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final state of the previous call.
        unroll: whether to unroll the loop in the graph.
        reset_after: whether the reset gate is applied after the matrix product.
        use_cudnn: "auto" or False.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h], (batch, units); zeros if None.
        mask: (batch, steps); steps with False leave the state unchanged.
        training: whether to apply dropout.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; a tuple with the
        state if `return_state`.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GRU(4, return_sequences=True, return_state=True)
        >>> outputs, state = layer(toolkit.ops.ones((2, 5, 3)))
        >>> outputs.shape, state.shape
        ((2, 5, 4), (2, 4))

    Reference: https://arxiv.org/abs/1406.1078
    """

    cell_class: type[Cell] = GRUCell

    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = "tanh",
        recurrent_activation: ActivationLike | None = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        recurrent_initializer: InitializerLike | None = "orthogonal",
        bias_initializer: InitializerLike | None = "zeros",
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
        unroll: bool = False,
        reset_after: bool = True,
        use_cudnn: Any = "auto",
        **kwargs: Unpack[CellOptions],
    ) -> None:
        super().__init__(locals(), "gru_cell", use_cudnn, **kwargs)


class LSTM(CellLayer):
    """Long short-term memory (LSTM) over sequences; see LSTMCell for the formula.

    Args:
        units: the size of states and output.
        activation: the activation of the candidate and the cell state.
        recurrent_activation: the activation of the input, forget and output gates.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, 4 * units).
        recurrent_initializer: initializer of the recurrent kernel, (units, 4 * units).
        bias_initializer: initializer of the bias, (4 * units,).
        unit_forget_bias: whether the forget gate's bias starts at 1.
        kernel_regularizer: regularizer of the kernel.
        recurrent_regularizer: regularizer of the recurrent kernel.
        bias_regularizer: regularizer of the bias.
        activity_regularizer: regularizer of the outputs.
        kernel_constraint: constraint of the kernel, applied after each update.
        recurrent_constraint: constraint of the recurrent kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last states.
        go_backwards: whether to process the steps in reverse order.
        stateful: whether each call starts with the final states of the previous call.
        unroll: whether to unroll the loop in the graph.
        use_cudnn: "auto" or False.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h, c], each (batch, units); zeros if None.
        mask: (batch, steps); steps with False leave the states unchanged.
        training: whether to apply dropout.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; a tuple with h
        and c if `return_state`.

    Example:
        >>> import toolkit
        >>> toolkit.layers.LSTM(4)(toolkit.ops.ones((2, 5, 3))).shape
        (2, 4)

    Reference: https://www.bioinf.jku.at/publications/older/2604.pdf
    """

    cell_class: type[Cell] = LSTMCell

    def __init__(
        self,
        units: int,
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
        unroll: bool = False,
        use_cudnn: Any = "auto",
        **kwargs: Unpack[CellOptions],
    ) -> None:
        super().__init__(locals(), "lstm_cell", use_cudnn, **kwargs)
