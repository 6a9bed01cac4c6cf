"""Kernels from a primitive's record: its scalar rule, or its `array`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from toolkit import dtypes
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec
from toolkit.ir.scalars import SCALARS

Array = Any
Kernel = Callable[..., Any]


def upcast(x: Array) -> Array:
    """Convert half precision to float32, and return other dtypes unchanged."""
    half = dtypes.name_of(x.dtype) in ("float16", "bfloat16")
    return x.astype("float32") if half else x


class ArrayScalars:
    """Scalar operations on whole arrays.

    Args:
        xp: NumPy, or a compatible module.
        kernels: for the operations that such modules lack.
    """

    def __init__(self, xp: Any, kernels: Mapping[str, Kernel]) -> None:
        self.xp = xp
        self.kernels = kernels

    def __getattr__(self, name: str) -> Callable[..., Array]:
        if name not in SCALARS:
            raise AttributeError(f"unknown scalar function {name!r}")
        array = SCALARS[name].array
        if callable(array):
            return partial(array, self.xp)
        return getattr(self.xp, array) if array else self.kernels[name]

    def const(self, value: Any, like: Array) -> Array:
        """Return a constant of the dtype of `like`."""
        return self.xp.asarray(value, like.dtype)

    def select(self, c: Array, a: Array, b: Array) -> Array:
        """Return a where c is true, else b."""
        return self.xp.where(c, a, b)

    def cast(self, x: Array, dtype: str) -> Array:
        """Return x in another dtype."""
        return x.astype(dtypes.numpy_dtype(dtype))

    def saturate(self, x: Array, dtype: str, offset: int, bits: int) -> Array:
        """Return x + offset, rounded and clamped to 2 ** bits integers; NaN gives 0."""
        x = x + x.dtype.type(offset)
        low, high = 0, 2**bits - 1
        return self.cast(self.xp.rint(self.xp.fmin(self.xp.fmax(x, low), high)), dtype)

    def round(self, x: Array) -> Array:
        """Round to the nearest integer, ties to even."""
        return self.xp.rint(x).astype(x.dtype)


def render_kernel(record: Primitive, scalars: ArrayScalars) -> Kernel | None:
    """Return the kernel that a record defines; None if it has no rule.

    It computes half precision in float32.
    """
    rule = record.array and partial(record.array, scalars.xp)
    if record.kind is Kind.ELEMENTWISE and record.scalar is not None:
        rule = partial(record.scalar, scalars)
    if rule is None:
        return None

    def kernel(*arrays: Array, out: Any = None, **attrs: Any) -> Any:
        specs = record.spec(*map(_spec, arrays), **attrs)
        result = rule(*map(upcast, arrays), **attrs)
        if not isinstance(specs, tuple):
            return _store_result(scalars.xp, result, specs, out)
        outs = out or (None,) * len(specs)
        triples = zip(result, specs, outs, strict=True)
        return tuple(_store_result(scalars.xp, *one) for one in triples)

    return kernel


def _spec(array: Array) -> Spec:
    return Spec(array.shape, dtypes.name_of(array.dtype))


def _store_result(xp: Any, result: Array, spec: Spec, out: Array | None) -> Array:
    """Return a result in the dtype of its spec, in `out` if given."""
    if out is None:
        return xp.asarray(result).astype(dtypes.numpy_dtype(spec.dtype))
    xp.copyto(out, result, casting="unsafe")
    return out


class KernelTable(dict[str, Kernel]):
    """Kernels by primitive name; a missing one is rendered from its record.

    Args:
        kernels: the explicit kernels.
        render: returns the kernel of a record, or None if it has no rule.
    """

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        render: Callable[[Primitive], Kernel | None],
    ) -> None:
        super().__init__(kernels)
        self.render = render

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        record = PRIMITIVES.get(str(name))
        # Eager calls look up composites, which have a body, repeatedly.
        if record is None or record.kind is Kind.COMPOSITE:
            return False
        return self.render(record) is not None

    def __missing__(self, name: str) -> Kernel:
        record = PRIMITIVES.get(name)
        kernel = self.render(record) if record and name in self else None
        if kernel is None:
            raise KeyError(name)
        self[name] = kernel
        return kernel
