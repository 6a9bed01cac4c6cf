"""Assignment of a graph's arrays to weights: layer, name and order of axes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.models.importing.operators import OPERATORS
from toolkit.models.importing.values import Order, file_order, kernel_order
from toolkit.reading.onnx.graph import (
    OnnxGraph,
    OnnxNode,
)
from toolkit.type_aliases import Array

Use = tuple[OnnxNode, int]
_SMALL = 1_024  # elements of an integer array that is a constant, not a weight
# Operators whose parameters are learned at any size.
_LEARNED = {
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu", "LSTM", "GRU", "RNN"),
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization"),
    *("GroupNormalization", "RMSNormalization"),
}
_ROLES = ("weight", "bias", "kernel", "gamma", "beta", "alpha", "scale", "slope")
# Operators that compare or select: their operands are not learned.
_COMPARING = {
    *("Where", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Cast"),
    *("Max", "Min", "Clip", "Mod", "OneHot", "Resize", "Pad"),
}


# The input index of kernels of convolutions.
_KERNELS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
# Scales and zero points belong to integers, which are not trained.
_QUANTIZED = {
    *("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"),
    *("ConvInteger", "MatMulInteger"),
}


@record
class Weight:
    """Array of the file that is a Variable.

    Args:
        source: its name in the graph.
        layer, name: the name of the layer, and of the Variable.
        shape: the shape of the Variable.
        dtype: the dtype of both.
        order: the axes of the file, in the order of the Variable.
        trainable: whether optimizers update it.
    """

    source: str
    layer: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    order: Order
    trainable: bool


def chosen_weights(graph: OnnxGraph) -> list[Weight]:
    """Return the weights of a graph, in the order in which its nodes use them."""
    uses = _uses(graph)
    static_names = _needed_on_host(graph)
    names = _Names()
    weights = []
    for source, users in uses.items():
        array = graph.initializers[source]
        if source in static_names or not _is_weight(source, array, users):
            continue
        order = _order(array, users)
        layer, name = names.of(source, users)
        shape = tuple(array.shape[i] for i in order)
        dtype = dtypes.standardize(array.dtype)
        is_trained = _is_trainable(array, users)
        weights.append(Weight(source, layer, name, shape, dtype, order, is_trained))
    return weights


def with_large_constants(graph: OnnxGraph) -> OnnxGraph:
    """Return the graph with large constants of nodes as initializers."""
    arrays, nodes = dict(graph.initializers), []
    name_by_id: dict[int, str] = {}
    for node in graph.nodes:
        value = node.attributes.get("value")
        is_large = isinstance(value, np.ndarray) and value.size > _SMALL
        if node.op == "Constant" and is_large and len(node.outputs) == 1:
            # An array of a function with several calls is one weight.
            index = name_by_id.setdefault(id(value), node.outputs[0])
            if index == node.outputs[0]:
                arrays[index] = np.asarray(value)
            else:
                same = replace(node, op="Identity", inputs=(index,), attributes={})
                nodes.append(same)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), initializers=arrays)


def _uses(graph: OnnxGraph) -> dict[str, list[Use]]:
    """Return the nodes that use each initializer, and its input index there."""
    uses: dict[str, list[Use]] = defaultdict(list)
    for node in _all_nodes(graph):
        for index, name in enumerate(node.inputs):
            if name in graph.initializers:
                uses[name].append((node, index))
    return uses


def _all_nodes(graph: OnnxGraph) -> Iterator[OnnxNode]:
    """Return the nodes of a graph, and those of its subgraphs."""
    for node in graph.nodes:
        yield node
        for subgraph in _subgraphs(node):
            yield from _all_nodes(subgraph)


def _subgraphs(node: OnnxNode) -> list[OnnxGraph]:
    return [v for v in node.attributes.values() if isinstance(v, OnnxGraph)]


def _needed_on_host(graph: OnnxGraph) -> set[str]:
    """Return the values that must be static before the graph runs, such as shapes."""
    needed: set[str] = set()
    _add_needed_on_host(graph, _computed_from_inputs(graph), needed)
    return needed


def _add_needed_on_host(graph: OnnxGraph, computed: set[str], needed: set[str]) -> None:
    """Add the values of a graph and of its subgraphs that must be static."""
    for node in reversed(graph.nodes):
        operator = OPERATORS.get(node.op)
        if operator is None:
            continue
        needed.update(node.inputs[i] for i in operator.host if i < len(node.inputs))
        is_needed = operator.needs_data and not needed.isdisjoint(node.outputs)
        # A value computed from inputs is not static; its sources do not need to be.
        is_needed = is_needed and computed.isdisjoint(node.outputs)
        if is_needed:
            needed.update(node.inputs)
        for subgraph in _subgraphs(node):
            if is_needed:
                needed.update(output.name for output in subgraph.outputs)
            _add_needed_on_host(subgraph, computed, needed)


def _computed_from_inputs(graph: OnnxGraph) -> set[str]:
    """Return the values that depend on the data of inputs, not only on shapes."""
    computed = {value.name for value in graph.inputs}
    for node in graph.nodes:
        operator = OPERATORS.get(node.op)
        if operator is not None and not operator.needs_data:
            continue
        nodes = chain([node], *map(_all_nodes, _subgraphs(node)))
        if any(not computed.isdisjoint(x.inputs) for x in nodes):
            computed.update(filter(None, node.outputs))
    return computed


def _is_weight(source: str, array: Array, users: list[Use]) -> bool:
    if not dtypes.is_float(dtypes.standardize(array.dtype)):
        return array.size > _SMALL
    if array.ndim == 0:
        return False
    if array.size > 1 or any(node.op in _LEARNED for node, _ in users):
        return True
    role = re.split(r"[./:]", source)[-1].lower()
    return any(word in role for word in _ROLES)


def _is_trainable(array: Array, users: list[Use]) -> bool:
    if not dtypes.is_float(dtypes.standardize(array.dtype)):
        return False
    statistics = all(
        node.op == "BatchNormalization" and index in (3, 4) for node, index in users
    )
    fixed = all(
        node.op in _COMPARING | _QUANTIZED or node.op.startswith("com.microsoft.")
        for node, _ in users
    )
    return not statistics and not fixed and bool(np.isfinite(array).all())


def _order(array: Array, users: list[Use]) -> Order:
    """Return the order of axes that all users of an array need, or the file's."""
    orders = {_order_for(array.ndim, node, index) for node, index in users}
    return orders.pop() if len(orders) == 1 else file_order(array.ndim)


