"""Convolutions and matrix products with constant weights, and folded scales.

Factors and shifts of each channel, of the results or the inputs, are folded into the
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.core.tensor import Tensor
from toolkit.definitions.records import record
from toolkit.export.onnx.windows import as_attributes, padding
from toolkit.ir import Node, Value

if TYPE_CHECKING:
    from toolkit.export.onnx.writer import Writer

Array = Any
# ONNX's default epsilon, which some runtimes always use instead of 0.
_EPSILON = 1e-5
PRODUCTS = ("conv", "conv_input_grad", "matmul")


@record
class ScaledValue:
    """Value expressed as another value times `factor` plus `shift`, per channel.

    Attributes:
        base: the other value.
        factor, shift: float64, a single number or one for each channel.
        product: the node with constant weights that computes base, or None.
    """

    base: Value
    factor: Array
    shift: Array
    product: Node | None


def is_product(writer: Writer, node: Node | None) -> bool:
    """Return whether a node is a convolution or matrix product by constant weights."""
    if node is None or node.op.name not in PRODUCTS:
        return False
    x, w = node.inputs
    if writer.array(w) is None or writer.array(w).dtype.kind != "f":
        return False
    return node.op.name != "matmul" or x.spec.ndim == w.spec.ndim == 2


def write_product(
    writer: Writer, node: Node, out: Value, scaled: ScaledValue | None = None
) -> None:
    """Write a convolution or product for `out`, possibly with a folded scale."""
    if node.op.name == "matmul":
        _write_matrix_product(writer, node, out, scaled)
    else:
        _write_convolution(writer, node, out, scaled)


def _write_matrix_product(
    writer: Writer, node: Node, out: Value, scaled: ScaledValue | None
) -> None:
    x, w = node.inputs
    image = _flattened_image(writer, x)
    kernel = _scaled_kernel(writer, w, scaled, image=image)
    name = writer(x)
    if image is not None:
        name = writer.reshaped(writer.nchw_names[image], writer.family.shape(x))
    inputs = [name, kernel]
    if scaled is None or not scaled.shift.any():
        writer.tensor_names[out] = writer.node("MatMul", inputs)
        return
    bias = _per_channel(scaled.shift, w.spec.shape[-1], out.spec.dtype)
    writer.tensor_names[out] = writer.node(
        "Gemm", [*inputs, writer.constants.add(bias)]
    )


def _flattened_image(writer: Writer, x: Tensor) -> Any:
    """Return the image that a value flattens, if it exists channels first.

    The result is flattened channels first, and the rows of the weights are permuted.
    """
    node = writer.producers.get(x)
    if node is None or node.op.name != "reshape" or not writer.has_one_use(x):
        return None
    (image,) = node.inputs
    batch, *extents = writer.family.shape(image)
    is_row = writer.family.shape(x)[:1] == (batch,) and x.spec.ndim == 2
    is_image = 3 <= image.spec.ndim <= 5 and image in writer.nchw_names
    fixed = all(isinstance(n, int) for n in extents)
    return image if is_row and is_image and fixed else None


def _write_convolution(
    writer: Writer, node: Node, out: Value, scaled: ScaledValue | None
) -> None:
    attrs = writer.family.attrs(node, unchecked="padding")
    is_transposed = node.op.name == "conv_input_grad"
    x, w = node.inputs
    pads = padding(writer.family, node)
    input_scale = None if is_transposed else _scaled_input(writer, node, pads)
    if not is_transposed and input_scale is None and pads is not None:
        x, pads = _without_pad(writer, x, pads)
    rank = x.spec.ndim - 2
    order = (rank + 1, rank, *range(rank))
    if writer.array(w) is None:
        kernel = writer.node("Transpose", [writer(w)], perm=list(order))
    else:
        kernel = _scaled_kernel(writer, w, scaled, input_scale, order, node)
    inputs = [writer.channels_first(input_scale.base if input_scale else x), kernel]
    bias = _bias(writer, node, scaled, input_scale)
    if bias is not None:
        inputs.append(writer.constants.add(bias.astype(_array_dtype(w))))
    extra_attrs: dict[str, Any] = {}
    if is_transposed:
        extra_attrs["output_padding"] = writer.family.common_value(
            node, _output_padding, "padding"
        )
    writer.nchw_names[out] = writer.node(
        "ConvTranspose" if is_transposed else "Conv",
        inputs,
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        **as_attributes(pads),
        group=attrs["groups"],
        kernel_shape=list(w.spec.shape[:-2]),
        **extra_attrs,
    )


def _without_pad(writer: Writer, x: Any, pads: Any) -> tuple[Any, Any]:
    """Return the input of a pad with zeros, and the total padding."""
    node = writer.producers.get(x)
    if node is None or node.op.name != "pad" or node.attrs["value"] != 0:
        return x, pads
    widths = writer.family.attrs(node)["widths"]
    if widths[0] != (0, 0) or widths[-1] != (0, 0):
        return x, pads
    pairs = zip(widths[1:-1], pads, strict=True)
    return node.inputs[0], tuple((a + c, b + d) for (a, b), (c, d) in pairs)


def _output_padding(node: Node) -> list[int]:
    """Return the output padding of a transposed convolution, per axis."""
    x, w = (v.spec.shape for v in node.inputs)
    attrs, paddings = node.attrs, []
    for i, extent in enumerate(attrs["spatial"]):
        reach = (w[i] - 1) * attrs["dilation"][i] + 1
        full_extent = (x[i + 1] - 1) * attrs["strides"][i] + reach
        paddings.append(extent - full_extent + sum(attrs["padding"][i]))
    return paddings


# --- weights --------------------------------------------------------------------------


def _array_dtype(value: Any) -> Any:
    return value.constant.dtype


def _per_channel(array: Array, count: int, dtype: str) -> Array:
    return np.broadcast_to(array.reshape(-1), (count,)).astype(dtype)


def _scaled_kernel(
    writer: Writer,
    w: Tensor,
    scaled: ScaledValue | None,
    input_scale: ScaledValue | None = None,
    order: tuple[int, ...] = (),
    node: Node | None = None,
    image: Any = None,
) -> str:
    """Return the name of the weights, computed only if a node reads them."""
    array = writer.array(w)
    is_plain = scaled is None or bool((scaled.factor == 1).all())
    if is_plain and input_scale is None and not order and image is None:
        return writer(w)
    is_transposed = node is not None and node.op.name == "conv_input_grad"

    def compute_kernel() -> Array:
        kernel = array
        if input_scale is not None:
            kernel = kernel * _per_input_channel(node, input_scale.factor).astype(
                array.dtype
            )
        if not is_plain:
            factor = scaled.factor.astype(array.dtype)  # type: ignore[union-attr]
            kernel = kernel * (
                factor.reshape(-1, 1) if is_transposed else factor.reshape(-1)
            )
        if image is not None:
            rows = kernel.reshape(*image.spec.shape[1:], -1)
            kernel = np.moveaxis(rows, -2, 0).reshape(array.shape)
        return np.ascontiguousarray(kernel.transpose(order) if order else kernel)

    if is_plain and input_scale is None:
        return writer.constants.add_shared(
            (w, image, order), compute_kernel, writer.label(w, "kernel")
        )
    return writer.constants.add_lazy(compute_kernel, writer.label(w, "kernel"))


def _bias(
    writer: Writer,
    node: Node,
    scaled: ScaledValue | None,
    input_scale: ScaledValue | None,
) -> Array | None:
    """Return the bias of each channel of the result in float64, or None."""
    bias = np.zeros(1)
    if input_scale is not None and input_scale.shift.any():
        kernel = np.asarray(writer.array(node.inputs[1]), np.float64)
        space = tuple(range(kernel.ndim - 2))
        bias = (kernel.sum(space) * _per_input_channel(node, input_scale.shift)).sum(0)
    if scaled is not None:
        bias = bias * scaled.factor.reshape(-1) + scaled.shift.reshape(-1)
    channels = node.outputs[0].spec.shape[-1]
    return np.broadcast_to(bias, (channels,)) if bias.any() else None


def _per_input_channel(node: Any, array: Array) -> Array:
    """Reshape values of the input channels to (channels / groups, filters)."""
    groups = node.attrs["groups"]
    channels, filters = node.inputs[1].spec.shape[-2:]
    array = np.broadcast_to(array.reshape(-1), (channels * groups,))
    return np.repeat(array.reshape(groups, channels).T, filters // groups, axis=1)


def _scaled_input(writer: Writer, node: Node, pads: Any) -> ScaledValue | None:
    """Return the scale of a convolution's input, if the weights can absorb it."""
    x, w = node.inputs
    scale: ScaledValue | None = writer.scaled.get(x)
    if scale is None or scale.product is not None or not writer.has_one_use(x):
        return None
    padded = pads is None or any(low or high for low, high in pads)
    if writer.array(w) is None or (padded and scale.shift.any()):
        return None
    return scale


