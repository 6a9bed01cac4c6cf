"""Patterns of nodes that become one ONNX operator.

The search starts at the last node of a pattern and follows its inputs. The parts are
also written; pruning removes them if no other node reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.definitions.records import record
from toolkit.export.onnx.convolution import write_scaled
from toolkit.ir import Node, Value

if TYPE_CHECKING:
    from toolkit.export.onnx.writer import Writer

Pattern = Callable[["Writer", Node], Any]


def match(write: Writer, node: Node) -> Any:
    """Write a pattern that ends with a node, or return None without a match."""
    for pattern in _PATTERNS.get(node.op.name, ()):
        found = pattern(write, node)
        if found is not None:
            return found
    return None


# --- search ---------------------------------------------------------------------------


def _made_by(write: Writer, value: Value, name: str) -> Node | None:
    """Return the producer of a value, if it is this primitive."""
    node = write.producers.get(value)
    return node if node is not None and node.op.name == name else None


def samples(write: Writer, value: Any) -> Any:
    """Return the data of a constant at each traced size, or None."""
    if value.constant is not None:
        return write.family.arrays(value)
    return write.samples.get(value)


def _with_number(
    write: Writer, value: Value, name: str, number: float | None = None
) -> tuple[Any, float] | None:
    """Return x and c if a value is `x op c` for a number c; `number` fixes c."""
    node = _made_by(write, value, name)
    return None if node is None else _number_of(write, node, number)


def _number_of(
    write: Writer, node: Node, number: float | None
) -> tuple[Any, float] | None:
    is_symmetric = node.op.name in ("add", "multiply")
    for x, other in (node.inputs, node.inputs[::-1])[: 2 if is_symmetric else 1]:
        found = write.number(other)
        if found is not None and (
            number is None or math.isclose(found, number, rel_tol=1e-6)
        ):
            return x, found
    return None


def _either(node: Node) -> tuple[tuple[Any, Any], ...]:
    a, b = node.inputs
    return (a, b), (b, a)


def _applied(
    write: Writer,
    node: Node,
    operator: str,
    x: Any,
    more: Sequence[str] = (),
    **attrs: Any,
) -> Any:
    """Write an operator of one tensor, in the existing layout of the tensor.

    Args:
        write, node, operator: the writer, the node and the operator.
        x: the tensor.
        more: the names of further scalar inputs.
        **attrs: the attributes of the operator.
    """
    if write.only_first(x):
        inputs = [write.first[x], *more]
        write.first[node.outputs[0]] = write.node(operator, inputs, **attrs)
        return ()
    return write.node(operator, [write(x), *more], **attrs)


# --- means ----------------------------------------------------------------------------


def mean_of(write: Writer, value: Value) -> tuple[Any, Node] | None:
    """Return x and the node of its sum, if a value is a mean of x."""
    node = _made_by(write, value, "divide")
    return None if node is None else _mean(write, node)


def _mean(write: Writer, node: Node) -> tuple[Any, Node] | None:
    total, count = node.inputs
    source = _made_by(write, total, "sum")
    counts = samples(write, count)
    if source is None or counts is None or counts[0].size != 1:
        return None
    (x,) = source.inputs
    axes = source.attrs["axis"]
    sizes = [
        math.prod(twin.spec.shape[axis] for axis in axes)
        for twin in write.family.twins(x)
    ]
    fits = all(n == float(k.reshape(())) for n, k in zip(sizes, counts, strict=True))
    return (x, source) if fits else None


def _write_mean(write: Writer, node: Node) -> Any:
    found = _mean(write, node)
    if found is None or not node.outputs[0].spec.dtype.startswith("float"):
        return None
    x, source = found
    rank, axes = x.spec.ndim, source.attrs["axis"]
    is_spatial = axes == tuple(range(1, rank - 1)) and 3 <= rank <= 5
    if is_spatial and write.only_first(x):
        name = write.node("GlobalAveragePool", [write.first[x]])
        if source.attrs["keepdims"]:
            write.first[node.outputs[0]] = name
            return ()
        shape = write.known_shape(node.outputs[0], node)
        return write.reshaped(name, shape)
    return write.reduce("ReduceMean", write(x), axes, source.attrs["keepdims"])


def _write_average_pool(write: Writer, node: Node) -> Any:
    total, counts = node.inputs
    source = _made_by(write, total, "sum_pool")
    arrays = samples(write, counts)
    if source is None or arrays is None:
        return None
    expected = write.family.each(source, _counts)
    for found, wanted in zip(arrays, expected, strict=True):
        if found.ndim > wanted.ndim or not np.array_equal(
            np.broadcast_to(found, np.broadcast_shapes(found.shape, wanted.shape)),
            wanted,
        ):
            return None
    write.pool("AveragePool", source, node.outputs[0], count_include_pad=0)
    return ()


def _counts(node: Node) -> Any:
    """Return the number of elements in each window without padding: (*windows, 1)."""
    attrs, spatial = node.attrs, node.inputs[0].spec.shape[1:-1]
    total = np.ones([1] * (len(spatial) + 1))
    given = (attrs["window"], attrs["strides"], attrs["padding"])
    for axis, (n, k, stride, (low, high)) in enumerate(
        zip(spatial, *given, strict=True)
    ):
        first = np.arange(-low, n + high - k + 1, stride)
        seen = np.minimum(first + k, n) - np.maximum(first, 0)
        total = total * seen.reshape(
            [-1 if i == axis else 1 for i in range(total.ndim)]
        )
    return total


# --- activations ----------------------------------------------------------------------


def _hard_sigmoid_of(write: Writer, node: Node) -> Any:
    """Return x if a node is `limit(x + 3, 0, 6) / 6`, or times 1 / 6."""
    pair = _number_of(write, node, {"divide": 6.0, "multiply": 1 / 6}[node.op.name])
    limited = None if pair is None else write.limited.get(pair[0])
    if limited is None or (limited.low, limited.high) != (0, 6):
        return None
    found = _with_number(write, limited.x, "add", 3)
    return None if found is None else found[0]


def _write_hard_sigmoid(write: Writer, node: Node) -> Any:
    x = _hard_sigmoid_of(write, node)
    if x is None:
        return None
    return _applied(write, node, "HardSigmoid", x, alpha=1 / 6, beta=0.5)


def _write_gated(write: Writer, node: Node) -> Any:
    """Write x * hard_sigmoid(x), and x * sigmoid(x) if the opset has an operator."""
    for x, gate in _either(node):
        for name in ("divide", "multiply"):
            hard = _made_by(write, gate, name)
            if hard is not None and _hard_sigmoid_of(write, hard) is x:
                return _applied(write, node, "HardSwish", x)
        sigmoid = _made_by(write, gate, "sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] is x and write.opset >= 24:
            return _applied(write, node, "Swish", x)
    return None


def _write_gelu(write: Writer, node: Node) -> Any:
    """Write 0.5 * x * (erf(x * sqrt(0.5)) + 1)."""
    if write.opset < 20:
        return None
    for half, rest in _either(node):
        halved = _with_number(write, half, "multiply", 0.5)
        above = _with_number(write, rest, "add", 1)
        erf = None if above is None else _made_by(write, above[0], "erf")
        if halved is None or erf is None:
            continue
        inner = _with_number(write, erf.inputs[0], "multiply", math.sqrt(0.5))
        if inner is not None and inner[0] is halved[0]:
            return _applied(write, node, "Gelu", inner[0])
    return None


def _write_rectifier(write: Writer, node: Node) -> Any:
    """Write where(x > 0, x, slope * x) and where(x > 0, x, alpha * (exp(x) - 1))."""
    condition, x, below = node.inputs
    positive = _made_by(write, condition, "less")
    if positive is None or positive.inputs[1] is not x:
        return None
    if write.number(positive.inputs[0]) != 0:
        return None
    scaled = _with_number(write, below, "multiply")
    if scaled is not None and scaled[0] is x:
        return _applied(write, node, "LeakyRelu", x, alpha=scaled[1])
    inner, alpha = (below, 1.0) if scaled is None else scaled
    curve = _made_by(write, inner, "expm1")
    cut = None if curve is None else _made_by(write, curve.inputs[0], "where")
    if cut is None or cut.inputs[0] is not condition or cut.inputs[2] is not x:
        return None
    if write.number(cut.inputs[1]) != 0:
        return None
    return _applied(write, node, "Elu", x, alpha=alpha)


@record
class Limited:
    """Value expressed as another value, clipped to [low, high]; None: no limit."""

    x: Any
    low: float | None = None
    high: float | None = None

    def then(self, low: float | None, high: float | None) -> Limited:
        """Return the value with a further clip."""

        def inside(end: float | None) -> float | None:
            if end is not None and low is not None:
                end = max(end, low)
            return end if end is None or high is None else min(end, high)

        first, last = inside(self.low), inside(self.high)
        first = low if first is None else first
        return Limited(self.x, first, high if last is None else last)


def _write_limited(write: Writer, node: Node) -> Any:
    """Write chains of max(x, c), min(x, c) and clips."""
    found = _limited(write, node)
    if found is None:
        return None
    write.limited[node.outputs[0]] = found
    dtype = node.outputs[0].spec.dtype
    if found.low == 0 and found.high is None:
        return _applied(write, node, "Relu", found.x)
    ends = [
        "" if n is None else write.scalar(n, dtype) for n in (found.low, found.high)
    ]
    return _applied(write, node, "Clip", found.x, ends if ends[1] else ends[:1])


def _limited(write: Writer, node: Node) -> Limited | None:
    out = node.outputs[0].spec
    if out.dtype not in ("float32", "float64"):
        return None
    if node.op.name == "limit":
        x, ends = node.inputs[0], (node.attrs["low"], node.attrs["high"])
        return write.limited.get(x, Limited(x)).then(*ends)
    for x, other in _either(node):
        number = write.number(other)
        if number is not None and not math.isnan(number) and x.spec == out:
            known = write.limited.get(x, Limited(x))
            is_low = node.op.name == "maximum"
            return known.then(number, None) if is_low else known.then(None, number)
    return None


# --- layer normalization --------------------------------------------------------------


@record
class Normalized:
    """Value expressed as normalized x over its last axes, with scale and bias."""

    x: Any
    axis: int
    epsilon: float
    scale: Any = None
    bias: Any = None


def _write_normalized(write: Writer, node: Node) -> Any:
    """Write centered * rsqrt(mean(centered ** 2) + epsilon), * scale, + bias."""
    found = _normalized(write, node)
    if found is None:
        return None
    write.normalized[node.outputs[0]] = found
    dtype, shape = node.outputs[0].spec.dtype, found.x.spec.shape[found.axis :]
    scale = np.ones(shape, dtype) if found.scale is None else found.scale
    inputs = [write(found.x), write.constants.add(scale)]
    if found.bias is not None:
        inputs.append(write.constants.add(found.bias))
    attrs = {"axis": found.axis - found.x.spec.ndim, "epsilon": found.epsilon}
    return write.node("LayerNormalization", inputs, **attrs)


def _normalized(write: Writer, node: Node) -> Normalized | None:
    name = node.op.name
    for x, other in _either(node):
        known = write.normalized.get(x)
        array = write.array(other)
        if known is not None and array is not None and write.is_alone(x):
            shape = known.x.spec.shape[known.axis :]
            fits = array.size == math.prod(shape) and array.ndim <= known.x.spec.ndim
            if (
                not fits
                or array.shape[-len(shape) :] != shape
                or known.bias is not None
            ):
                continue
            array = array.reshape(shape)
            if name == "add":
                return replace(known, bias=array)
            if known.scale is None:
                return replace(known, scale=array)
        if name == "multiply" and known is None:
            found = _core(write, x, other)
            if found is not None:
                return found
    return None


def _core(write: Writer, centered: Any, factor: Any) -> Normalized | None:
    root = _made_by(write, factor, "rsqrt")
    total = None if root is None else _with_number(write, root.inputs[0], "add")
    difference = _made_by(write, centered, "subtract")
    if total is None or difference is None:
        return None
    spread = mean_of(write, total[0])
    x, center = difference.inputs
    middle = mean_of(write, center)
    if spread is None or middle is None or middle[0] is not x:
        return None
    square = _made_by(write, spread[0], "multiply")
    if square is None or any(v is not centered for v in square.inputs):
        return None
    axes = middle[1].attrs["axis"]
    rank = x.spec.ndim
    is_last = axes == tuple(range(axes[0], rank)) == spread[1].attrs["axis"]
    return Normalized(x, axes[0], total[1]) if is_last else None


_PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "divide": (_write_mean, _write_average_pool, _write_hard_sigmoid, write_scaled),
    "multiply": (
        _write_gated,
        _write_gelu,
        _write_hard_sigmoid,
        _write_normalized,
        write_scaled,
    ),
    "add": (_write_normalized, write_scaled),
    "subtract": (write_scaled,),
    "where": (_write_rectifier,),
    **dict.fromkeys(("maximum", "minimum", "limit"), (_write_limited,)),
}
