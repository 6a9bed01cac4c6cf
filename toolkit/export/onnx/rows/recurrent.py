"""Recurrent cells along a sequence, as single ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.export.onnx.patterns import samples
from toolkit.export.onnx.table import ROWS, row
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
class _Parts:
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


@row("lstm", "gru", "rnn")
def _recurrent(write: Writer, node: Node) -> Any:
    parts = None if dict(node.attrs["facts"])["masked"] else _parts(write, node)
    if parts is None:  # fall back to a loop over the cell
        return ROWS["scan"](write, node)
    name, carry = node.op.name, node.attrs["carry"]
    units, dtype = parts.recurrent.shape[0], node.outputs[0].spec.dtype
    order = _ORDERS[name]

    def arranged(array: Array) -> Array:
        """Reorder the gates of one direction along the first axis, as ONNX expects."""
        gates = np.split(array, len(order), axis=-1)
        joined = np.concatenate([gates[i] for i in order], axis=-1)
        return np.ascontiguousarray(joined.T[None].astype(dtype))

    bias = np.concatenate([arranged(b) for b in parts.biases], axis=1)
    weights = {"kernel": parts.kernel, "recurrent_kernel": parts.recurrent}
    inputs = [write(parts.x)]
    inputs += [
        write.constants.add(arranged(w), _path(write, n)) for n, w in weights.items()
    ]
    inputs += [
        write.constants.add(bias, _path(write, "bias")) if bias.any() else "",
        "",
    ]
    inputs += [_start(write, x) for x in node.inputs[:carry]]
    while not inputs[-1]:
        inputs.pop()
    found = write.several(
        _OPERATORS[name], inputs, carry + 1, hidden_size=units, **_attrs(node)
    )
    zero, one = write.ints([0]), write.ints([1])
    finals = [write.node("Squeeze", [y, zero]) for y in found[1:]]
    count = len(node.outputs) - carry
    return [*finals, *[write.node("Squeeze", [found[0], one])] * count]


def _path(write: Writer, name: str) -> str:
    return f"{write.origin}/{name}" if write.origin else name


def _attrs(node: Node) -> dict[str, Any]:
    facts = dict(node.attrs["facts"])
    names = [*facts["activations"]]
    if node.op.name == "lstm":
        names.append(names[-1])  # of the candidate, and of the cell state
    found: dict[str, Any] = {
        "direction": "reverse" if node.attrs["reverse"] else "forward",
        "activations": [_ACTIVATIONS[name] for name in names],
    }
    pairs = [_PARAMETERS[name] for name in names if name in _PARAMETERS]
    if pairs:
        found["activation_alpha"] = [alpha for alpha, _ in pairs]
        found["activation_beta"] = [beta for _, beta in pairs]
    if facts.get("reset_after"):
        found["linear_before_reset"] = 1
    return found


def _parts(write: Writer, node: Node) -> _Parts | None:
    """Return the weights, if they are constant and the input is a projection."""
    carry, count = node.attrs["carry"], node.attrs["xs"]
    states = {"lstm": 2, "gru": 1, "rnn": 1}[node.op.name]
    # Only the state can be an output at each step.
    if count != 1 or carry != states or len(node.outputs) > carry + 1:
        return None
    weights = [write.array(x) for x in node.inputs[carry + count :]]
    projected = _projection(write, node.inputs[carry])
    if projected is None or not weights or any(w is None for w in weights):
        return None
    x, kernel, bias = projected
    recurrent, *rest = weights
    width = kernel.shape[-1]
    gates = len(_ORDERS[node.op.name])
    if recurrent.shape != (width // gates, width) or len(rest) > 1:
        return None
    second = np.zeros(width, kernel.dtype)
    if rest:  # the second bias applies to the state's part
        if rest[0].shape != (2, width):
            return None
        second = rest[0][1]
    return _Parts(x, kernel, recurrent, (bias, second))


def _projection(write: Writer, value: Any) -> tuple[Any, Array, Array] | None:
    """Return x, kernel and bias if a value is `x @ kernel + bias`."""
    bias = None
    node = write.producers.get(value)
    if node is not None and node.op.name == "add":
        first, second = node.inputs
        bias = write.array(second)
        node = write.producers.get(first)
        if bias is None:
            return None
    if node is None or node.op.name != "matmul":
        return None
    x, w = node.inputs
    kernel = write.array(w)
    if kernel is None or kernel.ndim != 2 or x.spec.ndim != 3:
        return None
    width = kernel.shape[-1]
    bias = np.zeros(width, kernel.dtype) if bias is None else bias.reshape(-1)
    return (x, kernel, bias) if bias.shape == (width,) else None


def _start(write: Writer, value: Any) -> str:
    """Return the initial state of one direction; "" for zeros."""
    arrays = samples(write, value)
    if arrays is not None and not any(x.any() for x in arrays):
        return ""
    return write.node("Unsqueeze", [write(value), write.ints([0])])
