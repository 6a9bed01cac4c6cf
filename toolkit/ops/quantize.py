"""Quantization of floats to 8-bit integers, and convolutions of these integers."""

from __future__ import annotations

from typing import Any

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import DTypeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import broadcast_shapes
from toolkit.ops.conv import conv_axes, conv_spec, convolve

# A primitive, so that passes recognize it, and generated code packs its bytes.
quantize_p: Primitive = primitive(
    "quantize",
    Kind.ELEMENTWISE,
    spec=lambda x, scale, offset, bits: Spec(
        broadcast_shapes("quantize", x.shape, scale.shape), "uint8"
    ),
    scalar=lambda s, x, scale, offset, bits: s.saturate(
        s.multiply(x, scale), "uint8", offset, bits
    ),
    axes="...->...",
)


# `offset`: the number added to each element of x; it is also the value of the padding.
# `bits`: bits of the elements, if fewer than 8: kernels may rely on it.
def _conv_integer_spec(
    x: Spec, w: Spec, offset: int = 0, bits: int = 8, **attrs: Any
) -> Spec:
    if x.dtype not in ("int8", "uint8") or w.dtype != "int8":
        raise DTypeError(
            "conv_integer: expected images of int8 or uint8 and a kernel of int8; "
            f"received {x.dtype} and {w.dtype}"
        )
    return conv_spec(x, w, **attrs).with_dtype("int32")


# A primitive, because processors multiply 8-bit integers several times as fast as
# 32-bit integers.
conv_integer_p: Primitive = primitive(
    "conv_integer", Kind.CONTRACT, _conv_integer_spec, axes=conv_axes("x,w->g")
)


def quantize(x: Any, scale: Any, offset: int = 0, bits: int = 8) -> Tensor:
    """Compute `round(x * scale + offset)`, half to even, from 0 to 2 ** bits - 1.

    Values out of range become the nearest number in range, and NaN becomes 0.

    Args:
        x: (...), floating.
        scale: positive and finite, with the dtype of x; its shape broadcasts to the
            shape of x.
        offset: the quantized value of 0.
        bits: from 1 to 8.

    Example:
        >>> from toolkit.ops.quantize import quantize
        >>> quantize([-1.0, 0.25, 99.0], 10.0).tolist()
        [0, 2, 255]
    """
    x = convert(x)
    return bind(quantize_p, x, convert(scale, x.dtype), offset=offset, bits=bits)


def convolve_whole(
    x: Any,
    kernel: Any,
    strides: Any,
    padding: str,
    data_format: str | None,
    dilation_rate: Any,
    offset: int = 0,
    bits: int = 8,
) -> Tensor:
    """Convolve `x - offset`, 8-bit integers, to int32.

    Args:
        x: as for `ops.conv`, int8 or uint8.
        kernel: as for `ops.conv`, int8.
        strides, padding, data_format, dilation_rate: as for `ops.conv`.
        offset: the number added to each element.
        bits: bits of the elements: uint8 elements must be less than 2 ** bits.
    """
    options = strides, padding, data_format, dilation_rate
    factors = convert(x), convert(kernel)
    return convolve(conv_integer_p, *factors, *options, offset=offset, bits=bits)
