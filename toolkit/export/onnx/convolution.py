"""Convolutions and matrix products with constant weights, and folded scales.

Factors and shifts of each channel, of the results or the inputs, are folded into the
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

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
class Scaled:
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


def is_product(write: Writer, node: Node | None) -> bool:
    """Return whether a node is a convolution or matrix product by constant weights."""
    if node is None or node.op.name not in PRODUCTS:
        return False
    x, w = node.inputs
    if write.array(w) is None or write.array(w).dtype.kind != "f":
        return False
    return node.op.name != "matmul" or x.spec.ndim == w.spec.ndim == 2


def write_product(
    write: Writer, node: Node, out: Value, scaled: Scaled | None = None
) -> None:
    """Write a convolution or product for `out`, possibly with a folded scale."""
    if node.op.name == "matmul":
        _write_matrix_product(write, node, out, scaled)
    else:
        _write_convolution(write, node, out, scaled)


def _write_matrix_product(
    write: Writer, node: Node, out: Value, scaled: Scaled | None
) -> None:
    x, w = node.inputs
    image = _flattened(write, x)
    kernel = _scaled_kernel(write, w, scaled, image=image)
    name = write(x)
    if image is not None:
        name = write.reshaped(write.first[image], write.family.shape(x))
    inputs = [name, kernel]
    if scaled is None or not scaled.shift.any():
        write.last[out] = write.node("MatMul", inputs)
        return
    bias = _per_channel(scaled.shift, w.spec.shape[-1], out.spec.dtype)
    write.last[out] = write.node("Gemm", [*inputs, write.constants.add(bias)])


def _flattened(write: Writer, x: Any) -> Any:
    """Return the image that a value flattens, if it exists channels first.

    The result is flattened channels first, and the rows of the weights are permuted.
    """
    node = write.producers.get(x)
    if node is None or node.op.name != "reshape" or not write.is_alone(x):
        return None
    (image,) = node.inputs
    batch, *extents = write.family.shape(image)
    is_row = write.family.shape(x)[:1] == (batch,) and x.spec.ndim == 2
    is_image = 3 <= image.spec.ndim <= 5 and image in write.first
    fixed = all(isinstance(n, int) for n in extents)
    return image if is_row and is_image and fixed else None


def _write_convolution(
    write: Writer, node: Node, out: Value, scaled: Scaled | None
) -> None:
    attrs = write.family.attrs(node, but="padding")
    is_transposed = node.op.name == "conv_input_grad"
    x, w = node.inputs
    pads = padding(write.family, node)
    before = None if is_transposed else _scaled_input(write, node, pads)
    if not is_transposed and before is None and pads is not None:
        x, pads = _without_pad(write, x, pads)
    rank = x.spec.ndim - 2
    order = (rank + 1, rank, *range(rank))
    if write.array(w) is None:
        kernel = write.node("Transpose", [write(w)], perm=list(order))
    else:
        kernel = _scaled_kernel(write, w, scaled, before, order, node)
    inputs = [write.channels_first(before.base if before else x), kernel]
    bias = _bias(write, node, scaled, before)
    if bias is not None:
        inputs.append(write.constants.add(bias.astype(_array_dtype(w))))
    more: dict[str, Any] = {}
    if is_transposed:
        more["output_padding"] = write.family.same(node, _output_padding, "padding")
    write.first[out] = write.node(
        "ConvTranspose" if is_transposed else "Conv",
        inputs,
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        **as_attributes(pads),
        group=attrs["groups"],
        kernel_shape=list(w.spec.shape[:-2]),
        **more,
    )


def _without_pad(write: Writer, x: Any, pads: Any) -> tuple[Any, Any]:
    """Return the input of a pad with zeros, and the total padding."""
    node = write.producers.get(x)
    if node is None or node.op.name != "pad" or node.attrs["value"] != 0:
        return x, pads
    widths = write.family.attrs(node)["widths"]
    if widths[0] != (0, 0) or widths[-1] != (0, 0):
        return x, pads
    pairs = zip(widths[1:-1], pads, strict=True)
    return node.inputs[0], tuple((a + c, b + d) for (a, b), (c, d) in pairs)


def _output_padding(node: Node) -> list[int]:
    """Return the output padding of a transposed convolution, per axis."""
    x, w = (v.spec.shape for v in node.inputs)
    attrs, found = node.attrs, []
    for i, extent in enumerate(attrs["spatial"]):
        reach = (w[i] - 1) * attrs["dilation"][i] + 1
        whole = (x[i + 1] - 1) * attrs["strides"][i] + reach
        found.append(extent - whole + sum(attrs["padding"][i]))
    return found


# --- weights --------------------------------------------------------------------------


def _array_dtype(value: Any) -> Any:
    return value.constant.dtype


def _per_channel(array: Array, count: int, dtype: str) -> Array:
    return np.broadcast_to(array.reshape(-1), (count,)).astype(dtype)


def _scaled_kernel(
    write: Writer,
    w: Any,
    scaled: Scaled | None,
    before: Scaled | None = None,
    order: tuple[int, ...] = (),
    node: Node | None = None,
    image: Any = None,
) -> str:
    """Return the name of the weights, computed only if a node reads them."""
    array = write.array(w)
    is_plain = scaled is None or bool((scaled.factor == 1).all())
    if is_plain and before is None and not order and image is None:
        return write(w)
    across = node is not None and node.op.name == "conv_input_grad"

    def make() -> Array:
        kernel = array
        if before is not None:
            kernel = kernel * _by_input(node, before.factor).astype(array.dtype)
        if not is_plain:
            factor = scaled.factor.astype(array.dtype)  # type: ignore[union-attr]
            kernel = kernel * (factor.reshape(-1, 1) if across else factor.reshape(-1))
        if image is not None:
            rows = kernel.reshape(*image.spec.shape[1:], -1)
            kernel = np.moveaxis(rows, -2, 0).reshape(array.shape)
        return np.ascontiguousarray(kernel.transpose(order) if order else kernel)

    if is_plain and before is None:
        return write.constants.shared((w, image, order), make, write.label(w, "kernel"))
    return write.constants.later(make, write.label(w, "kernel"))


def _bias(
    write: Writer, node: Node, scaled: Scaled | None, before: Scaled | None
) -> Array | None:
    """Return the bias of each channel of the result in float64, or None."""
    bias = np.zeros(1)
    if before is not None and before.shift.any():
        kernel = np.asarray(write.array(node.inputs[1]), np.float64)
        space = tuple(range(kernel.ndim - 2))
        bias = (kernel.sum(space) * _by_input(node, before.shift)).sum(0)
    if scaled is not None:
        bias = bias * scaled.factor.reshape(-1) + scaled.shift.reshape(-1)
    channels = node.outputs[0].spec.shape[-1]
    return np.broadcast_to(bias, (channels,)) if bias.any() else None


def _by_input(node: Any, array: Array) -> Array:
    """Reshape values of the input channels to (channels / groups, filters)."""
    groups = node.attrs["groups"]
    channels, filters = node.inputs[1].spec.shape[-2:]
    array = np.broadcast_to(array.reshape(-1), (channels * groups,))
    return np.repeat(array.reshape(groups, channels).T, filters // groups, axis=1)


def _scaled_input(write: Writer, node: Node, pads: Any) -> Scaled | None:
    """Return the scale of a convolution's input, if the weights can absorb it."""
    x, w = node.inputs
    found: Scaled | None = write.scaled.get(x)
    if found is None or found.product is not None or not write.is_alone(x):
        return None
    padded = pads is None or any(low or high for low, high in pads)
    if write.array(w) is None or (padded and found.shift.any()):
        return None
    return found


