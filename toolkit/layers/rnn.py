"""Recurrent layers: a cell applied to the steps of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolkit import activations, ops, tree
from toolkit.control_flow.loops import scan
from toolkit.control_flow.recurrent import run_recurrence
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.core.trace import no_trace
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.call import context, is_shape, map_shapes
from toolkit.layers.cell_dropout import DropoutRNNCell, one_mask
from toolkit.layers.cell_stacks import (
    StackedRNNCells,
    apply_cell,
    build_cell,
    extents,
    first_shape,
    is_stepped,
    output_size_of,
)
from toolkit.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell
from toolkit.layers.config import WithParts
from toolkit.layers.input_spec import InputSpec, describe
from toolkit.layers.layer import Layer
from toolkit.layers.tracking import no_tracking
from toolkit.type_aliases import IntOrInts, RegularizedLayerOptions, Shape, TensorLike

# Names of cells in ONNX and cuDNN.
_STANDARD_CELLS: dict[type[Cell], str] = {
    SimpleRNNCell: "rnn",
    GRUCell: "gru",
    LSTMCell: "lstm",
}
# Activations of cells in ONNX and cuDNN.
_ACTIVATIONS = ("tanh", "sigmoid", "hard_sigmoid", "relu", "softsign", "linear")


class RNN(WithParts, Layer):
    """Recurrent layer with any cell.

    Args:
        cell: a layer with `call(inputs, states) -> (output, new states)`, `state_size`
            (an integer or a list) and optionally `output_size` and
            `get_initial_state(batch_size)`; or a list of cells, which are stacked.
        return_sequences: whether to return the outputs of all steps, or only the last
            one.
        return_state: whether to also return the last states.
        go_backwards: whether to process the steps in reverse order; outputs have that
            order.
        stateful: whether each call starts with the final states of the previous call.
        unroll: whether to unroll the loop in the graph.
        zero_output_for_mask: whether the output of a masked step is 0; otherwise it is
            the output of the previous step.

    Call arguments:
        sequences: (batch, steps, features); for a custom cell also a structure of such
            tensors, of which the cell receives each step.
        initial_state: a list of states; zeros if None.
        mask: (batch, steps); steps with False leave the states unchanged.
        training: passed to the cell, for its dropout.

    Returns:
        (batch, units), or (batch, steps, units) if `return_sequences`; a tuple with the
        states if `return_state`.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RNN(toolkit.layers.GRUCell(4), return_sequences=True)
        >>> layer(toolkit.ops.ones((2, 5, 3))).shape
        (2, 5, 4)
    """

    _traces_call = True

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell, dtype=self.dtype_policy)
        if not callable(getattr(cell, "call", None)) or not hasattr(cell, "state_size"):
            raise ArgumentError(
                f"{type(self).__name__}: a cell needs `call(inputs, states)` and "
                f"`state_size`; received {cell!r}"
            )
        self.cell = cell
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.unroll = unroll
        self.zero_output_for_mask = zero_output_for_mask
        self.supports_masking = True
        if not _takes_structures(cell):
            self.input_spec = InputSpec(min_ndim=3)
        self.states: Any = None

    @property
    def state_size(self) -> list[Any]:
        """Return the sizes of the cell's states."""
        size = self.cell.state_size
        return list(size) if isinstance(size, (list, tuple)) else [size]

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        if self._input_spec is None:
            _check_ranks(self, sequences_shape)
        step_shape = map_shapes(lambda shape: (shape[0], *shape[2:]), sequences_shape)
        build_cell(self.cell, step_shape, self.get_initial_state)
        if self.stateful:
            self._create_states(sequences_shape)

    def _create_states(self, sequences_shape: Any) -> None:
        shape = first_shape(sequences_shape)
        if shape[0] is None:
            raise ArgumentError(
                f"{type(self).__name__} {self.name!r}: stateful=True needs a fixed "
                f"batch size; received shape {tuple(shape)}"
            )
        # They are not weights: files do not contain them.
        with no_tracking(), no_trace():
            self.states = tree.map_structure(
                lambda x: Variable(
                    x, dtype=self.variable_dtype, trainable=False, name="rnn_state"
                ),
                self.get_initial_state(shape[0]),
            )

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """Return the initial states: from the cell, or zeros.

        Args:
            batch_size: the number of sequences.
        """
        initial = getattr(self.cell, "get_initial_state", None)
        if initial is None:
            dtype = self.cell.compute_dtype
            return [ops.zeros((batch_size, n), dtype=dtype) for n in self.state_size]
        result = initial(batch_size=batch_size)
        return list(result) if tree.is_nested(result) else [result]

    def reset_state(self) -> None:
        """Reset the states of a stateful layer to zeros."""
        for variable in tree.flatten(self.states) if self.states else ():
            variable.assign(ops.zeros(variable.shape, dtype=variable.dtype))

    reset_states = reset_state

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool = False,
    ) -> Any:
        if self._input_spec is None:
            _check_ranks(self, tree.map_structure(lambda x: x.shape, sequences))
        states = self._first_states(sequences, initial_state)
        # Transpose steps to the front before the projection: this moves less data, and
        # each step is contiguous.
        xs = tree.map_structure(_time_first, sequences)
        xs, step = step_function(self.cell, xs, training)
        mask = next((m for m in tree.flatten(mask) if m is not None), None)
        calls = _dropping_calls(self.cell, sequences, states) if training else []
        with one_mask(calls):
            last, outputs, states = self._loop(xs, step, states, mask, training)
        if self.stateful:
            for variable, value in zip(
                tree.flatten(self.states), tree.flatten(states), strict=True
            ):
                # The caller can write to the array of an output, which is a state.
                variable.assign(ops.multiply(value, 1))
        output = outputs if self.return_sequences else last
        return (output, *states) if self.return_state else output

    def _first_states(self, sequences: Any, initial_state: Any) -> list[Any]:
        first = tree.flatten(sequences)[0]
        batch = first.shape[0]
        if initial_state is None and not self.stateful:
            initial_state = self.get_initial_state(batch)
        states = self.states if initial_state is None else initial_state
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        if len(states) != len(self.state_size):
            raise ArgumentError(
                f"{type(self).__name__}: expected {len(self.state_size)} initial "
                f"states; received {len(states)}"
            )
        states = tree.map_structure(
            lambda x: convert(x, self.cell.compute_dtype), states
        )
        for state in tree.flatten(states):
            if state.shape[0] != batch:
                raise ShapeError(
                    f"{type(self).__name__}: the batch size of states and sequences "
                    f"differs: {state.shape} and {first.shape}"
                )
        return states

    def _loop(
        self, xs: Any, step: Any, states: list[Any], mask: Any, training: bool | None
    ) -> tuple[Any, Any, Any]:
        """Return the last output, all outputs (or None), and the last states."""
        size = extents(getattr(self.cell, "output_size", None) or self.state_size[0])
        batch = tree.flatten(xs)[0].shape[1]
        zeros = ops.zeros((batch, *size), dtype=self.cell.compute_dtype)

        def body(carry: Any, items: Any) -> Any:
            states, previous = carry
            output, new_states = step(items[0], states)
            if len(items) > 1:
                masked_output = zeros if self.zero_output_for_mask else previous
                output = _where_kept(items[1], output, masked_output)
                new_states = tree.map_structure(
                    lambda new, old: _where_kept(items[1], new, old), new_states, states
                )
            return (new_states, output), output if self.return_sequences else None

        items: tuple[Any, ...] = (xs,)
        items = items if mask is None else (*items, _time_first(ops.cast(mask, "bool")))
        unroll = self.unroll and not context.symbolic
        cell_kind = (
            None if unroll else _find_standard_cell(self.cell, masked=len(items) > 1)
        )
        if cell_kind is not None and _is_projected(self.cell) and not training:
            result = run_recurrence(
                *cell_kind, body, (states, zeros), items, self.go_backwards
            )
        else:
            result = scan(
                body,
                (states, zeros),
                items,
                reverse=self.go_backwards,
                unroll=True if unroll else 1,
            )
        (states, last), outputs = result
        if outputs is not None:
            outputs = ops.flip(outputs, axis=0) if self.go_backwards else outputs
            outputs = _time_first(outputs)
        return last, outputs, states

    def compute_output_shape(
        self, sequences_shape: Any, initial_state_shape: Any = None
    ) -> Any:
        """Return the shape of the output, and of the states if they are returned.

        Args:
            sequences_shape: the shape of the sequences.
            initial_state_shape: shapes of the states, or None.
        """
        batch, steps = first_shape(sequences_shape)[:2]
        size = extents(output_size_of(self.cell))
        shape = (batch, steps, *size) if self.return_sequences else (batch, *size)
        if not self.return_state:
            return shape
        return (shape, *(_state_shapes(batch, n) for n in self.state_size))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        mask = tree.flatten(mask)[0] if self.return_sequences else None
        return [mask, *(None for _ in self.state_size)] if self.return_state else mask


