"""Building and calling of recurrent cells, and stacks of cells."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from toolkit import ops, tree
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.call import context, map_shapes
from toolkit.layers.cells import Cell
from toolkit.layers.config import WithParts
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import KerasTensor, infer
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike


class StackedRNNCells(WithParts, Layer):
    """Stack of cells: each cell receives the output of the previous one.

    Args:
        cells: a list of cells.

    Example:
        >>> import toolkit
        >>> cells = [toolkit.layers.LSTMCell(3), toolkit.layers.LSTMCell(4)]
        >>> layer = toolkit.layers.RNN(toolkit.layers.StackedRNNCells(cells))
        >>> layer(toolkit.ops.ones((2, 5, 6))).shape
        (2, 4)
    """

    def __init__(self, cells: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        for cell in cells:
            if not callable(getattr(cell, "call", None)) or not hasattr(
                cell, "state_size"
            ):
                raise ArgumentError(
                    "StackedRNNCells: a cell needs `call(inputs, states)` and "
                    f"`state_size`; received {cell!r}"
                )
        self.cells: list[Any] = list(cells)

    @property
    def state_size(self) -> list[Any]:
        """Return the state sizes of each cell."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> Any:
        """Return the output size of the last cell."""
        return output_size_of(self.cells[-1])

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """Return the initial states of each cell: from the cell, or zeros.

        Args:
            batch_size: the number of sequences.
        """
        return [self._first_state(cell, batch_size) for cell in self.cells]

    def _first_state(self, cell: Any, batch_size: Any) -> Any:
        """Return the initial state: a tensor for an integer state size, else a list."""
        initial = getattr(cell, "get_initial_state", None)
        if initial is not None:
            states_out = initial(batch_size=batch_size)
            return list(states_out) if tree.is_nested(states_out) else states_out

        def zeros(size: int) -> Tensor:
            return ops.zeros((batch_size, size), dtype=self.compute_dtype)

        size = cell.state_size
        return [zeros(n) for n in size] if tree.is_nested(size) else zeros(size)

    def build(self, input_shape: Any) -> None:
        for cell in self.cells:
            build_cell(cell, input_shape, partial(self._first_state, cell))
            batch = first_shape(input_shape)[0]
            input_shape = (batch, *extents(output_size_of(cell)))

    def stacked_step(self, inputs: Any, training: bool | None) -> Any:
        """Return one step of all cells, with constant dropout masks over a sequence.

        Args:
            inputs: one step, or all steps, of the sequences.
            training: whether to apply dropout.
        """
        batch, features = tree.flatten(inputs)[0].shape[-2:]
        masks = []
        for cell in self.cells:
            has_dropout_masks = is_stepped(cell)
            masks.append(
                cell.dropout_masks(batch, features, training)
                if has_dropout_masks
                else None
            )
            features = output_size_of(cell)

        def step(x: TensorLike, states: Any) -> Any:
            new_states = []
            for cell, cell_states, mask in zip(self.cells, states, masks, strict=True):
                if mask is not None:
                    x, states_out = cell.step(
                        cell.project(x, mask[0]), cell_states, mask[1]
                    )
                else:
                    x, states_out = apply_cell(cell, x, cell_states, training)
                new_states.append(states_out)
            return x, new_states

        return step

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        return self.stacked_step(inputs, training)(inputs, states)


def is_stepped(cell: Any) -> bool:
    """Return whether `project` and `step` replace `call`: no class overrides it."""
    return isinstance(cell, Cell) and cell._info.own


def first_shape(shapes: Any) -> tuple[Any, ...]:
    """Return the first shape of a structure of shapes."""
    states_out: list[Any] = []
    map_shapes(states_out.append, shapes)
    return tuple(states_out[0])


def extents(size: Any) -> tuple[int, ...]:
    """Return the shape of a state without the batch, from an integer or a shape."""
    return tuple(size) if isinstance(size, (list, tuple)) else (size,)


def apply_cell(cell: Any, x: TensorLike, states: Any, training: bool | None) -> Any:
    """Call a user's cell; return the output and the new states in the old structure."""
    call = cell if callable(cell) else cell.call
    takes_training = isinstance(cell, Layer) and cell._info.takes_training
    options = {"training": training} if takes_training else {}
    is_list = tree.is_nested(states)
    x, states_out = call(x, list(states) if is_list else [states], **options)
    leaves = tree.flatten(states_out)
    if len(leaves) == len(tree.flatten(states)):
        return x, tree.pack_sequence_as(states, leaves)
    states_out = list(states_out) if tree.is_nested(states_out) else [states_out]
    return x, states_out if is_list or len(states_out) > 1 else states_out[0]


def build_cell(cell: Any, step_shape: Any, initial_state: Any) -> None:
    """Create the weights of a cell, unless it has them.

    Args:
        cell: a layer, or any other object (which has no weights to create).
        step_shape: the shape of one step, or a structure of shapes.
        initial_state: a function from a batch size to the initial states.
    """
    if not isinstance(cell, Layer) or cell.built:
        return
    if not cell._needs_no_build():
        cell.build(step_shape)
        return
    if context.is_eager:  # the first call builds it
        return
    # A cell without `build` has sublayers that only a call with states builds.
    dtype = cell.compute_dtype
    symbols = map_shapes(lambda shape: KerasTensor(shape, dtype), step_shape)

    def call(x: TensorLike) -> Any:
        return apply_cell(cell, x, initial_state(tree.flatten(x)[0].shape[0]), False)

    with context.override(symbolic=True):
        infer(call, (symbols,), {})


def output_size_of(cell: Any) -> Any:
    """Return the size of a cell's outputs: by default the size of its first state."""
    size = getattr(cell, "output_size", None)
    if size is not None:
        return size
    state = cell.state_size
    return state[0] if isinstance(state, (list, tuple)) else state
