"""LSTM, GRU and RNN: one scan per direction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from toolkit import ops
from toolkit.control_flow.loops import scan
from toolkit.core.tensor import Tensor
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.indexing import reversed_sequences
from toolkit.models.importing.values import Value

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "relu": ops.relu,
    "softsign": ops.softsign,
    "softplus": ops.softplus,
}


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return alpha * x + beta


def _leaky_relu(x: Any, alpha: float, beta: float) -> Tensor:
    return ops.where(x < 0, alpha * x, x)


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Tensor:
    return ops.clip(alpha * x + beta, 0.0, 1.0)


def _scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    return alpha * ops.tanh(beta * x)


# Activations with the defaults of their parameters.
_WITH_NUMBERS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "affine": (_affine, 1.0, 0.0),
    "leakyrelu": (_leaky_relu, 0.01, 0.0),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "scaledtanh": (_scaled_tanh, 1.0, 1.0),
}


def _activations(call: Call, defaults: tuple[str, ...], directions: int) -> Any:
    names = call.texts("activations", defaults * directions)
    alphas = list(call.numbers("activation_alpha", ()))
    betas = list(call.numbers("activation_beta", ()))
    if len(names) != len(defaults) * directions:
        raise ModelFileError(
            f"expected {len(defaults) * directions} activations; received {len(names)}"
        )
    functions = []
    for name in (name.lower() for name in names):
        if name in _PLAIN:
            functions.append(_PLAIN[name])
            continue
        if name not in _WITH_NUMBERS:
            raise UnsupportedError(f"unsupported activation {name!r}")
        function, alpha, beta = _WITH_NUMBERS[name]
        alpha = float(alphas.pop(0)) if alphas else alpha
        beta = float(betas.pop(0)) if betas else beta
        functions.append(partial(function, alpha=alpha, beta=beta))
    return functions


_STEP = 65_536  # multiplications: the cost of a step in addition to its products


class Direction(NamedTuple):
    """Weights of one direction, in the form that a step needs.

    kernel: (features, gates * units). recurrent: (units, gates * units). bias: the
    terms added to the inputs' product and to the states', (gates * units,) or None.
    """

    kernel: Any
    recurrent: Any
    biases: tuple[Any, Any]
    states: list[Any]
    functions: list[Any]


class _Sequences(NamedTuple):
    x: Any  # (steps, batch, features)
    units: int
    lengths: Any  # (batch,) or None
    clip: float | None
    batch_first: bool


def _unpacked(call: Call, x: Value, r: Value, lengths: Value | None) -> _Sequences:
    units = call.integer("hidden_size", r.shape[-1])
    clip = call.number("clip", None)
    batch_first = bool(call.integer("layout", 0))
    if x.ndim != 3 or r.ndim != 3 or r.shape[-1] != units:
        raise ModelFileError(
            f"inputs of shape {x.shape} do not fit recurrent weights of shape {r.shape}"
        )
    # With the batch first, the steps are axis 1.
    x = x.permuted((1, 0, 2)) if batch_first else x
    call.work(x.shape[0], x.shape[1] * (r.size + x.shape[2]) + _STEP)
    return _Sequences(
        x.tensor, units, None if lengths is None else lengths.tensor, clip, batch_first
    )


def _directions(
    call: Call,
    sequences: _Sequences,
    weights: tuple[Value, Value, Value | None],
    states: list[Value | None],
    names: tuple[str, ...],
    gates: int,
) -> list[tuple[Direction, bool]]:
    """Yield each direction with whether it runs backwards."""
    direction = call.text("direction", "forward")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in backwards:
        raise ModelFileError(f"unsupported direction={direction!r}")
    count, n = len(backwards[direction]), sequences.units
    functions = _activations(call, names, count)
    w, r, b = weights
    size = gates * n
    expected = (count, size, sequences.x.shape[-1]), (count, size, n), (count, 2 * size)
    for value, shape in zip(weights, expected, strict=True):
        if value is not None and value.shape != shape:
            raise ModelFileError(
                f"expected weights of shape {shape}; received {value.shape}"
            )
    kernel, recurrent = (v.ordered((0, 2, 1)) for v in (w, r))
    batch = sequences.x.shape[1]
    directions = []
    for i, back in enumerate(backwards[direction]):
        biases: tuple[Any, Any] = (None, None)
        if b is not None:
            biases = b.tensor[i, :size], b.tensor[i, size:]
        initial = []
        for state in states:
            if state is None:
                initial.append(ops.zeros((batch, n), w.dtype))
                continue
            state = state.permuted((1, 0, 2)) if sequences.batch_first else state
            if state.shape != (count, batch, n):
                raise ModelFileError(
                    f"expected a state of shape {(count, batch, n)}; received "
                    f"{state.shape}"
                )
            initial.append(state.tensor[i])
        activations = functions[i * len(names) : (i + 1) * len(names)]
        direction_weights = Direction(
            kernel[i], recurrent[i], biases, initial, activations
        )
        directions.append((direction_weights, back))
    return directions


def _scanned(
    sequences: _Sequences, direction: Direction, back: bool, step: Callable[..., Any]
) -> tuple[Any, list[Any]]:
    """Return outputs (steps, batch, units) and the last states of one direction."""
    x, lengths = sequences.x, sequences.lengths
    if back:
        x = _reverse(x, lengths)
    projected = ops.matmul(x, direction.kernel)
    if direction.biases[0] is not None:
        projected = projected + direction.biases[0]

    def body(states: Any, xs: Any) -> Any:
        row, step_index = xs if lengths is not None else (xs, None)
        news = step(row, states)
        if step_index is None:
            return tuple(news), news[0]
        is_valid = ops.expand_dims(step_index < lengths, 1)
        masked = tuple(
            ops.where(is_valid, new, old) for new, old in zip(news, states, strict=True)
        )
        return masked, ops.where(is_valid, news[0], ops.zeros_like(news[0]))

    xs: Any = projected
    if lengths is not None:
        xs = (projected, ops.arange(x.shape[0], dtype=lengths.dtype))
    last, outputs = scan(body, tuple(direction.states), xs, length=x.shape[0])
    return _reverse(outputs, lengths) if back else outputs, list(last)


def _reverse(x: Any, lengths: Any) -> Any:
    """Reverse the steps of (steps, batch, ...)."""
    if lengths is None:
        return ops.flip(x, axis=0)
    return reversed_sequences(x, lengths, 0, 1)


def _joined(sequences: _Sequences, results: list[Any]) -> tuple[Value, ...]:
    """Return ONNX's outputs: Y (steps, directions, batch, units), and last states."""
    y = Value(ops.stack([outputs for outputs, _ in results], axis=1))
    states = [
        Value(ops.stack(list(states), axis=0))
        for states in zip(*(last for _, last in results), strict=True)
    ]
    if sequences.batch_first:
        return y.permuted((2, 0, 1, 3)), *(s.permuted((1, 0, 2)) for s in states)
    return y, *states


