"""Recurrent cells: one step of a recurrent layer.

A cell's step is `step(project(inputs), states)`. The projection does not depend on the
states, so a recurrent layer computes it for all steps at once, as one matrix product.
"""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import activations, ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.layers.cell_dropout import DropoutRNNCell
from toolkit.layers.layer import Layer
from toolkit.layers.weights import (
    create_weight,
    declare_weight,
    fraction,
    positive,
    static_extent,
)
from toolkit.random.seeds import as_generator
from toolkit.type_aliases import (
    ActivationLike,
    CellOptions,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
    Shape,
    TensorLike,
)


class Cell(DropoutRNNCell, Layer):
    """Base class of the cells in this module: kernel, recurrent kernel, bias, dropout.

    All steps of a sequence share one dropout mask.
    """

    gates: int
    bias_initializer: Any
    bias_regularizer: Any
    bias_constraint: Any

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
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Seed = None,
        **kwargs: Unpack[CellOptions],
    ) -> None:
        implementation = kwargs.pop("implementation", 2) if self.gates > 1 else 2
        super().__init__(**kwargs)
        self.units: int = positive(self, "units", units)
        self.activation: Any = activations.get(activation)
        self.use_bias = use_bias
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self,
            "recurrent",
            recurrent_initializer,
            recurrent_regularizer,
            recurrent_constraint,
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )
        self.dropout: float = fraction(self, "dropout", dropout)
        self.recurrent_dropout: float = fraction(
            self, "recurrent_dropout", recurrent_dropout
        )
        self.seed = seed
        self.implementation = 1 if recurrent_dropout else implementation
        if self.gates > 1 and self.implementation == 1:
            self.dropout_mask_count: int = self.gates
        if dropout > 0 or recurrent_dropout > 0:
            self.seed_generator: Any = as_generator(seed)
        self.state_size: Any = self.units
        self.output_size: Any = self.units

    def build(self, input_shape: Any) -> None:
        width = self.gates * self.units
        self.kernel: Variable = create_weight(
            self, "kernel", (static_extent(self, input_shape), width)
        )
        self.recurrent_kernel: Variable = create_weight(
            self, "recurrent_kernel", (self.units, width), declared="recurrent"
        )
        self.bias: Variable | None = self._create_bias(width) if self.use_bias else None

    def _create_bias(self, width: int) -> Variable:
        return create_weight(self, "bias", (width,))

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return zeros for every state, (batch, units).

        Args:
            batch_size: the number of sequences.
        """
        sizes = self.state_size if isinstance(self.state_size, list) else [self.units]
        return [ops.zeros((batch_size, n), dtype=self.compute_dtype) for n in sizes]

    def project(self, inputs: Any, mask: Any = None) -> Tensor:
        """Return the terms of the inputs, (..., features), in the gates.

        Args:
            inputs: one step, (batch, features), or all steps, (steps, batch, features).
            mask: the dropout mask of the inputs, or None.
        """
        if mask is not None:
            inputs = inputs * mask
        return self._add_input_bias(ops.matmul(inputs, self.kernel))

    def _add_input_bias(self, x: TensorLike) -> Any:
        return x if self.bias is None else x + self.bias

    def recur(self, h: Any) -> Tensor:
        """Return the terms of the state in the gates.

        Args:
            h: the state, (batch, units).
        """
        return ops.matmul(h, self.recurrent_kernel)

    def step(
        self, x: TensorLike, states: Any, mask: Any = None
    ) -> tuple[Any, list[Any]]:
        """Return the output and the new states.

        Args:
            x: the projected inputs of one step.
            states: each (batch, units).
            mask: the dropout mask of the first state, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `step`")

    def dropout_masks(
        self, batch: int, features: int, training: bool | None
    ) -> tuple[Any, Any]:
        """Return the dropout masks of inputs and state for one call, or None.

        Args:
            batch: the number of rows.
            features: the number of features of the inputs.
            training: whether to apply dropout.
        """
        rates = (self.dropout, features), (self.recurrent_dropout, self.units)
        inputs, state = (
            random.dropout(
                ops.ones((batch, n), dtype=self.compute_dtype),
                rate,
                seed=self.seed_generator,
            )
            if training and rate > 0
            else None
            for rate, n in rates
        )
        return inputs, state

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        nested = isinstance(states, (list, tuple))
        states = list(states) if nested else [states]
        masks = self.masks_of_step(inputs, states[0], training)
        output, states = self.step(self.project(inputs, masks[0]), states, masks[1])
        return output, states if nested else states[0]