# --- chains ---------------------------------------------------------------------------

_STEPS: dict[str, Callable[[Array, Array, Array], tuple[Array, Array]]] = {
    "add": lambda a, b, c: (a, b + c),
    "subtract": lambda a, b, c: (a, b - c),
    "multiply": lambda a, b, c: (a * c, b * c),
    "divide": lambda a, b, c: (a / c, b / c),
}


def write_scaled(writer: Writer, node: Node) -> tuple[()] | None:
    """Fold `x + c`, `x * c` and similar, with c per channel, into the producer of x.

    Returns:
        None if no producer of x can absorb it.
    """
    scaled = _extend_chain(writer, node)
    if scaled is None:
        return None
    (out,) = node.outputs
    writer.scaled[out] = scaled
    if scaled.product is not None:
        write_product(writer, scaled.product, out, scaled)
        return ()
    if scaled.base is _constant_operand(writer, node)[0]:
        return None  # the first of a chain is written without folding
    channels, dtype = out.spec.shape[-1], out.spec.dtype
    is_fixed = isinstance(writer.family.shape(out)[-1], int)
    if not is_fixed:  # then one number applies to all channels
        channels = 1
    factor, shift = (
        writer.constants.add(_per_channel(x, channels, dtype))
        for x in (scaled.factor, scaled.shift)
    )
    if scaled.base in writer.nchw_names and out.spec.ndim > 2 and is_fixed:
        means = writer.constants.add(np.zeros(channels, dtype))
        variances = writer.constants.add(np.full(channels, 1 - _EPSILON, dtype))
        inputs = [writer.nchw_names[scaled.base], factor, shift, means, variances]
        writer.nchw_names[out] = writer.node(
            "BatchNormalization", inputs, epsilon=_EPSILON
        )
        return ()
    name = writer(scaled.base)
    if (scaled.factor != 1).any():
        name = writer.node("Mul", [name, factor])
    writer.tensor_names[out] = (
        writer.node("Add", [name, shift]) if scaled.shift.any() else name
    )
    return ()


