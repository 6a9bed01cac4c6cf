"""Nodes of a functional model with the attributes of Keras's nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from toolkit import tree
from toolkit.ir import Node
from toolkit.models.functional.topology import node_of
from toolkit.ops.symbolic import KerasTensor, is_symbolic


class SymbolicArguments:
    """The arguments of a recorded call.

    Attributes:
        args, kwargs: the arguments, with symbols.
        keras_tensors: the symbols in the arguments, in order.
    """

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        leaves = tree.flatten((args, kwargs))
        self.keras_tensors: list[KerasTensor] = [x for x in leaves if is_symbolic(x)]

    def convert(self, conversion_fn: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Return args and kwargs with `conversion_fn` applied to each leaf."""
        args, kwargs = tree.map_structure(conversion_fn, (self.args, self.kwargs))
        return args, kwargs

    def fill_in(self, tensor_dict: Mapping[int, Any]) -> tuple[Any, Any]:
        """Return args and kwargs, with values instead of symbols.

        Args:
            tensor_dict: the id of a symbol -> its value.
        """
        return self.convert(lambda x: tensor_dict[id(x)] if is_symbolic(x) else x)


class NodeView:
    """Recorded call in the form that libraries for Keras read.

    Attributes:
        operation: the layer or operation.
        arguments: the arguments of the call.
        outputs: the symbols that the call returned.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.operation: Any = node.op
        args, kwargs = node.attrs["arguments"] if node.inputs else ((), {})
        self.arguments: SymbolicArguments = SymbolicArguments(args, kwargs)
        self.outputs: list[KerasTensor] = list(node.outputs)

    @property
    def input_tensors(self) -> list[KerasTensor]:
        """Return the symbols in the arguments."""
        return self.arguments.keras_tensors

    @property
    def output_tensors(self) -> list[KerasTensor]:
        """Return the symbols that the call returned."""
        return self.outputs

    @property
    def is_input(self) -> bool:
        """Return whether the node is an `Input`."""
        return not self.input_tensors

    @property
    def parent_nodes(self) -> list[NodeView]:
        """Return the nodes that computed the arguments."""
        nodes = dict.fromkeys(map(node_of, self.input_tensors))
        return [NodeView(node) for node in nodes if node is not None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeView) and self._node is other._node

    def __hash__(self) -> int:
        return id(self._node)

    def __repr__(self) -> str:
        return f"<Node operation={self.operation.name}>"


def nodes_by_depth(depths: Mapping[Node, int]) -> dict[int, list[NodeView]]:
    """Return depth -> nodes; the nodes of the outputs have depth 0."""
    nodes: dict[int, list[NodeView]] = defaultdict(list)
    for node, depth in depths.items():
        nodes[depth].append(NodeView(node))
    return dict(sorted(nodes.items()))
