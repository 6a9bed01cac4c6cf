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


def write_pattern(writer: Writer, node: Node) -> Any:
    """Write a pattern that ends with a node, or return None without a match."""
    for pattern in _PATTERNS.get(node.op.name, ()):
        result = pattern(writer, node)
        if result is not None:
            return result
    return None


# --- search ---------------------------------------------------------------------------


def _producer_of(writer: Writer, value: Value, name: str) -> Node | None:
    """Return the producer of a value, if it is this primitive."""
    node = writer.producers.get(value)
    return node if node is not None and node.op.name == name else None


def sample_arrays(writer: Writer, value: Any) -> Any:
    """Return the data of a constant at each traced size, or None."""
    if value.constant is not None:
        return writer.family.arrays(value)
    return writer.samples.get(value)


def _match_scalar_operation(
    writer: Writer, value: Value, name: str, number: float | None = None
) -> tuple[Any, float] | None:
    """Return x and c if a value is `x op c` for a number c; `number` fixes c."""
    node = _producer_of(writer, value, name)
    return None if node is None else _scalar_operand(writer, node, number)


def _scalar_operand(
    writer: Writer, node: Node, number: float | None
) -> tuple[Any, float] | None:
    is_symmetric = node.op.name in ("add", "multiply")
    for x, other in (node.inputs, node.inputs[::-1])[: 2 if is_symmetric else 1]:
        value = writer.number(other)
        if value is not None and (
            number is None or math.isclose(value, number, rel_tol=1e-6)
        ):
            return x, value
    return None


def _operand_orders(node: Node) -> tuple[tuple[Any, Any], ...]:
    a, b = node.inputs
    return (a, b), (b, a)


def _write_unary(
    writer: Writer,
    node: Node,
    operator: str,
    x: Any,
    extra_inputs: Sequence[str] = (),
    **attrs: Any,
) -> Any:
    """Write an operator of one tensor, in the existing layout of the tensor.

    Args:
        writer, node, operator: the writer, the node and the operator.
        x: the tensor.
        extra_inputs: the names of further scalar inputs.
        **attrs: the attributes of the operator.
    """
    if writer.is_only_nchw(x):
        inputs = [writer.nchw_names[x], *extra_inputs]
        writer.nchw_names[node.outputs[0]] = writer.node(operator, inputs, **attrs)
        return ()
    return writer.node(operator, [writer(x), *extra_inputs], **attrs)


# --- means ----------------------------------------------------------------------------


def match_mean(writer: Writer, value: Value) -> tuple[Any, Node] | None:
    """Return x and the node of its sum, if a value is a mean of x."""
    node = _producer_of(writer, value, "divide")
    return None if node is None else _mean_of_node(writer, node)


def _mean_of_node(writer: Writer, node: Node) -> tuple[Any, Node] | None:
    total, count = node.inputs
    source = _producer_of(writer, total, "sum")
    counts = sample_arrays(writer, count)
    if source is None or counts is None or counts[0].size != 1:
        return None
    (x,) = source.inputs
    axes = source.attrs["axis"]
    sizes = [
        math.prod(counterpart.spec.shape[axis] for axis in axes)
        for counterpart in writer.family.counterparts(x)
    ]
    fits = all(n == float(k.reshape(())) for n, k in zip(sizes, counts, strict=True))
    return (x, source) if fits else None


def _write_mean(writer: Writer, node: Node) -> Any:
    mean = _mean_of_node(writer, node)
    if mean is None or not node.outputs[0].spec.dtype.startswith("float"):
        return None
    x, source = mean
    rank, axes = x.spec.ndim, source.attrs["axis"]
    is_spatial = axes == tuple(range(1, rank - 1)) and 3 <= rank <= 5
    if is_spatial and writer.is_only_nchw(x):
        name = writer.node("GlobalAveragePool", [writer.nchw_names[x]])
        if source.attrs["keepdims"]:
            writer.nchw_names[node.outputs[0]] = name
            return ()
        shape = writer.known_shape(node.outputs[0], node)
        return writer.reshaped(name, shape)
    return writer.reduce("ReduceMean", writer(x), axes, source.attrs["keepdims"])


def _write_average_pool(writer: Writer, node: Node) -> Any:
    total, counts = node.inputs
    source = _producer_of(writer, total, "sum_pool")
    arrays = sample_arrays(writer, counts)
    if source is None or arrays is None:
        return None
    expected = writer.family.value_per_graph(source, _window_counts)
    for counts_of_sample, expected_counts in zip(arrays, expected, strict=True):
        if counts_of_sample.ndim > expected_counts.ndim or not np.array_equal(
            np.broadcast_to(
                counts_of_sample,
                np.broadcast_shapes(counts_of_sample.shape, expected_counts.shape),
            ),
            expected_counts,
        ):
            return None
    writer.pool("AveragePool", source, node.outputs[0], count_include_pad=0)
    return ()


