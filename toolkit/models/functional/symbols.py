"""The symbols that a functional model was made from, as its properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import tree
from toolkit.ops.symbolic import KerasTensor


class FunctionalSymbols:
    """The part of a functional model that tells its inputs and outputs."""

    _inputs: list[KerasTensor]
    _outputs: list[KerasTensor]
    _inputs_struct: Any
    _outputs_struct: Any

    @property
    def inputs(self) -> list[KerasTensor]:
        """The symbols of the inputs, in one list."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[KerasTensor]:
        """The symbols of the outputs, in one list."""
        return list(self._outputs)

    @property
    def input(self) -> Any:
        """The symbols of the inputs, as they were given."""
        return tree.copied(self._inputs_struct)

    @property
    def output(self) -> Any:
        """The symbols of the outputs, as they were given."""
        return tree.copied(self._outputs_struct)

    @property
    def input_shape(self) -> Any:
        """The shape of the input, or a list of them."""
        return only([x.shape for x in self._inputs])

    @property
    def output_shape(self) -> Any:
        """The shape of the output, or a list of them."""
        return only([x.shape for x in self._outputs])


def only(values: Sequence[Any]) -> Any:
    """The only value, or a list of all."""
    return values[0] if len(values) == 1 else list(values)