def _order_for(ndim: int, node: OnnxNode, index: int) -> Order:
    if _KERNELS.get(node.op) == index and 3 <= ndim <= 5:
        return kernel_order(ndim)
    if node.op in ("LSTM", "GRU", "RNN") and index in (1, 2) and ndim == 3:
        return (0, 2, 1)
    is_turned = node.op == "Gemm" and index == 1 and node.attributes.get("transB")
    if is_turned and ndim == 2:
        return (1, 0)
    if node.op == "Transpose":
        axes = node.attributes.get("perm", list(range(ndim))[::-1])
        if isinstance(axes, list) and sorted(map(str, axes)) == sorted(
            map(str, range(ndim))
        ):
            return tuple(axes)
    return file_order(ndim)


def plain_name(name: str) -> str:
    """Return a valid name of layers and Variables."""
    plain = "".join(c if c.isprintable() else "_" for c in name)
    return plain.strip("/").replace("/", ".").replace("::", ".") or "value"


class _Names:
    """Generator of unique names of layers and Variables."""

    def __init__(self) -> None:
        self._used_names: set[tuple[str, str]] = set()

    def of(self, source: str, users: list[Use]) -> tuple[str, str]:
        """Split a name: `encoder.0.dense.weight` is `weight` of `encoder.0.dense`.

        A name without a path belongs to the first node that uses it.
        """
        parent, _, leaf = plain_name(source).rpartition(".")
        if not parent or "::" in source:
            node = users[0][0]
            # TorchScript's `/conv1/Conv` is the only node of the module `conv1`.
            parent = plain_name(node.name.removesuffix(f"/{node.op}"))
        name, count = leaf, 0
        while (parent, name) in self._used_names:
            count += 1
            name = f"{leaf}_{count}"
        self._used_names.add((parent, name))
        return parent, name


def stored(array: Array, weight: Weight) -> Any:
    """Return the initial value of the Variable."""
    return np.ascontiguousarray(array.transpose(weight.order))
