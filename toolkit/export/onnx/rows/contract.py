"""ONNX rules of products, convolutions, pooling and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

from toolkit.export.onnx.convolution import is_product, write_product
from toolkit.export.onnx.rows.elementwise import WIDE
from toolkit.export.onnx.table import row
from toolkit.export.onnx.windows import as_attributes, padding
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node


@row("matmul")
def _matmul(write: Writer, node: Node) -> Any:
    if is_product(write, node):
        write_product(write, node, node.outputs[0])
        return ()
    dtype = node.outputs[0].spec.dtype
    names = [write(x) for x in node.inputs]
    wide = WIDE.get(dtype)
    if wide is None:
        return write.node("MatMul", names)
    name = write.node("MatMul", [write.cast(x, wide) for x in names])
    return write.cast(name, dtype)


@row("matmul_integer")
def _matmul_integer(write: Writer, node: Node) -> Any:
    return write.node("MatMulInteger", [write(x) for x in node.inputs])


@row("conv", "conv_input_grad")
def _conv(write: Writer, node: Node) -> tuple[()]:
    write_product(write, node, node.outputs[0])
    return ()


@row("conv_integer")
def _conv_integer(write: Writer, node: Node) -> tuple[()]:
    x, w = node.inputs
    attrs, rank = write.family.attrs(node, but="padding"), x.spec.ndim - 2
    kernel = write.node("Transpose", [write(w)], perm=[rank + 1, rank, *range(rank)])
    offset = write.scalar(attrs["offset"], x.spec.dtype)
    write.first[node.outputs[0]] = write.node(
        "ConvInteger",
        [write.channels_first(x), kernel, offset],
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        **as_attributes(padding(write.family, node)),
        group=attrs["groups"],
        kernel_shape=list(w.spec.shape[:-2]),
    )
    return ()


@row("max_pool")
def _max_pool(write: Writer, node: Node) -> tuple[()]:
    values = node.outputs[0]
    write.pool("MaxPool", node, values)
    return ()


@row("sum_pool")
def _sum_pool(write: Writer, node: Node) -> tuple[()]:
    (y,) = node.outputs
    write.pool("AveragePool", node, y, count_include_pad=1)
    count = write.scalar(math.prod(node.attrs["window"]), y.spec.dtype)
    write.first[y] = write.node("Mul", [write.first[y], count])
    return ()


@row("dft")
def _dft(write: Writer, node: Node) -> list[str]:
    real, imag = (write(x) for x in node.inputs)
    axis, inverse = node.attrs["axis"], node.attrs["inverse"]
    if inverse:  # the inverse is the transform with swapped parts, without 1 / n
        real, imag = imag, real
    real, imag = _spectrum(write, [real, imag], axis)
    return [imag, real] if inverse else [real, imag]


@row("rdft")
def _rdft(write: Writer, node: Node) -> list[str]:
    (x,) = node.inputs
    return _spectrum(write, [write(x)], x.spec.ndim - 1, onesided=1)


@row("irdft")
def _irdft(write: Writer, node: Node) -> list[str]:
    real, imag = (write(x) for x in node.inputs)
    axis, length = node.inputs[0].spec.ndim - 1, node.attrs["length"]
    return _spectrum(write, [imag, real], axis, length)[1:]


def _spectrum(
    write: Writer, parts: list[str], axis: int, length: int | None = None, **attrs: int
) -> list[str]:
    """Return the transform of one or two parts, padded to a length."""
    last = write.ints([-1])
    parts = [write.node("Unsqueeze", [x, last]) for x in parts]
    whole = write.node("Concat", parts, axis=-1) if len(parts) > 1 else parts[0]
    inputs = [whole, "" if length is None else write.scalar(length, "int64")]
    if write.opset >= 20:
        found = write.node("DFT", [*inputs, write.scalar(axis, "int64")], **attrs)
    else:
        used = inputs if length is not None else inputs[:1]
        found = write.node("DFT", used, axis=axis, **attrs)
    places = [write.scalar(i, "int64") for i in (0, 1)]
    return [write.node("Gather", [found, i], axis=-1) for i in places]