def _clipped(x: Any, clip: float | None) -> Any:
    return x if clip is None else ops.clip(x, -clip, clip)


def _lstm(
    call: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    c: Value | None = None,
    peepholes: Value | None = None,
) -> tuple[Value, ...]:
    sequences = _unpacked(call, x, r, lengths)
    couples_gates = call.integer("input_forget", 0)
    n, clip = sequences.units, sequences.clip
    direction = _directions(
        call, sequences, (w, r, b), [h, c], ("sigmoid", "tanh", "tanh"), 4
    )
    if couples_gates:
        raise UnsupportedError("unsupported input_forget=1")
    results = []
    for i, (one, back) in enumerate(direction):
        p = None if peepholes is None else peepholes.tensor[i]
        step = partial(_lstm_step, one, n, clip, p)
        results.append(_scanned(sequences, one, back, step))
    return _joined(sequences, results)


def _lstm_step(
    direction: Direction, n: int, clip: float | None, p: Any, row: Any, states: Any
) -> Any:
    """Compute an LSTM step; gates are in ONNX's order: input, output, forget, cell."""
    sigmoid, tanh, last = direction.functions
    hidden, cell = states
    gates = row + ops.matmul(hidden, direction.recurrent)
    if direction.biases[1] is not None:
        gates = gates + direction.biases[1]
    i, o, f, c = (gates[:, k * n : (k + 1) * n] for k in range(4))
    if p is not None:
        i, f = i + p[:n] * cell, f + p[2 * n :] * cell
    new = sigmoid(_clipped(f, clip)) * cell
    new = new + sigmoid(_clipped(i, clip)) * tanh(_clipped(c, clip))
    if p is not None:
        o = o + p[n : 2 * n] * new
    return sigmoid(_clipped(o, clip)) * last(new), new


def _gru(
    call: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
) -> tuple[Value, ...]:
    sequences = _unpacked(call, x, r, lengths)
    resets_after = bool(call.integer("linear_before_reset", 0))
    n, clip = sequences.units, sequences.clip
    direction = _directions(call, sequences, (w, r, b), [h], ("sigmoid", "tanh"), 3)
    results = [
        _scanned(sequences, one, back, partial(_gru_step, one, n, clip, resets_after))
        for one, back in direction
    ]
    return _joined(sequences, results)


def _gru_step(
    direction: Direction,
    n: int,
    clip: float | None,
    resets_after: bool,
    row: Any,
    states: Any,
) -> Any:
    """Compute a GRU step; gates are in ONNX's order: update, reset, hidden."""
    sigmoid, tanh = direction.functions
    (hidden,) = states
    bias = direction.biases[1]
    if resets_after:
        inner = ops.matmul(hidden, direction.recurrent)
        inner = inner if bias is None else inner + bias
        gates = row[:, : 2 * n] + inner[:, : 2 * n]
    else:
        gates = row[:, : 2 * n] + ops.matmul(hidden, direction.recurrent[:, : 2 * n])
        gates = gates if bias is None else gates + bias[: 2 * n]
    gates = sigmoid(_clipped(gates, clip))
    z, reset = gates[:, :n], gates[:, n:]
    if resets_after:
        candidate = row[:, 2 * n :] + reset * inner[:, 2 * n :]
    else:
        product = ops.matmul(reset * hidden, direction.recurrent[:, 2 * n :])
        product = product if bias is None else product + bias[2 * n :]
        candidate = row[:, 2 * n :] + product
    candidate = tanh(_clipped(candidate, clip))
    return ((1 - z) * candidate + z * hidden,)


def _rnn(
    call: Call,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
) -> tuple[Value, ...]:
    sequences = _unpacked(call, x, r, lengths)
    direction = _directions(call, sequences, (w, r, b), [h], ("tanh",), 1)

    def step(one: Direction, row: Any, states: Any) -> Any:
        total = row + ops.matmul(states[0], one.recurrent)
        total = total if one.biases[1] is None else total + one.biases[1]
        return (one.functions[0](_clipped(total, sequences.clip)),)

    results = [
        _scanned(sequences, one, back, partial(step, one)) for one, back in direction
    ]
    return _joined(sequences, results)


OPERATORS = (
    Operator("LSTM", _lstm),
    Operator("GRU", _gru),
    Operator("RNN", _rnn),
)
