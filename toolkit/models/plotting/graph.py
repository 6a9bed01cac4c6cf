"""Content of a model's picture: boxes with texts, in clusters, and edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toolkit.errors import ArgumentError
from toolkit.layers import InputLayer
from toolkit.layers.layer import Layer
from toolkit.models.functional.model import Functional
from toolkit.models.model import Model
from toolkit.models.plotting.folding import MAX_BOXES, count_boxes, fold
from toolkit.models.sequential import Sequential
from toolkit.models.summary import class_name, in_range
from toolkit.ops.symbolic import any_symbolic, is_symbolic
from toolkit.pictures.boxes import Box, Cell, Cluster, truncate

_LONG = 100  # characters of a cell: limits the box of a layer with many inputs


class Show(NamedTuple):
    """Displayed properties of a layer; `inputs`: whether to show input shapes, too."""

    shapes: bool = False
    inputs: bool = True
    dtype: bool = False
    names: bool = True
    activations: bool = False
    trainable: bool = False


def read_model(
    model: Any,
    show: Show,
    expand: bool,
    layer_range: Sequence[str] | None = None,
    expand_blocks: bool | None = None,
) -> Cluster:
    """Return the picture's content; expanded nested models become clusters.

    Args:
        model: the model.
        show: the properties to show.
        expand: whether to show the layers of nested models.
        layer_range: the first and the last layer.
        expand_blocks: whether to show each repeated block; default: if there are few
            layers.

    Raises:
        ArgumentError: the model is not built, or has no such range of layers.
    """
    if not model.built:
        raise ArgumentError(
            f"{model.name}: This model has not yet been built; call it with data, or "
            "call `build` with the shape of its input"
        )
    reader = _Reader(show, expand)
    if not _has_members(model):
        return Cluster(model.name, [reader.box(model, None)])
    layers = in_range("plot_model", _members_of(model), layer_range)
    cluster = reader.cluster(model, layers)
    cluster.edges = reader.edges
    if expand_blocks is None:
        expand_blocks = count_boxes(cluster) <= MAX_BOXES
    return cluster if expand_blocks else fold(cluster)


def _has_members(model: Any) -> bool:
    return isinstance(model, (Functional, Sequential)) and bool(model.layers)


def _members_of(model: Any) -> list[Any]:
    """Return the layers of a chain, or the layers and ops of a graph."""
    chain = isinstance(model, Sequential)
    return list(model.layers if chain else model.operations)


class _Reader:
    """Builder that creates one box per layer, even if it is used several times."""

    def __init__(self, show: Show, expand: bool) -> None:
        self.show = show
        self.expand = expand
        self.boxes: dict[int, Box] = {}
        self.edges: dict[tuple[Box, Box], None] = {}

    def cluster(self, model: Any, cluster_members: list[Any]) -> Cluster:
        cluster = Cluster(model.name)
        members = None if isinstance(model, Sequential) else model._topology.members
        for layer in cluster_members:
            if self._is_open(layer):
                cluster.children.append(self.cluster(layer, _members_of(layer)))
            elif id(layer) not in self.boxes:
                self.boxes[id(layer)] = self.box(layer, members)
                cluster.children.append(self.boxes[id(layer)])
        if members is None:
            layers = model.layers
            for source, target in zip(layers, layers[1:], strict=False):
                self._connect(source, 0, target, 0)
        else:
            self._connect_nodes(model)
        return cluster

    def _connect_nodes(self, model: Any) -> None:
        for node in model._topology.nodes:
            for i, symbol in enumerate(node.inputs):
                history = symbol._keras_history
                self._connect(history.operation, history.tensor_index, node.op, i)

    def _is_open(self, layer: Any) -> bool:
        return self.expand and _has_members(layer)

    def _connect(self, source: Any, output: int, target: Any, index: int) -> None:
        """Add the edge between the boxes of these operations."""
        while self._is_open(source):
            if isinstance(source, Sequential):
                source = source.layers[-1]
            else:
                history = source.outputs[min(output, len(source.outputs) - 1)]
                source, _, output = history._keras_history
        while self._is_open(target):
            if isinstance(target, Sequential):
                target = target.layers[0]
            else:
                symbol = target.inputs[min(index, len(target.inputs) - 1)]
                target = symbol._keras_history.operation
        if id(source) in self.boxes and id(target) in self.boxes:
            self.edges[self.boxes[id(source)], self.boxes[id(target)]] = None

    def box(self, layer: Any, members: Any) -> Box:
        rows = []
        activation = getattr(layer, "activation", None)
        if self.show.activations and activation is not None:
            rows.append([Cell("Activation", _name(activation))])
        cells = list(_cells(layer, members, self.show))
        if cells:
            rows.append(cells)
        name = layer.name if self.show.names else ""
        return Box(name, class_name(layer), _role(layer), rows, _detail(layer, members))


def _detail(layer: Layer, members: object) -> str:
    """Return the shapes and arguments of a layer, to find equal layers."""
    _, outputs = _symbols(layer, members)
    shapes = [tuple(v.shape) for v in getattr(layer, "weights", ())]
    names = getattr(layer, "_arguments", None) or ()
    values = {name: vars(layer).get(name) for name in names}
    simple = {k: x for k, x in values.items() if k != "name" and _is_simple(x)}
    return f"{_text(outputs, 'shape')} {shapes} {simple}"


def _is_simple(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_simple, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _role(layer: Layer) -> str:
    if isinstance(layer, (InputLayer, Model)):
        return "input" if isinstance(layer, InputLayer) else "model"
    return "weights" if getattr(layer, "weights", ()) else "plain"


def _name(function: Callable[..., Any]) -> str:
    """Return the name of an activation: a function, a layer, or any callable."""
    name = getattr(function, "name", None) or getattr(function, "__name__", None)
    return str(name or type(function).__name__)


def _cells(layer: Layer, members: Any, show: Show) -> Any:
    inputs, outputs = _symbols(layer, members)
    if show.shapes:
        if show.inputs and not isinstance(layer, InputLayer):
            yield Cell("Input shape", truncate(_text(inputs, "shape"), _LONG))
        yield Cell("Output shape", truncate(_text(outputs, "shape"), _LONG))
    if show.dtype:
        yield Cell("Output dtype", truncate(_text(outputs, "dtype"), _LONG))
    if show.trainable and isinstance(layer, Layer) and layer.weights:
        style = "good" if layer.trainable else "bad"
        yield Cell("", "Trainable" if layer.trainable else "Non-trainable", style)


def _symbols(layer: Layer, members: Any) -> tuple[Any, Any]:
    """Return inputs and outputs of the first call that belongs to the model."""
    nodes = layer._inbound_nodes
    model_nodes = [node for node in nodes if members is None or node in members]
    if isinstance(layer, (Functional, Sequential)) and not model_nodes:
        try:
            return layer.input, layer.output
        except (AttributeError, ValueError):
            return None, None
    if not model_nodes:
        return None, None
    args, kwargs = model_nodes[0].attrs["arguments"]
    inputs = [x for x in (*args, *kwargs.values()) if any_symbolic(x)]
    return inputs[0] if len(inputs) == 1 else inputs, model_nodes[0].attrs["outputs"]


def _text(symbols: Any, label: str) -> str:
    """Return the shapes or dtypes of a nest of symbols."""
    if symbols is None:
        return "?"
    if is_symbolic(symbols):
        return str(getattr(symbols, label))
    if isinstance(symbols, dict):
        return ", ".join(f"{key}: {_text(x, label)}" for key, x in symbols.items())
    if isinstance(symbols, (list, tuple)):
        return ", ".join(_text(x, label) for x in symbols)
    return str(symbols)