class SimpleRNNCell(Cell):
    """Simple recurrent cell: `h' = activation(x @ kernel + h @ recurrent + bias)`.

    Args:
        units: the size of state and output.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, units).
        recurrent_initializer: initializer of the recurrent kernel, (units, units).
        bias_initializer: initializer of the bias, (units,).
        kernel_regularizer: regularizer of the kernel.
        recurrent_regularizer: regularizer of the recurrent kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint of the kernel, applied after each update.
        recurrent_constraint: constraint of the recurrent kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        seed: the seed of the dropout.

    Call arguments:
        sequence: (batch, features).
        states: [h], (batch, units).
        training: whether to apply dropout.

    Returns:
        (output, [new h]), both (batch, units).

    Example:
        >>> import toolkit
        >>> cell = toolkit.layers.SimpleRNNCell(4)
        >>> output, states = cell(toolkit.ops.ones((2, 3)), [toolkit.ops.zeros((2, 4))])
        >>> output.shape, len(states)
        ((2, 4), 1)
    """

    gates = 1

    def step(
        self, x: TensorLike, states: Any, mask: Any = None
    ) -> tuple[Any, list[Any]]:
        h = states[0] if mask is None else states[0] * mask
        h = x + self.recur(h)
        h = h if self.activation is None else self.activation(h)
        return h, [h]

    def call(self, sequence: Any, states: Any, training: bool = False) -> Any:
        return super().call(sequence, states, training)


class GRUCell(Cell):
    """One step of a gated recurrent unit.

    `h' = z * h + (1 - z) * n`. The gates z and r are the recurrent activation of
    `x @ kernel + h @ recurrent_kernel + bias`, each with its part of the weights. With
    `reset_after`, `n = activation(x_n + r * h_n)`, with x_n and h_n the third parts
    of both products; otherwise `n = activation(x_n + (r * h) @ recurrent_kernel_n)`.

    Args:
        units: the size of state and output.
        activation: the activation of n.
        recurrent_activation: the activation of z and r.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, 3 * units).
        recurrent_initializer: initializer of the recurrent kernel, (units, 3 * units).
        bias_initializer: initializer of the bias: (2, 3 * units) if `reset_after`, for
            inputs and state, else (3 * units,).
        kernel_regularizer: regularizer of the kernel.
        recurrent_regularizer: regularizer of the recurrent kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint of the kernel, applied after each update.
        recurrent_constraint: constraint of the recurrent kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of the state to drop in training.
        reset_after: whether r is applied after the matrix product, as in the formula.
        seed: the seed of the dropout.
        **kwargs: also `implementation`. Subclasses see it in `get_dropout_mask`, which
            returns one mask (2) or a list of one mask per gate (1, as with
            `recurrent_dropout`). It has no other effect.

    Call arguments:
        inputs: (batch, features).
        states: [h], (batch, units).
        training: whether to apply dropout.

    Returns:
        (output, [new h]), both (batch, units).

    Example:
        >>> import toolkit
        >>> cell = toolkit.layers.GRUCell(4)
        >>> output, states = cell(toolkit.ops.ones((2, 3)), [toolkit.ops.zeros((2, 4))])
        >>> output.shape, len(states)
        ((2, 4), 1)

    Reference: https://arxiv.org/abs/1406.1078
    """

    gates = 3

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
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
        seed: Seed = None,
        **kwargs: Unpack[CellOptions],
    ) -> None:
        super().__init__(
            *(units, activation, use_bias),
            *(kernel_initializer, recurrent_initializer, bias_initializer),
            *(kernel_regularizer, recurrent_regularizer, bias_regularizer),
            *(kernel_constraint, recurrent_constraint, bias_constraint),
            *(dropout, recurrent_dropout, seed),
            **kwargs,
        )
        self.recurrent_activation: Any = activations.get(recurrent_activation)
        self.reset_after = reset_after

    def _create_bias(self, width: int) -> Variable:
        return create_weight(self, "bias", (2, width) if self.reset_after else (width,))

    def _add_input_bias(self, x: TensorLike) -> Any:
        if self.bias is None:
            return x
        return x + (self.bias[0] if self.reset_after else self.bias)

    def step(
        self, x: TensorLike, states: Any, mask: Any = None
    ) -> tuple[Any, list[Any]]:
        previous = states[0]
        h = previous if mask is None else previous * mask
        x_z, x_r, x_n = ops.split(x, 3, axis=-1)
        if self.reset_after:
            inner = self.recur(h)
            inner = inner if self.bias is None else inner + self.bias[1]
            h_z, h_r, h_n = ops.split(inner, 3, axis=-1)
        else:
            kernel_zr, kernel_n = ops.split(
                self.recurrent_kernel, [2 * self.units], axis=1
            )
            h_z, h_r = ops.split(ops.matmul(h, kernel_zr), 2, axis=-1)
        z = self.recurrent_activation(x_z + h_z)
        r = self.recurrent_activation(x_r + h_r)
        h_n = r * h_n if self.reset_after else ops.matmul(r * h, kernel_n)
        h = z * previous + (1 - z) * self.activation(x_n + h_n)
        return h, [h]