# --- chains ---------------------------------------------------------------------------

_STEPS: dict[str, Callable[[Array, Array, Array], tuple[Array, Array]]] = {
    "add": lambda a, b, c: (a, b + c),
    "subtract": lambda a, b, c: (a, b - c),
    "multiply": lambda a, b, c: (a * c, b * c),
    "divide": lambda a, b, c: (a / c, b / c),
}


def write_scaled(write: Writer, node: Node) -> tuple[()] | None:
    """Fold `x + c`, `x * c` and similar, with c per channel, into the producer of x.

    Returns:
        None if no producer of x can absorb it.
    """
    found = _next(write, node)
    if found is None:
        return None
    (out,) = node.outputs
    write.scaled[out] = found
    if found.product is not None:
        write_product(write, found.product, out, found)
        return ()
    if found.base is _operand(write, node)[0]:
        return None  # the first of a chain is written without folding
    channels, dtype = out.spec.shape[-1], out.spec.dtype
    is_fixed = isinstance(write.family.shape(out)[-1], int)
    if not is_fixed:  # then one number applies to all channels
        channels = 1
    factor, shift = (
        write.constants.add(_per_channel(x, channels, dtype))
        for x in (found.factor, found.shift)
    )
    if found.base in write.first and out.spec.ndim > 2 and is_fixed:
        zeros = write.constants.add(np.zeros(channels, dtype))
        rest = write.constants.add(np.full(channels, 1 - _EPSILON, dtype))
        inputs = [write.first[found.base], factor, shift, zeros, rest]
        write.first[out] = write.node("BatchNormalization", inputs, epsilon=_EPSILON)
        return ()
    name = write(found.base)
    if (found.factor != 1).any():
        name = write.node("Mul", [name, factor])
    write.last[out] = write.node("Add", [name, shift]) if found.shift.any() else name
    return ()


def _next(write: Writer, node: Node) -> Scaled | None:
    x, constant = _operand(write, node)
    if x is None:
        return None
    chain = write.scaled.get(x)
    producer = write.producers.get(x)
    if not write.is_alone(x):
        chain, producer = None, None
    if chain is None:
        product = producer if is_product(write, producer) else None
        chain = Scaled(x, np.ones(1), np.zeros(1), product)
    factor, shift = _STEPS[node.op.name](chain.factor, chain.shift, constant)
    return Scaled(chain.base, factor, shift, chain.product)


def _operand(write: Writer, node: Node) -> tuple[Any, Array]:
    """Return the variable operand, and the constant one per channel; or None."""
    nothing = None, None
    is_symmetric = node.op.name in ("add", "multiply")
    pairs = [node.inputs, node.inputs[::-1]] if is_symmetric else [node.inputs]
    out = node.outputs[0].spec
    if not out.shape or not out.dtype.startswith("float"):
        return nothing
    for x, other in pairs:
        array = write.array(other)
        if array is None or x.constant is not None or x.spec.shape != out.shape:
            continue
        if array.size in (1, array.shape[-1] if array.ndim else 1):
            constant = array.reshape(-1).astype(np.float64)
            if np.isfinite(constant).all() and not (
                node.op.name == "divide" and (constant == 0).any()
            ):
                return x, constant
    return nothing