def _takes_structures(cell: Any) -> bool:
    """Return whether a cell accepts several inputs; cells of this package do not."""
    while isinstance(cell, StackedRNNCells):
        cell = cell.cells[0]
    return not isinstance(cell, Cell)


def _check_ranks(layer: Layer, shapes: Any) -> None:
    """Raise unless there are axes for batch, steps and (of one input) features."""
    minimum = 3 if is_shape(shapes) else 2

    def check(shape: Shape) -> None:
        if len(shape) < minimum:
            raise ShapeError(
                f"{describe(layer)}: expected sequences with at least {minimum} axes, "
                f"(batch, steps, ...); received shape {tuple(shape)}"
            )

    map_shapes(check, shapes)


def _state_shapes(batch: int | None, size: IntOrInts) -> Any:
    """Return the shape of one state, or of the states of each stacked cell."""
    if isinstance(size, (list, tuple)):
        return [_state_shapes(batch, n) for n in size]
    return (batch, size)


def _time_first(x: TensorLike) -> Tensor:
    """Swap batch and steps."""
    return ops.swapaxes(x, 0, 1)


def _where_kept(mask: Any, new: Any, old: Any) -> Tensor:
    """Return `new` where the mask is True, else `old`."""
    shape = (mask.shape[0], *(1,) * (new.ndim - 1))
    return ops.where(ops.reshape(mask, shape), new, old)


