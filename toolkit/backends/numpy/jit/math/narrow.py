"""Conversions between float32 and the 16-bit floats, which are stored as bits."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Builder, Value, vector_type
from toolkit.backends.numpy.jit.math import bfloat16
from toolkit.backends.numpy.jit.processor import current

WIDE = bfloat16.WIDE
_FLOAT16 = "float16"


def is_narrow(dtype: str) -> bool:
    """Return whether generated code converts a 16-bit float to float32."""
    return dtype == bfloat16.NARROW or (
        dtype == _FLOAT16 and current().converts_float16
    )


def converts(source: str, target: str) -> bool:
    """Return whether a cast is one of these conversions."""
    return (source == WIDE and is_narrow(target)) or (
        target == WIDE and is_narrow(source)
    )


def convert(b: Builder, x: Value, dtype: str) -> Value:
    """Convert to float32, or to the nearest float of 16 bits, ties to even."""
    if bfloat16.NARROW in (x.dtype, dtype):
        return (bfloat16.widened if dtype == WIDE else bfloat16.narrowed)(b, x)
    half, bits = (vector_type(kind, x.lanes) for kind in ("half", "i16"))
    if dtype == WIDE:
        number = b.let(f"bitcast {bits} {x} to {half}", _FLOAT16, x.lanes)
        wide = vector_type("float", x.lanes)
        return b.let(f"fpext {half} {number} to {wide}", WIDE, x.lanes)
    number = b.let(f"fptrunc {x.type} {x} to {half}", _FLOAT16, x.lanes)
    return b.let(f"bitcast {half} {number} to {bits}", _FLOAT16, x.lanes)
