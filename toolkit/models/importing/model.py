"""Model that runs an ONNX graph; its weights are Variables of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.console.frames import warn_once
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.layers import Input
from toolkit.layers.layer import Layer
from toolkit.layers.tracking import no_tracking
from toolkit.models.functional.inputs import FunctionalInputs
from toolkit.models.functional.symbols import only
from toolkit.models.importing.inference import infer_outputs, merged, with_names
from toolkit.models.importing.interpreter import Interpreter
from toolkit.models.importing.ledger import Ledger
from toolkit.models.importing.values import Value
from toolkit.models.importing.weights import Weight, plain_name
from toolkit.models.model import Model
from toolkit.ops.symbolic import KerasTensor, is_symbolic
from toolkit.plans.rules import rules
from toolkit.reading.budget import load_limit
from toolkit.reading.onnx.checks import check_graph
from toolkit.reading.onnx.graph import (
    OnnxGraph,
    ValueInfo,
    graph_config,
    graph_from_config,
)

_UNROLLED = 5_000  # nodes that unrolled loops can add
_MORE = 64  # multiple of the load budget: shape inference also runs larger extents


class OnnxLayer(Layer):
    """Weights of one module of an ONNX file; the model computes with them.

    Args:
        name: the name of the module or node in the file.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, dtype="float32", autocast=False)
        self.output_shape: Any = None
        self.built = True

    def call(self, inputs: Any) -> Any:
        raise ModelFileError(
            f"{self.name}: this layer only stores weights of the model's graph; call "
            "the model instead"
        )