def step_function(cell: Any, inputs: Any, training: bool | None) -> tuple[Any, Any]:
    """Return the inputs of the loop for all steps, and the function of one step.

    Cells of this package project all steps at once, and use one dropout mask for all.

    Args:
        cell: the cell of a recurrent layer.
        inputs: (steps, batch, ...).
        training: whether to apply dropout.
    """
    if _is_projected(cell):
        masks = cell.dropout_masks(inputs.shape[1], inputs.shape[-1], training)
        xs = cell.project(inputs, masks[0])
        return xs, lambda x, states: cell.step(x, states, masks[1])
    if isinstance(cell, StackedRNNCells):
        return inputs, cell.stacked_step(inputs, training)
    return inputs, lambda x, states: apply_cell(cell, x, states, training)


def _is_projected(cell: Any) -> bool:
    """Return whether all steps are projected at once, in the layer's dtypes."""
    return is_stepped(cell) and cell.dtype_policy == context.layer.dtype_policy


def _dropping_calls(
    cell: Any, sequences: Any, states: Any
) -> list[tuple[Any, Any, Any]]:
    """Return the cells with dropout in `call`, with inputs and initial state of a step.

    Args:
        cell: the cell of a recurrent layer.
        sequences: (batch, steps, ...).
        states: the states of the layer.
    """
    stacked = isinstance(cell, StackedRNNCells)
    cells = cell.cells if stacked else [cell]
    steps = is_stepped if stacked else _is_projected
    dropping = [isinstance(c, DropoutRNNCell) and not steps(c) for c in cells]
    if not any(dropping):
        return []
    calls: list[tuple[Any, Any, Any]] = []
    x = tree.map_structure(lambda sequence: sequence[:, 0], sequences)
    states = states if stacked else [states]
    for one, drops, own_states in zip(cells, dropping, states, strict=True):
        if drops:
            calls.append((one, x, tree.flatten(own_states)[0]))
        first = tree.flatten(x)[0]
        x = ops.ones((first.shape[0], *extents(output_size_of(one))), dtype=first.dtype)
    return calls


def _find_standard_cell(cell: Any, masked: bool) -> tuple[str, dict[str, Any]] | None:
    """Return the name and properties of a standard cell; None for a custom cell.

    Args:
        cell: the cell of a recurrent layer.
        masked: whether steps are masked; the mask is then a part of the loop.
    """
    kind = next((kind for kind in _STANDARD_CELLS if isinstance(cell, kind)), None)
    if kind is None or type(cell).step is not kind.step:
        return None
    used = [cell.recurrent_activation] if cell.gates > 1 else []
    names = tuple(map(_find_activation_name, [*used, cell.activation]))
    if type(cell).recur is not Cell.recur or None in names:
        return None
    properties: dict[str, Any] = {"activations": names, "masked": masked}
    if kind is GRUCell:
        properties["reset_after"] = cell.reset_after
    return _STANDARD_CELLS[kind], properties


def _find_activation_name(function: Callable[..., Any]) -> str | None:
    """Return the name of an activation that ONNX and cuDNN support, or None."""
    if function is None:
        return "linear"
    names = (name for name in _ACTIVATIONS if activations.get(name) is function)
    return next(names, None)
