"""The symbolic inputs and outputs of a functional model as properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import tree
from toolkit.ops.symbolic import KerasTensor


class FunctionalSymbols:
    """Part of a functional model that provides its symbolic inputs and outputs."""

    _inputs: list[KerasTensor]
    _outputs: list[KerasTensor]
    _inputs_struct: Any
    _outputs_struct: Any

    @property
    def inputs(self) -> list[KerasTensor]:
        """Return the symbols of the inputs, in one list."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[KerasTensor]:
        """Return the symbols of the outputs, in one list."""
        return list(self._outputs)

    @property
    def input(self) -> Any:
        """Return the symbols of the inputs, in their original nest."""
        return tree.copy_containers(self._inputs_struct)

    @property
    def output(self) -> Any:
        """Return the symbols of the outputs, in their original nest."""
        return tree.copy_containers(self._outputs_struct)

    @property
    def input_shape(self) -> Any:
        """Return the shape of the input, or a list of them."""
        return only([x.shape for x in self._inputs])

    @property
    def output_shape(self) -> Any:
        """Return the shape of the output, or a list of them."""
        return only([x.shape for x in self._outputs])


def only(values: Sequence[Any]) -> Any:
    """Return the only value, or a list of all values."""
    return values[0] if len(values) == 1 else list(values)
