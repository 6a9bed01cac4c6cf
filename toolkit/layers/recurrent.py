"""SimpleRNN, GRU and LSTM: recurrent layers of the cells of this package."""

from __future__ import annotations

from typing import Any

from toolkit.arguments import Seed
from toolkit.errors import ArgumentError
from toolkit.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.rnn import RNN
from toolkit.type_aliases import (
    ActivationLike,
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


class OfCell(RNN):
    """An RNN whose arguments are its own and those of its cell.

    Args:
        given: all that the constructor was given, by name: its `locals()`.
        cell_name: the name of the cell.
        use_cudnn: "auto" or False.
        **kwargs: for RNN.
    """

    cell_class: type[Cell]

    def __init__(
        self,
        given: dict[str, Any],
        cell_name: str,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        of_cell = {name: given[name] for name in given if name not in _NOT_OF_CELL}
        own = {name: given[name] for name in _OF_LAYER if name in given}
        # Both were hints on how to compute, which is not for the user to choose here.
        kwargs.pop("implementation", None)
        if use_cudnn not in ("auto", False):
            raise ArgumentError(
                f"{type(self).__name__}: use_cudnn must be 'auto' or False: there is "
                f"no cuDNN here; received {use_cudnn!r}"
            )
        cell = self.cell_class(
            **of_cell,
            name=cell_name,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
        )
        super().__init__(cell, **own, **kwargs)
        self.input_spec = InputSpec(ndim=3)


def of_cell(name: str) -> property:
    """The property of a layer that is its cell's `name`."""
    return property(lambda self: getattr(self.cell, name), doc=f"The cell's {name}.")


for _name in _OF_CELL:
    setattr(OfCell, _name, of_cell(_name))


class SimpleRNN(OfCell):
    """A recurrent layer of SimpleRNNCell: `h' = activation(x @ W + h @ U + b)`.

    Args:
        units: extent of state and output.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: how W, (features, units), starts.
        recurrent_initializer: how U, (units, units), starts.
        bias_initializer: how b, (units,), starts.
        kernel_regularizer: a penalty on W.
        recurrent_regularizer: a penalty on U.
        bias_regularizer: a penalty on b.
        activity_regularizer: a penalty on the outputs.
        kernel_constraint: applied to W after each update.
        recurrent_constraint: applied to U after each update.
        bias_constraint: applied to b after each update.
        dropout: the part of the inputs that is dropped in training.
        recurrent_dropout: the part of the state that is dropped in training.
        return_sequences: whether to return the outputs of all steps, or the last one.
        return_state: whether to return the last state too.
        go_backwards: whether to start at the last step.
        stateful: whether each call starts with the state that the last one ended with.
        unroll: whether to repeat the cell in the graph instead of looping.
        seed: of the dropout.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h], (batch, units); zeros if None.
        mask: (batch, steps); steps where it is False leave the state as it is.
        training: whether to drop.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; with the state
        behind it in a tuple if `return_state`.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(locals(), "simple_rnn_cell", **kwargs)


class GRU(OfCell):
    """A gated recurrent unit along sequences; GRUCell has the formula.

    Args:
        units: extent of state and output.
        activation: of the candidate.
        recurrent_activation: of the update and reset gates.
        use_bias: whether there is a bias.
        kernel_initializer: how the kernel, (features, 3 * units), starts.
        recurrent_initializer: how the recurrent kernel, (units, 3 * units), starts.
        bias_initializer: how the bias starts: (2, 3 * units) if `reset_after`, else
            (3 * units,).
        kernel_regularizer: a penalty on the kernel.
        recurrent_regularizer: a penalty on the recurrent kernel.
        bias_regularizer: a penalty on the bias.
        activity_regularizer: a penalty on the outputs.
        kernel_constraint: applied to the kernel after each update.
        recurrent_constraint: applied to the recurrent kernel after each update.
        bias_constraint: applied to the bias after each update.
        dropout: the part of the inputs that is dropped in training.
        recurrent_dropout: the part of the state that is dropped in training.
        seed: of the dropout.
        return_sequences: whether to return the outputs of all steps, or the last one.
        return_state: whether to return the last state too.
        go_backwards: whether to start at the last step.
        stateful: whether each call starts with the state that the last one ended with.
        unroll: whether to repeat the cell in the graph instead of looping.
        reset_after: whether the reset gate is applied after the matrix product.
        use_cudnn: "auto" or False.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h], (batch, units); zeros if None.
        mask: (batch, steps); steps where it is False leave the state as it is.
        training: whether to drop.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; with the state
        behind it in a tuple if `return_state`.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(locals(), "gru_cell", use_cudnn, **kwargs)


class LSTM(OfCell):
    """A long short-term memory along sequences; LSTMCell has the formula.

    Args:
        units: extent of states and output.
        activation: of the candidate and the cell state.
        recurrent_activation: of the input, forget and output gates.
        use_bias: whether there is a bias.
        kernel_initializer: how the kernel, (features, 4 * units), starts.
        recurrent_initializer: how the recurrent kernel, (units, 4 * units), starts.
        bias_initializer: how the bias, (4 * units,), starts.
        unit_forget_bias: whether the forget gate's bias starts at 1.
        kernel_regularizer: a penalty on the kernel.
        recurrent_regularizer: a penalty on the recurrent kernel.
        bias_regularizer: a penalty on the bias.
        activity_regularizer: a penalty on the outputs.
        kernel_constraint: applied to the kernel after each update.
        recurrent_constraint: applied to the recurrent kernel after each update.
        bias_constraint: applied to the bias after each update.
        dropout: the part of the inputs that is dropped in training.
        recurrent_dropout: the part of the state that is dropped in training.
        seed: of the dropout.
        return_sequences: whether to return the outputs of all steps, or the last one.
        return_state: whether to return the last states too.
        go_backwards: whether to start at the last step.
        stateful: whether each call starts with the states that the last one ended with.
        unroll: whether to repeat the cell in the graph instead of looping.
        use_cudnn: "auto" or False.

    Call arguments:
        sequences: (batch, steps, features).
        initial_state: [h, c], each (batch, units); zeros if None.
        mask: (batch, steps); steps where it is False leave the states as they are.
        training: whether to drop.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; with h and c
        behind it in a tuple if `return_state`.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(locals(), "lstm_cell", use_cudnn, **kwargs)
