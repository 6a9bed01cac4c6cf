"""Elementwise kernels: NumPy's ufuncs, and the few functions that NumPy lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import dtypes
from toolkit.backends.array import special
from toolkit.backends.array.common import (
    CHUNK,
    HALVES,
    Array,
    Kernels,
    Scratch,
    boxes,
    is_half,
    piece,
    scratch_bytes,
)
from toolkit.backends.kernels import Kernel, workspace
from toolkit.ir import Spec
from toolkit.ir.scalars import SCALARS

# Below this number of elements, one call that allocates is faster than several that do
# not. Allocations up to this number of bytes need no scratch memory.
_SMALL = 1024


def _steps_bytes(temporaries: int) -> Callable[..., int]:
    """Return the scratch rule of a function in steps, for `_in_steps`."""

    def rule(x: Spec, **attrs: Any) -> int:
        width = 8 if x.dtype == "float64" else 4
        count = temporaries + (x.dtype in HALVES)
        size = min(x.size, CHUNK)
        return scratch_bytes(*[size * width] * count)

    return rule


def _chosen_bytes(temporaries: int, width: int | None = None) -> Callable[..., int]:
    """Return the scratch rule of a function in steps with two branches."""

    def rule(x: Spec, **attrs: Any) -> int:
        itemsize = width or (8 if x.dtype == "float64" else 4)
        size = min(x.size, CHUNK)
        return scratch_bytes(size, *[size * itemsize] * (temporaries + 2))

    return rule


def _where_bytes(c: Spec, a: Spec, b: Spec, **attrs: object) -> int:
    """Return the bytes of two chunks of integers with the width of the elements."""
    size = min(max(c.size, 1) * max(a.size, 1) * max(b.size, 1), CHUNK)
    return scratch_bytes(*[size * dtypes.itemsize(a.dtype)] * 2)


class Elementwise(Kernels):
    """Kernels with one output element per input element, with broadcasting."""

    def table(self) -> dict[str, Kernel]:
        """Return the array module's functions by scalar operation, and the methods."""
        named = {
            name: getattr(self.xp, word.array)
            for name, word in SCALARS.items()
            if isinstance(word.array, str) and word.array
        }
        return named | super().table()

    def stop_gradient(self, x: Array, *, out: Array | None = None) -> Array:
        """Return the input."""
        return x if out is None else self._copy_to(out, x)

    def cast(self, x: Array, *, dtype: str, out: Array | None = None) -> Array:
        """Cast to another dtype; a cast from float to integer truncates."""
        if x.dtype.kind == "c" and dtypes.real_type(dtype) == dtype != "bool":
            x = x.real
        if out is None:
            return x.astype(dtypes.numpy_dtype(dtype))
        return self._copy_to(out, x)

    def round(self, x: Array, *, out: Array | None = None) -> Array:
        """Round to the nearest integer, ties to even."""
        if x.dtype.kind in "biu":
            return self.stop_gradient(x, out=out)
        return self.xp.rint(x, out=out)

    @workspace(_where_bytes)
    def where(
        self, c: Array, a: Array, b: Array, *, out: Any = None, work: Any = None
    ) -> Array:
        """Return `a` where `c` is true, else `b`."""
        xp = self.xp
        if out is None:
            if max(c.size, a.size, b.size) <= _SMALL:
                return xp.where(c, a, b)
            shape = xp.broadcast_shapes(c.shape, a.shape, b.shape)
            out = xp.empty(shape, a.dtype)
        elif out.nbytes <= _SMALL:
            return self._copy_to(out, xp.where(c, a, b))
        if out.itemsize > 8:  # no integer type has this width
            xp.copyto(out, b)
            xp.copyto(out, a, where=c)
            return out
        memory = Scratch(xp, work)
        integer = f"int{8 * out.itemsize}"
        size = min(out.size, CHUNK)
        buffers = memory.take(size, integer), memory.take(size, integer)
        for box in boxes(out.shape, CHUNK):
            target = out[box]
            condition, lhs, rhs = (piece(x, out.shape, box) for x in (c, a, b))
            bits, diff = (_shaped(buffer, target) for buffer in buffers)
            special.select(xp, condition, lhs, rhs, target, bits, diff)
        return out

    @workspace(_steps_bytes(0))
    def rsqrt(self, x: Array, *, out: Any = None, work: Any = None) -> Array:
        """Compute 1 / sqrt(x)."""
        return self._in_steps(self._rsqrt, x, out, work)

    @workspace(_steps_bytes(0))
    def sigmoid(self, x: Array, *, out: Any = None, work: Any = None) -> Array:
        """Compute 1 / (1 + exp(-x)); where exp overflows, the quotient is 0."""
        return self._in_steps(self._sigmoid, x, out, work)

    @workspace(_chosen_bytes(4))
    def erf(self, x: Array, *, out: Any = None, work: Any = None) -> Array:
        """Compute the error function."""
        if x.dtype == "float64":
            return self._in_branches(special.erf64, x, out, work, "float64", 4)
        return self._in_branches(special.erf32, x, out, work, "float32", 3)

    @workspace(_chosen_bytes(7, width=8))
    def erfinv(self, x: Array, *, out: Any = None, work: Any = None) -> Array:
        """Compute the inverse of erf: infinite at -1 and 1, NaN outside."""
        return self._in_branches(special.erfinv64, x, out, work, "float64", 6)

    def _rsqrt(self, x: Array, y: Array) -> None:
        self.xp.sqrt(x, out=y)
        self.xp.reciprocal(y, out=y)

    def _sigmoid(self, x: Array, y: Array) -> None:
        self.xp.negative(x, out=y)
        self.xp.exp(y, out=y)
        self.xp.add(y, 1.0, out=y)
        self.xp.reciprocal(y, out=y)

    def _in_steps(self, steps: Any, x: Array, out: Any, work: Any) -> Array:
        """Run `steps(x, y)` on chunks, on a float32 copy for half precision."""
        out = self._result(out, x.shape, x.dtype)
        half = is_half(x.dtype)
        if not half and x.size <= CHUNK:
            steps(x, out)
            return out
        if half:
            buffer = Scratch(self.xp, work).take(min(x.size, CHUNK), "float32")
        for box in boxes(x.shape, CHUNK):
            source, target = x[box], out[box]
            if half:
                y = _shaped(buffer, target)
                self.xp.copyto(y, source)
                steps(y, y)
                self._copy_to(target, y)
            else:
                steps(source, target)
        return out

    def _in_branches(
        self, steps: Any, x: Array, out: Any, work: Any, dtype: str, temporaries: int
    ) -> Array:
        """Run `steps(xp, x, y, mask, bits, *temporaries)` on chunks, in `dtype`."""
        xp = self.xp
        out = self._result(out, x.shape, x.dtype)
        memory, size = Scratch(xp, work), min(x.size, CHUNK)
        mask, bits = memory.take(size, "bool"), memory.take(size, f"int{dtype[-2:]}")
        buffers = [memory.take(size, dtype) for _ in range(temporaries)]
        convert = memory.take(size, dtype) if x.dtype != dtype else None
        for box in boxes(x.shape, CHUNK):
            source, target = x[box], out[box]
            shaped = (_shaped(t, target) for t in (mask, bits, *buffers))
            if convert is None:
                steps(xp, source, target, *shaped)
            else:
                y = _shaped(convert, target)
                xp.copyto(y, source)
                steps(xp, y, y, *shaped)
                self._copy_to(target, y)
        return out


def _shaped(buffer: Array, like: Array) -> Array:
    """Return the start of a flat buffer in the shape of `like`."""
    return buffer[: like.size].reshape(like.shape)