class LSTMCell(Cell):
    """One step of a long short-term memory.

    `c' = f * c + i * activation(g)` and `h' = o * activation(c')`. The gates i, f, g, o
    are the parts of `x @ kernel + h @ recurrent_kernel + bias` in this order; to i, f
    and o the recurrent activation is applied.

    Args:
        units: the size of states and output.
        activation: the activation of g and c.
        recurrent_activation: the activation of i, f and o.
        use_bias: whether there is a bias.
        kernel_initializer: initializer of the kernel, (features, 4 * units).
        recurrent_initializer: initializer of the recurrent kernel, (units, 4 * units).
        bias_initializer: initializer of the bias, (4 * units,).
        unit_forget_bias: whether the bias of f starts at 1, for any initializer.
        kernel_regularizer: regularizer of the kernel.
        recurrent_regularizer: regularizer of the recurrent kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint of the kernel, applied after each update.
        recurrent_constraint: constraint of the recurrent kernel, applied after each
            update.
        bias_constraint: constraint of the bias, applied after each update.
        dropout: the fraction of the inputs to drop in training.
        recurrent_dropout: the fraction of h to drop in training.
        seed: the seed of the dropout.
        **kwargs: also `implementation`. Subclasses see it in `get_dropout_mask`, which
            returns one mask (2) or a list of one mask per gate (1, as with
            `recurrent_dropout`). It has no other effect.

    Call arguments:
        inputs: (batch, features).
        states: [h, c], each (batch, units).
        training: whether to apply dropout.

    Returns:
        (output, [new h, new c]), all (batch, units).

    Example:
        >>> import toolkit
        >>> cell = toolkit.layers.LSTMCell(4)
        >>> states = [toolkit.ops.zeros((2, 4)), toolkit.ops.zeros((2, 4))]
        >>> output, states = cell(toolkit.ops.ones((2, 3)), states)
        >>> output.shape, len(states)
        ((2, 4), 2)

    Reference: https://www.bioinf.jku.at/publications/older/2604.pdf
    """

    gates = 4
    gate_axis = -1

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
        kernel_constraint: ConstraintLike | None = None,
        recurrent_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Seed = None,
        **kwargs: Unpack[CellOptions],
    ) -> None:
        super().__init__(
            *(units, activation, use_bias),
            *(kernel_initializer, recurrent_initializer, bias_initializer),
            *(kernel_regularizer, recurrent_regularizer, bias_regularizer),
            *(kernel_constraint, recurrent_constraint, bias_constraint),
            *(dropout, recurrent_dropout, seed),
            **kwargs,
        )
        self.recurrent_activation: Any = activations.get(recurrent_activation)
        self.unit_forget_bias = unit_forget_bias
        self.state_size: Any = [self.units, self.units]

    def _create_bias(self, width: int) -> Variable:
        initializer = self.bias_initializer

        def forget_bias_of_1(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
            sides = (
                initializer((self.units,), dtype=dtype),
                initializer((2 * self.units,), dtype=dtype),
            )
            forget_bias = ops.ones((self.units,), dtype=dtype)
            return ops.concatenate([sides[0], forget_bias, sides[1]])

        if not self.unit_forget_bias:
            return create_weight(self, "bias", (width,))
        return self.add_weight(
            shape=(width,),
            initializer=forget_bias_of_1,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
            name="bias",
        )

    def step(
        self, x: TensorLike, states: Any, mask: Any = None
    ) -> tuple[Any, list[Any]]:
        h, c = states
        h = h if mask is None else h * mask
        gates = ops.split(x + self.recur(h), 4, axis=self.gate_axis)
        i, f, o = (self.recurrent_activation(gates[k]) for k in (0, 1, 3))
        c = f * c + i * self.activation(gates[2])
        h = o * self.activation(c)
        return h, [h, c]
