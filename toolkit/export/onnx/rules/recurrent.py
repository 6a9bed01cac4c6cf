"""Recurrent cells along a sequence, as single ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.export.onnx.patterns import sample_arrays
from toolkit.export.onnx.table import RULES, rule
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node

Array = Any

_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
# Gate order of ONNX: (input, forget, candidate, output) becomes (input, output, forget,
# candidate).
_ORDERS = {"lstm": (0, 3, 1, 2), "gru": (0, 1, 2), "rnn": (0,)}
_ACTIVATIONS = {
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "softsign": "Softsign",
    "hard_sigmoid": "HardSigmoid",
    "linear": "Affine",
}
# alpha and beta of parametric activations.
_PARAMETERS = {"hard_sigmoid": (1 / 6, 0.5), "linear": (1.0, 0.0)}


@record
class _RecurrentInputs:
    """Inputs of a recurrent node: data of all steps, and weights in Keras order.

    Attributes:
        x: (steps, batch, features).
        kernel: (features, gates * units).
        recurrent: (units, gates * units).
        biases: two of (gates * units,), for inputs and for states.
    """

    x: Any
    kernel: Array
    recurrent: Array
    biases: tuple[Array, Array]


@rule("lstm", "gru", "rnn")
def _recurrent(writer: Writer, node: Node) -> Any:
    cell = None if dict(node.attrs["facts"])["masked"] else _match_inputs(writer, node)
    if cell is None:  # fall back to a loop over the cell
        return RULES["scan"](writer, node)
    name, carry = node.op.name, node.attrs["carry"]
    units, dtype = cell.recurrent.shape[0], node.outputs[0].spec.dtype
    order = _ORDERS[name]

    def reorder_gates(array: Array) -> Array:
        """Reorder the gates of one direction along the first axis, as ONNX expects."""
        gates = np.split(array, len(order), axis=-1)
        joined = np.concatenate([gates[i] for i in order], axis=-1)
        return np.ascontiguousarray(joined.T[None].astype(dtype))

    bias = np.concatenate([reorder_gates(b) for b in cell.biases], axis=1)
    weights = {"kernel": cell.kernel, "recurrent_kernel": cell.recurrent}
    inputs = [writer(cell.x)]
    inputs += [
        writer.constants.add(reorder_gates(w), _qualified_name(writer, n))
        for n, w in weights.items()
    ]
    inputs += [
        writer.constants.add(bias, _qualified_name(writer, "bias"))
        if bias.any()
        else "",
        "",
    ]
    inputs += [_start(writer, x) for x in node.inputs[:carry]]
    while not inputs[-1]:
        inputs.pop()
    results = writer.node_with_outputs(
        _OPERATORS[name], inputs, carry + 1, hidden_size=units, **_attrs(node)
    )
    zero, one = writer.ints([0]), writer.ints([1])
    finals = [writer.node("Squeeze", [y, zero]) for y in results[1:]]
    count = len(node.outputs) - carry
    return [*finals, *[writer.node("Squeeze", [results[0], one])] * count]


def _qualified_name(writer: Writer, name: str) -> str:
    return f"{writer.origin}/{name}" if writer.origin else name


def _attrs(node: Node) -> dict[str, Any]:
    facts = dict(node.attrs["facts"])
    names = [*facts["activations"]]
    if node.op.name == "lstm":
        names.append(names[-1])  # of the candidate, and of the cell state
    attributes: dict[str, Any] = {
        "direction": "reverse" if node.attrs["reverse"] else "forward",
        "activations": [_ACTIVATIONS[name] for name in names],
    }
    pairs = [_PARAMETERS[name] for name in names if name in _PARAMETERS]
    if pairs:
        attributes["activation_alpha"] = [alpha for alpha, _ in pairs]
        attributes["activation_beta"] = [beta for _, beta in pairs]
    if facts.get("reset_after"):
        attributes["linear_before_reset"] = 1
    return attributes


def _match_inputs(writer: Writer, node: Node) -> _RecurrentInputs | None:
    """Return the weights, if they are constant and the input is a projection."""
    carry, count = node.attrs["carry"], node.attrs["xs"]
    states = {"lstm": 2, "gru": 1, "rnn": 1}[node.op.name]
    # Only the state can be an output at each step.
    if count != 1 or carry != states or len(node.outputs) > carry + 1:
        return None
    weights = [writer.array(x) for x in node.inputs[carry + count :]]
    projected = _projection(writer, node.inputs[carry])
    if projected is None or not weights or any(w is None for w in weights):
        return None
    x, kernel, bias = projected
    recurrent, *biases = weights
    width = kernel.shape[-1]
    gates = len(_ORDERS[node.op.name])
    if recurrent.shape != (width // gates, width) or len(biases) > 1:
        return None
    second = np.zeros(width, kernel.dtype)
    if biases:  # the second bias applies to the state's part
        if biases[0].shape != (2, width):
            return None
        second = biases[0][1]
    return _RecurrentInputs(x, kernel, recurrent, (bias, second))


def _projection(writer: Writer, value: Any) -> tuple[Any, Array, Array] | None:
    """Return x, kernel and bias if a value is `x @ kernel + bias`."""
    bias = None
    node = writer.producers.get(value)
    if node is not None and node.op.name == "add":
        first, second = node.inputs
        bias = writer.array(second)
        node = writer.producers.get(first)
        if bias is None:
            return None
    if node is None or node.op.name != "matmul":
        return None
    x, w = node.inputs
    kernel = writer.array(w)
    if kernel is None or kernel.ndim != 2 or x.spec.ndim != 3:
        return None
    width = kernel.shape[-1]
    bias = np.zeros(width, kernel.dtype) if bias is None else bias.reshape(-1)
    return (x, kernel, bias) if bias.shape == (width,) else None


def _start(writer: Writer, value: Any) -> str:
    """Return the initial state of one direction; "" for zeros."""
    arrays = sample_arrays(writer, value)
    if arrays is not None and not any(x.any() for x in arrays):
        return ""
    return writer.node("Unsqueeze", [writer(value), writer.ints([0])])
