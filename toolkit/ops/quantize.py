"""Numbers of 8 bits from floating ones, and convolutions of them."""

from __future__ import annotations

from typing import Any

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import DTypeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import broadcast_shapes
from toolkit.ops.conv import conv_axes, conv_spec, convolve

# A primitive, so that passes know it, and generated code packs its bytes.
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


# `offset`: what was added to each element of x; beside the images it is that, too.
# `bits`: of the elements, if they are fewer than 8: what multiplies x may count on it.
def _conv_integer_spec(
    x: Spec, w: Spec, offset: int = 0, bits: int = 8, **attrs: Any
) -> Spec:
    if x.dtype not in ("int8", "uint8") or w.dtype != "int8":
        raise DTypeError(
            "conv_integer: expected images of int8 or uint8 and a kernel of int8; "
            f"received {x.dtype} and {w.dtype}"
        )
    return conv_spec(x, w, **attrs).with_dtype("int32")


# A primitive, as processors multiply 8 bits several times as fast as they do 32.
conv_integer_p: Primitive = primitive(
    "conv_integer", Kind.CONTRACT, _conv_integer_spec, axes=conv_axes("x,w->g")
)


def quantize(x: Any, scale: Any, offset: int = 0, bits: int = 8) -> Tensor:
    """`round(x * scale + offset)` as uint8, halves to even, from 0 to 2 ** bits - 1.

    What is beyond becomes the nearest of these numbers, NaN the first.

    Args:
        x: (...), floating.
        scale: positive and finite, of the dtype of x; its shape broadcasts to that of
            x.
        offset: what 0 becomes.
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
    """The convolution of `x - offset`, whole numbers of 8 bits, as int32.

    Args:
        x: as for `ops.conv`, int8 or uint8.
        kernel: as there, int8.
        strides, padding, data_format, dilation_rate: as there.
        offset: what was added to each element.
        bits: that elements have: of uint8 none may be 2 ** bits or more.
    """
    options = strides, padding, data_format, dilation_rate
    factors = convert(x), convert(kernel)
    return convolve(conv_integer_p, *factors, *options, offset=offset, bits=bits)
