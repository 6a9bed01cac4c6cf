"""Function: a part of a symbolic graph, callable like a function."""

from __future__ import annotations

from typing import Any

from toolkit import tree
from toolkit.core.convert import convert
from toolkit.errors import ArgumentError, ShapeError
from toolkit.models.functional.node_views import NodeView, nodes_by_depth
from toolkit.models.functional.topology import Topology
from toolkit.ops.symbolic import KerasTensor, Operation, infer, is_symbolic
from toolkit.type_aliases import Shape


class Function(Operation):
    """Operations between given symbols, as one operation.

    Args:
        inputs: symbolic tensors in any nest; they do not need to come from `Input`.
        outputs: symbolic tensors that were computed from the inputs, in any nest.
        name: the name; generated if None.

    Call arguments:
        inputs: tensors or symbols, nested as `inputs`.

    Example:
        >>> import toolkit
        >>> x = toolkit.KerasTensor((2,))
        >>> double = toolkit.Function(x, x * 2.0)
        >>> double([1.0, 3.0]).tolist()
        [2.0, 6.0]
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None) -> None:
        super().__init__(name)
        for argument, structure in (("inputs", inputs), ("outputs", outputs)):
            leaves = tree.flatten(structure)
            if not leaves:
                raise ArgumentError(f"Function: `{argument}` argument cannot be empty")
            if not all(map(is_symbolic, leaves)):
                raise ArgumentError(
                    f"Function: expected KerasTensors as `{argument}`; "
                    f"received {leaves}"
                )
        self._inputs_struct, self._outputs_struct = inputs, outputs
        self.inputs: list[KerasTensor] = tree.flatten(inputs)
        self.outputs: list[KerasTensor] = tree.flatten(outputs)
        self._topology = Topology(self.inputs, self.outputs, outputs)

    @property
    def operations(self) -> list[Any]:
        """Return the operations in order, from inputs to outputs."""
        return list(self._topology.operations)

    @property
    def _nodes_by_depth(self) -> dict[int, list[NodeView]]:
        """Return depth -> nodes, which libraries for Keras read."""
        return nodes_by_depth(self._topology.depths)

    def call(self, inputs: Any) -> Any:
        """Replay the recorded calls on `inputs`.

        Args:
            inputs: tensors in the structure of the inputs.

        Returns:
            Tensors in the structure of the outputs.
        """
        values = dict(zip(map(id, self.inputs), self._checked(inputs), strict=True))

        def stand_in(leaf: Any) -> Any:
            return values[id(leaf)] if is_symbolic(leaf) else leaf

        for node in self._topology.nodes:
            args, kwargs = tree.map_structure(stand_in, node.attrs["arguments"])
            results = tree.flatten(node.op(*args, **kwargs))
            symbols = tree.flatten(node.attrs["outputs"])
            values.update(zip(map(id, symbols), results, strict=True))
        return tree.map_structure(stand_in, self._outputs_struct)

    def _checked(self, inputs: Any) -> list[Any]:
        """Return the inputs as tensors in one list."""
        nested = tree.is_nested(self._inputs_struct)
        same = not nested or isinstance(inputs, type(self._inputs_struct))
        leaves = tree.flatten(inputs) if nested else [inputs]
        if not same or len(leaves) != len(self.inputs):
            raise ArgumentError(
                f"Function {self.name!r} received an invalid input structure: expected "
                f"{self._inputs_struct}; received {inputs!r}"
            )
        tensors = [convert(x) for x in leaves]
        for x, symbol in zip(tensors, self.inputs, strict=True):
            pairs = zip(x.shape, symbol.shape, strict=False)
            if x.ndim != symbol.ndim or any(n not in (None, m) for m, n in pairs):
                raise ShapeError(
                    f"Function {self.name!r} received incompatible inputs: expected "
                    f"shape {symbol.shape} for {symbol.name!r}; "
                    f"received shape {x.shape}"
                )
        return tensors

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return the symbolic outputs of a call with these symbols.

        Args:
            inputs: symbolic tensors in the structure of the inputs.
        """
        return infer(self.call, (inputs,), {})

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Return the shapes of the outputs for inputs of these shapes.

        Args:
            input_shape: the shape, or shapes, of the inputs.
        """
        shapes = tree.flatten_up_to(self._inputs_struct, input_shape)
        symbols = [
            KerasTensor(shape, symbol.dtype)
            for shape, symbol in zip(shapes, self.inputs, strict=True)
        ]
        packed = tree.pack_sequence_as(self._inputs_struct, symbols)
        return tree.map_structure(lambda x: x.shape, self.compute_output_spec(packed))