def _window_counts(node: Node) -> Any:
    """Return the number of elements in each window without padding: (*windows, 1)."""
    attrs, spatial = node.attrs, node.inputs[0].spec.shape[1:-1]
    total = np.ones([1] * (len(spatial) + 1))
    windows = (attrs["window"], attrs["strides"], attrs["padding"])
    for axis, (n, k, stride, (low, high)) in enumerate(
        zip(spatial, *windows, strict=True)
    ):
        first = np.arange(-low, n + high - k + 1, stride)
        valid = np.minimum(first + k, n) - np.maximum(first, 0)
        total = total * valid.reshape(
            [-1 if i == axis else 1 for i in range(total.ndim)]
        )
    return total


# --- activations ----------------------------------------------------------------------


def _hard_sigmoid_of(writer: Writer, node: Node) -> Any:
    """Return x if a node is `limit(x + 3, 0, 6) / 6`, or times 1 / 6."""
    pair = _scalar_operand(
        writer, node, {"divide": 6.0, "multiply": 1 / 6}[node.op.name]
    )
    clip = None if pair is None else writer.clipped.get(pair[0])
    if clip is None or (clip.low, clip.high) != (0, 6):
        return None
    shifted = _match_scalar_operation(writer, clip.x, "add", 3)
    return None if shifted is None else shifted[0]


def _write_hard_sigmoid(writer: Writer, node: Node) -> Any:
    x = _hard_sigmoid_of(writer, node)
    if x is None:
        return None
    return _write_unary(writer, node, "HardSigmoid", x, alpha=1 / 6, beta=0.5)


