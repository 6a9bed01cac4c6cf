"""The graph between the inputs and outputs of a functional model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit import tree
from toolkit.core.masks import mask_of, set_mask
from toolkit.errors import ArgumentError
from toolkit.ir import Node
from toolkit.ops.symbolic import KerasTensor, is_symbolic, record


def node_of(symbol: KerasTensor) -> Node | None:
    """Return the node that created a symbol, or None without a recorded call."""
    history = symbol._keras_history
    if history is None:
        return None
    node: Node = history.operation._inbound_nodes[history.node_index]
    return node


def is_input(symbol: KerasTensor) -> bool:
    """Return whether the symbol comes from `Input`."""
    node = node_of(symbol)
    return node is not None and not node.inputs


class Topology:
    """Nodes between inputs and outputs, ordered by depth.

    The depth of a node is the length of the longest path from it to an output. A layer
    with several calls has the depth of its deepest call. Nodes that compute masks of
    inputs count for depths and are then removed: a replayed layer computes its mask
    again.

    Attributes:
        nodes: the nodes that compute values, producers before consumers.
        all_nodes: all nodes, including mask computations, producers before consumers.
        depths: node -> depth, including the nodes of inputs.
        operations: layers and ops, deepest first; the order of `model.layers`.
    """

    def __init__(
        self,
        inputs: Sequence[KerasTensor],
        outputs: Sequence[KerasTensor],
        structure: Any = None,
    ) -> None:
        self.all_nodes: list[Node]
        self.all_nodes, first_seen = _search(inputs, outputs)
        members = _members(inputs, outputs, self.all_nodes)
        node_depths, operation_depths = _depths(self.all_nodes, members)
        for symbol in inputs:  # unused inputs are still inputs
            node = node_of(symbol)
            if node is not None and not node.inputs and node not in node_depths:
                node_depths[node] = operation_depths[node.op] = 0
                first_seen[node.op] = -1
        self.depths: dict[Node, int] = node_depths
        by_depth = defaultdict(list)
        for node, depth in node_depths.items():
            by_depth[depth].append(node)
        ordered = [
            node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]
        ]
        self.members: set[Node] = set(ordered)
        self.nodes: list[Node] = [node for node in ordered if node.inputs]
        self.operations: list[Any] = sorted(
            operation_depths, key=lambda op: (-operation_depths[op], first_seen[op])
        )
        _check_connected(inputs, outputs, self.nodes, structure)
        _check_names(self.operations)


def _search(
    inputs: Sequence[KerasTensor], outputs: Sequence[KerasTensor]
) -> tuple[list[Node], dict[Any, int]]:
    """Return the nodes from inputs to outputs, and the first visit of each operation.

    It is an iterative depth-first search from the outputs: models can be deep.
    """
    input_ids = {id(symbol) for symbol in inputs}
    finished: list[Node] = []
    is_done: set[Node] = set()
    first_seen: dict[Any, int] = {}
    stack: list[tuple[Node, Any]] = []
    on_stack: set[Node] = set()

    def enter(symbol: KerasTensor) -> None:
        node = node_of(symbol)
        if node is None or node in is_done or (id(symbol) in input_ids and node.inputs):
            return
        if node in on_stack:
            raise ArgumentError(f"Model: {symbol} depends on itself")
        first_seen.setdefault(node.op, len(first_seen))
        stack.append((node, iter(_needed(node))))
        on_stack.add(node)

    for output in outputs:
        enter(output)
        while stack:
            node, remaining = stack[-1]
            symbol = next(remaining, None)
            if symbol is not None:
                enter(symbol)
                continue
            stack.pop()
            on_stack.remove(node)
            is_done.add(node)
            finished.append(node)
    return finished, first_seen


def _needed(node: Node) -> tuple[KerasTensor, ...]:
    """Return the arguments of a call, and the masks of its inputs."""
    return (*node.inputs, *node.attrs.get("masks", ()))


def _members(
    inputs: Sequence[KerasTensor],
    outputs: Sequence[KerasTensor],
    nodes_found: list[Node],
) -> set[Node]:
    """Return the nodes that are not needed only for masks."""
    members = {node_of(symbol) for symbol in outputs}
    members.update(node_of(symbol) for symbol in inputs if is_input(symbol))
    for node in reversed(nodes_found):
        if node in members:
            members.update(map(node_of, node.inputs))
    return {node for node in nodes_found if node in members}


def _depths(
    nodes: list[Node], members: set[Node]
) -> tuple[dict[Node, int], dict[Any, int]]:
    """Return the depths of the members in `nodes`, and of their operations."""
    nodes_found = set(nodes)
    depths: dict[Node, int] = {}
    operations: dict[Any, int] = {}
    for node in reversed(nodes):
        depth = max(depths.get(node, 0), operations.get(node.op, 0))
        depths[node] = operations[node.op] = depth
        for symbol in _needed(node):
            parent = node_of(symbol)
            if parent in nodes_found:
                depths[parent] = max(depth + 1, depths.get(parent, 0))
    member_ops = {node.op for node in members}
    return (
        {node: depth for node, depth in depths.items() if node in members},
        {op: depth for op, depth in operations.items() if op in member_ops},
    )


def _fix_of_input(symbol: KerasTensor) -> str:
    """Return the likely fix for a symbol that depends on no input of the model."""
    if is_input(symbol):
        return f"; add {symbol.name!r} to the inputs of the model"
    return ""


def _check_connected(
    inputs: Sequence[KerasTensor],
    outputs: Sequence[KerasTensor],
    nodes: list[Node],
    structure: Any,
) -> None:
    input_ids = {id(symbol) for symbol in inputs}
    paths = tree.flatten_with_path(list(outputs) if structure is None else structure)
    reached: list[str] = []
    for node in nodes:
        for symbol in node.inputs:
            if id(symbol) not in input_ids:
                raise ArgumentError(
                    "Model: the graph is disconnected: "
                    f"{_missing_path(inputs, paths)}{node.op.name!r} needs {symbol}, "
                    "which does not depend on the inputs "
                    f"{[i.name for i in inputs]}; reached without it: {reached}"
                    f"{_fix_of_input(symbol)}"
                )
        reached.append(node.op.name)
        input_ids.update(map(id, node.outputs))
    for symbol in outputs:
        if id(symbol) not in input_ids:
            raise ArgumentError(
                f"Model: {_missing_path(inputs, paths)}{symbol} does not depend on "
                f"the inputs {[i.name for i in inputs]}"
            )


def _missing_path(
    inputs: Iterable[KerasTensor], outputs: Iterable[tuple[Any, KerasTensor]]
) -> str:
    """Return the start of a message: the output that depends on other inputs."""
    for path, output in outputs:
        waiting, visited = [output], {id(symbol) for symbol in inputs}
        while waiting:
            symbol = waiting.pop()
            if id(symbol) in visited:
                continue
            visited.add(id(symbol))
            node = node_of(symbol)
            if node is None or not node.inputs:
                path_text = ".".join(map(str, path))
                which = f"with path `{path_text}`" if path else repr(output.name)
                return f"Output {which} is not connected to `inputs`: "
            waiting += node.inputs
    return ""


def _check_names(operations: list[Any]) -> None:
    counts = Counter(operation.name for operation in operations)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise ArgumentError(
            "Model: expected unique layer names; received several layers named "
            f"{', '.join(map(repr, repeated))}"
        )


def replace_inputs(
    inputs: Sequence[KerasTensor], outputs: Any, make_input: Any
) -> tuple[list[KerasTensor], Any]:
    """Replace each input that is the result of a call by a new `Input`.

    The calls after it are recorded again on new symbols, so that the model has a
    separate graph. `make_input(symbol)` creates the replacement of `symbol`.
    """
    nodes_found = Topology(inputs, tree.flatten(outputs)).all_nodes
    fresh = {id(s): s if is_input(s) else make_input(s) for s in inputs}

    def substitute(leaf: Any) -> Any:
        return fresh.get(id(leaf), leaf)

    def copy(leaf: Any) -> Any:
        if not is_symbolic(leaf):
            return leaf
        symbol = KerasTensor(leaf.shape, leaf.dtype)
        set_mask(symbol, mask_of(leaf))
        fresh[id(leaf)] = symbol
        return symbol

    for node in nodes_found:
        if not any(id(symbol) in fresh for symbol in _needed(node)):
            continue  # it computes a mask from values before the inputs
        args, kwargs = tree.map_structure(substitute, node.attrs["arguments"])
        copies = tree.map_structure(copy, node.attrs["outputs"])
        masks = [fresh[id(m)] for m in node.attrs["masks"] if id(m) in fresh]
        record(node.op, args, kwargs, copies, masks)
    for symbol in list(fresh.values()):
        set_mask(symbol, substitute(mask_of(symbol)))
    return [fresh[id(s)] for s in inputs], tree.map_structure(substitute, outputs)


def get_source_inputs(tensor: KerasTensor) -> list[KerasTensor]:
    """Return the `Input` symbols that a symbol depends on.

    Args:
        tensor: a symbolic tensor.

    Returns:
        A list of symbolic tensors.

    Example:
        >>> import toolkit
        >>> x = toolkit.Input((3,), name="x")
        >>> [s.name for s in toolkit.utils.get_source_inputs(x + 1.0)]
        ['x']
    """
    nodes_found: dict[int, KerasTensor] = {}
    visited: set[Node] = set()
    waiting = [tensor]
    while waiting:
        symbol = waiting.pop(0)
        node = node_of(symbol)
        if node is None or not node.inputs:
            nodes_found.setdefault(id(symbol), symbol)
        elif node not in visited:
            visited.add(node)
            waiting += node.inputs
    return list(nodes_found.values())