def _extend_chain(writer: Writer, node: Node) -> ScaledValue | None:
    x, constant = _constant_operand(writer, node)
    if x is None:
        return None
    chain = writer.scaled.get(x)
    producer = writer.producers.get(x)
    if not writer.has_one_use(x):
        chain, producer = None, None
    if chain is None:
        product = producer if is_product(writer, producer) else None
        chain = ScaledValue(x, np.ones(1), np.zeros(1), product)
    factor, shift = _STEPS[node.op.name](chain.factor, chain.shift, constant)
    return ScaledValue(chain.base, factor, shift, chain.product)


def _constant_operand(writer: Writer, node: Node) -> tuple[Any, Array]:
    """Return the variable operand, and the constant one per channel; or None."""
    no_match = None, None
    is_symmetric = node.op.name in ("add", "multiply")
    pairs = [node.inputs, node.inputs[::-1]] if is_symmetric else [node.inputs]
    out = node.outputs[0].spec
    if not out.shape or not out.dtype.startswith("float"):
        return no_match
    for x, other in pairs:
        array = writer.array(other)
        if array is None or x.constant is not None or x.spec.shape != out.shape:
            continue
        if array.size in (1, array.shape[-1] if array.ndim else 1):
            constant = array.reshape(-1).astype(np.float64)
            if np.isfinite(constant).all() and not (
                node.op.name == "divide" and (constant == 0).any()
            ):
                return x, constant
    return no_match