class OnnxModel(FunctionalInputs, Model):
    """Model read from an ONNX file; `saving.load_onnx` creates it.

    It computes with channels last for channels-first files, and supports training,
    saving and inspection like any model. `layers` are the modules of the file that have
    weights.

    Args:
        graph: nodes, inputs and outputs as plain values, checked by the constructor.
        opset: the version of ONNX's operators.
        weights: for each Variable: its name in the graph, layer, name, shape, dtype,
            the order of axes, and whether it is trainable.
        frozen: names of layers that are not trainable.
        name: the name; generated if None.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> path = Path(tempfile.mkdtemp()) / "model.onnx"
        >>> model.export(path, format="onnx", verbose=False)
        >>> type(toolkit.saving.load_onnx(path)).__name__
        'OnnxModel'
    """

    _kind = "OnnxModel"
    _convert_input_args = _casts_inputs = False
    warns_of_python = True
    _reason = ""  # the reason for eager runs

    def __init__(
        self,
        graph: dict[str, Any],
        opset: int,
        weights: Sequence[Any],
        frozen: Sequence[str] = (),
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)
        rows = [_weight_of(row) for row in weights]
        values = graph_from_config(graph)
        self._graph: OnnxGraph = _checked(values, rows, opset)
        self._opset = opset
        self._rows = rows
        with no_tracking():
            self._inputs = [_symbol(info) for info in self._graph.inputs]
            self._inputs_struct = only(self._inputs)
        self._modules: list[OnnxLayer] = []
        self._sources: dict[str, Any] = {}
        self._make_weights(frozen)
        self._scopes = self._name_scopes()
        with no_tracking():
            expected = [(x.shape, x.dtype) for x in self._graph.inputs]
            self._outputs = self._infer(expected)
            self._outputs_struct = only(self._outputs)
        self.output_names: list[str] = [v.name for v in self._graph.outputs]
        self.built = True
        self._allow_non_tensor_positional_args = True

    def _make_weights(self, frozen: Sequence[str]) -> None:
        by_name: dict[str, OnnxLayer] = {}
        with no_tracking():
            for row in self._rows:
                if row.layer not in by_name:
                    by_name[row.layer] = OnnxLayer(row.layer)
                variable = by_name[row.layer].add_weight(
                    row.shape,
                    "zeros",
                    row.dtype,
                    trainable=row.trainable,
                    autocast=False,
                    name=row.name,
                )
                self._sources[row.source] = variable
        self._modules = list(by_name.values())
        for layer in self._modules:
            layer.trainable = layer.name not in frozen

    def _name_scopes(self) -> dict[str, str]:
        """Return the name scope of each node's operations: its layer, or the node."""
        owners = {row.source: row.layer for row in self._rows}
        results = {}
        for node in self._graph.nodes:
            names = [owners[name] for name in node.inputs if name in owners]
            results[node.name] = names[0] if names else plain_name(node.name)
        return results

    # --- calls ------------------------------------------------------------------------

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Run the graph; `training` is ignored, since the file is for inference.

        Args:
            inputs: tensors in the structure of the model's inputs.
            training: whether to run in training mode; None: the mode of the context.

        Returns:
            The outputs of the graph.
        """
        if self._reason and state.trace is None:
            warn_once(
                self,
                f"{self.name}: the model runs node by node and is not compiled, "
                f"which is slower: {self._reason}",
            )
        interpreter, values, weights = self._start(
            self._standardize(inputs), load_limit()
        )
        # The ledger counts the work of kernels, not the cost of code generation.
        with rules.override(array_kernels_only=True):
            results = interpreter.run(self._graph, values, weights)
        return only([value.tensor for value in results])

    def _start(
        self, tensors: Sequence[Tensor], limit: int
    ) -> tuple[Interpreter, list[Value], dict[str, Value]]:
        """Return an interpreter, and the inputs and the weights of a run."""
        ledger = Ledger(limit, 2 * len(self._graph.nodes) + _UNROLLED)
        weights = {
            row.source: Value(convert(self._sources[row.source]), row.order)
            for row in self._rows
        }
        inputs = [Value(x) for x in tensors]
        ledger.count_values(inputs)
        return Interpreter(self._opset, ledger, self._scopes), inputs, weights

    def _infer(self, inputs: list[Any]) -> list[KerasTensor]:
        runs: list[Interpreter] = []

        def run(tensors: list[Tensor], is_small: bool) -> list[Tensor | None]:
            limit = load_limit() * (1 if is_small else _MORE)
            interpreter, values, weights = self._start(tensors, limit)
            with rules.override(array_kernels_only=True):
                results = interpreter.run_static(self._graph, values, weights)
            runs.append(interpreter)
            return [None if value is None else value.tensor for value in results]

        outputs = infer_outputs(run, inputs, len(self._graph.nodes))
        shapes = [run.shapes for run in runs[-2:]]
        for layer in self._modules:
            layer_shapes = [
                results[layer.name] for results in shapes if layer.name in results
            ]
            if layer_shapes and layer.output_shape is None:
                layer.output_shape = merged(layer_shapes[0], layer_shapes[-1])
        reason = next((run.reason for run in runs[-2:] if run.reason), "")
        if reason and self.supports_jit:
            self.supports_jit, self._reason = False, reason
        return [
            KerasTensor(*(results or _declared(info, reason)))
            for results, info in zip(outputs, self._graph.outputs, strict=True)
        ]

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the symbolic outputs of a call with these symbols.

        Args:
            inputs: symbolic tensors in the structure of the model's inputs.
            training: has no effect on the shapes.
        """
        values = [x if is_symbolic(x) else convert(x) for x in self._ordered(inputs)]
        shapes = [(tuple(x.shape), x.dtype) for x in values]
        if [shape for shape, _ in shapes] == [
            expected.shape for expected in self._inputs
        ]:
            results = [KerasTensor(x.shape, x.dtype) for x in self._outputs]
        else:
            results = self._infer(with_names(self._graph.inputs, shapes))
        return only(results)

    # --- configuration ----------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the graph as plain values, without weights."""
        return {
            "name": self.name,
            "trainable": self.trainable,
            "graph": graph_config(self._graph),
            "opset": self._opset,
            "weights": [_weight_row(row) for row in self._rows],
            "frozen": [layer.name for layer in self._modules if not layer.trainable],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build a model from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes or functions that the config
                contains.

        Returns:
            The model, with new weights.
        """
        return cls(**config)


def _checked(graph: OnnxGraph, rows: list[Weight], opset: int) -> OnnxGraph:
    """Check that the graph can run with its weights, and return it."""
    for row in rows:
        if sorted(row.order) != list(range(len(row.shape))):
            raise ModelFileError(f"{row.source!r}: axes in the order {row.order}")
    results = check_graph(graph, opset, [row.source for row in rows])
    for info in results.inputs:
        if info.shape is None:
            raise ModelFileError(
                f"the input {info.name!r} has no shape; expected a shape, which can "
                "have unknown axes"
            )
    return results


def _symbol(info: ValueInfo) -> KerasTensor:
    """Return the symbolic tensor of an input."""
    shape = [n if isinstance(n, int) else None for n in info.shape or ()]
    return Input(batch_shape=shape, dtype=info.dtype, name=plain_name(info.name))


def _declared(info: ValueInfo, reason: str) -> tuple[Any, str]:
    """Return the shape and the dtype of an output as declared in the file."""
    if info.shape is None:
        raise UnsupportedError(
            f"the output {info.name!r} has no shape in the file, and the inputs do "
            f"not determine its shape: {reason}"
        )
    return tuple(n if isinstance(n, int) else None for n in info.shape), info.dtype


def _weight_row(row: Weight) -> list[Any]:
    names = [row.source, row.layer, row.name]
    return [*names, list(row.shape), row.dtype, list(row.order), row.trainable]


def _weight_of(row: Any) -> Weight:
    if not isinstance(row, (list, tuple)) or len(row) != 7:
        raise ModelFileError(
            f"expected a weight with seven fields; received {row!r:.99}"
        )
    *texts, shape, dtype, order, trainable = row
    integers = [n for sequence in (shape, order) for n in _listed(sequence)]
    fits = all(isinstance(text, str) and text for text in texts)
    fits = fits and all(type(n) is int and 0 <= n < 1 << 48 for n in integers)
    if not fits or dtype not in dtypes.DTYPES or not isinstance(trainable, bool):
        raise ModelFileError(f"expected a weight; received {row!r:.99}")
    source, layer, name = texts
    if plain_name(layer) != layer or plain_name(name) != name:
        raise ModelFileError(
            f"expected the names of a layer and a weight; received {layer!r}, {name!r}"
        )
    return Weight(source, layer, name, tuple(shape), dtype, tuple(order), trainable)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ModelFileError(f"expected a list of integers; received {value!r:.99}")
    return list(value)