def _write_gated(writer: Writer, node: Node) -> Any:
    """Write x * hard_sigmoid(x), and x * sigmoid(x) if the opset has an operator."""
    for x, gate in _operand_orders(node):
        for name in ("divide", "multiply"):
            hard = _producer_of(writer, gate, name)
            if hard is not None and _hard_sigmoid_of(writer, hard) is x:
                return _write_unary(writer, node, "HardSwish", x)
        sigmoid = _producer_of(writer, gate, "sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] is x and writer.opset >= 24:
            return _write_unary(writer, node, "Swish", x)
    return None


def _write_gelu(writer: Writer, node: Node) -> Any:
    """Write 0.5 * x * (erf(x * sqrt(0.5)) + 1)."""
    if writer.opset < 20:
        return None
    for half, other in _operand_orders(node):
        halved = _match_scalar_operation(writer, half, "multiply", 0.5)
        shifted = _match_scalar_operation(writer, other, "add", 1)
        erf = None if shifted is None else _producer_of(writer, shifted[0], "erf")
        if halved is None or erf is None:
            continue
        inner = _match_scalar_operation(
            writer, erf.inputs[0], "multiply", math.sqrt(0.5)
        )
        if inner is not None and inner[0] is halved[0]:
            return _write_unary(writer, node, "Gelu", inner[0])
    return None


def _write_rectifier(writer: Writer, node: Node) -> Any:
    """Write where(x > 0, x, slope * x) and where(x > 0, x, alpha * (exp(x) - 1))."""
    condition, x, below = node.inputs
    positive = _producer_of(writer, condition, "less")
    if positive is None or positive.inputs[1] is not x:
        return None
    if writer.number(positive.inputs[0]) != 0:
        return None
    scaled = _match_scalar_operation(writer, below, "multiply")
    if scaled is not None and scaled[0] is x:
        return _write_unary(writer, node, "LeakyRelu", x, alpha=scaled[1])
    inner, alpha = (below, 1.0) if scaled is None else scaled
    curve = _producer_of(writer, inner, "expm1")
    cut = None if curve is None else _producer_of(writer, curve.inputs[0], "where")
    if cut is None or cut.inputs[0] is not condition or cut.inputs[2] is not x:
        return None
    if writer.number(cut.inputs[1]) != 0:
        return None
    return _write_unary(writer, node, "Elu", x, alpha=alpha)


@record
class ClippedValue:
    """Value expressed as another value, clipped to [low, high]; None: no limit."""

    x: Any
    low: float | None = None
    high: float | None = None

    def clip_further(self, low: float | None, high: float | None) -> ClippedValue:
        """Return the value with a further clip."""

        def clip(end: float | None) -> float | None:
            if end is not None and low is not None:
                end = max(end, low)
            return end if end is None or high is None else min(end, high)

        first, last = clip(self.low), clip(self.high)
        first = low if first is None else first
        return ClippedValue(self.x, first, high if last is None else last)


def _write_clipped(writer: Writer, node: Node) -> Any:
    """Write chains of max(x, c), min(x, c) and clips."""
    clipped = _extend_clip(writer, node)
    if clipped is None:
        return None
    writer.clipped[node.outputs[0]] = clipped
    dtype = node.outputs[0].spec.dtype
    if clipped.low == 0 and clipped.high is None:
        return _write_unary(writer, node, "Relu", clipped.x)
    ends = [
        "" if n is None else writer.scalar(n, dtype)
        for n in (clipped.low, clipped.high)
    ]
    return _write_unary(writer, node, "Clip", clipped.x, ends if ends[1] else ends[:1])


def _extend_clip(writer: Writer, node: Node) -> ClippedValue | None:
    out = node.outputs[0].spec
    if out.dtype not in ("float32", "float64"):
        return None
    if node.op.name == "limit":
        x, ends = node.inputs[0], (node.attrs["low"], node.attrs["high"])
        return writer.clipped.get(x, ClippedValue(x)).clip_further(*ends)
    for x, other in _operand_orders(node):
        number = writer.number(other)
        if number is not None and not math.isnan(number) and x.spec == out:
            clipped = writer.clipped.get(x, ClippedValue(x))
            is_low = node.op.name == "maximum"
            return (
                clipped.clip_further(number, None)
                if is_low
                else clipped.clip_further(None, number)
            )
    return None


# --- layer normalization --------------------------------------------------------------


@record
class NormalizedValue:
    """Value expressed as normalized x over its last axes, with scale and bias."""

    x: Any
    axis: int
    epsilon: float
    scale: Any = None
    bias: Any = None


def _write_normalized(writer: Writer, node: Node) -> Any:
    """Write centered * rsqrt(mean(centered ** 2) + epsilon), * scale, + bias."""
    normalized = _extend_normalization(writer, node)
    if normalized is None:
        return None
    writer.normalized[node.outputs[0]] = normalized
    dtype, shape = (
        node.outputs[0].spec.dtype,
        normalized.x.spec.shape[normalized.axis :],
    )
    scale = np.ones(shape, dtype) if normalized.scale is None else normalized.scale
    inputs = [writer(normalized.x), writer.constants.add(scale)]
    if normalized.bias is not None:
        inputs.append(writer.constants.add(normalized.bias))
    attrs = {
        "axis": normalized.axis - normalized.x.spec.ndim,
        "epsilon": normalized.epsilon,
    }
    return writer.node("LayerNormalization", inputs, **attrs)


def _extend_normalization(writer: Writer, node: Node) -> NormalizedValue | None:
    name = node.op.name
    for x, other in _operand_orders(node):
        previous = writer.normalized.get(x)
        array = writer.array(other)
        if previous is not None and array is not None and writer.has_one_use(x):
            shape = previous.x.spec.shape[previous.axis :]
            fits = array.size == math.prod(shape) and array.ndim <= previous.x.spec.ndim
            if (
                not fits
                or array.shape[-len(shape) :] != shape
                or previous.bias is not None
            ):
                continue
            array = array.reshape(shape)
            if name == "add":
                return replace(previous, bias=array)
            if previous.scale is None:
                return replace(previous, scale=array)
        if name == "multiply" and previous is None:
            normalized = _match_normalization(writer, x, other)
            if normalized is not None:
                return normalized
    return None


def _match_normalization(
    writer: Writer, centered: Any, factor: Any
) -> NormalizedValue | None:
    root = _producer_of(writer, factor, "rsqrt")
    total = (
        None if root is None else _match_scalar_operation(writer, root.inputs[0], "add")
    )
    difference = _producer_of(writer, centered, "subtract")
    if total is None or difference is None:
        return None
    variance = match_mean(writer, total[0])
    x, center = difference.inputs
    mean = match_mean(writer, center)
    if variance is None or mean is None or mean[0] is not x:
        return None
    square = _producer_of(writer, variance[0], "multiply")
    if square is None or any(v is not centered for v in square.inputs):
        return None
    axes = mean[1].attrs["axis"]
    rank = x.spec.ndim
    is_last = axes == tuple(range(axes[0], rank)) == variance[1].attrs["axis"]
    return NormalizedValue(x, axes[0], total[1]) if is_last else None


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
    **dict.fromkeys(("maximum", "minimum", "limit"), (_write_clipped,)),
}
