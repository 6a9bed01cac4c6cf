"""Kernels of a backend: a table by primitive, completed by the primitives' records.

A kernel is called as `kernel(*arrays, out=None, **attrs)`. Dtypes are already promoted
and axes normalised. Kernels never modify inputs. If `out` is given (an array of the
right shape and dtype, or a tuple of them), it receives the result. A bare ufunc is a
kernel. Elementwise kernels accept any `out`, even one of their inputs. Other kernels
need a C-contiguous `out` that overlaps no input. A 0-d result can be a NumPy scalar.

A kernel that needs scratch memory has the decorator `workspace` and takes `work=`, a
64-byte aligned uint8 array of the declared size. Without `work`, it allocates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

import numpy as np

from toolkit import dtypes
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec
from toolkit.ir.scalars import SCALARS

Array = Any
Kernel = Callable[..., Any]
Attributes = Mapping[str, Any]
KernelT = TypeVar("KernelT", bound=Kernel)


class Reads(IntEnum):
    """The arrays that one loop reads to compute a value.

    EVEN: contiguous arrays of the shape of the value, and numbers. BROADCAST: also
    arrays that broadcast to the shape. ROWS: arrays of which a reduction computes the
    value. ANY: other arrays, or views.
    """

    EVEN, BROADCAST, ROWS, ANY = range(4)


class DirectCall:
    """A kernel that is one call of a function, for known specs and attributes.

    Args:
        function: the function.
        arguments: its arguments after the operands.
    """

    __slots__ = ("arguments", "function")

    def __init__(self, function: Kernel, arguments: tuple[object, ...] = ()) -> None:
        self.function, self.arguments = function, arguments

    def __call__(self, *arrays: Array, **attrs: object) -> Array:
        return self.function(*arrays, *self.arguments)


def workspace(rule: Callable[..., int]) -> Callable[[KernelT], KernelT]:
    """Declare the scratch memory of a kernel.

    Args:
        rule: `rule(*specs, **attrs)`, the bytes that one call needs in `work`.
    """

    def declare(kernel: KernelT) -> KernelT:
        kernel.workspace = rule  # type: ignore[attr-defined]
        return kernel

    return declare


def workspace_bytes(kernel: Kernel, specs: Iterable[Any], attrs: dict[str, Any]) -> int:
    """Return the size of the `work` array of one call; 0 if the kernel takes none."""
    rule = getattr(kernel, "workspace", None)
    return 0 if rule is None else int(rule(*specs, **attrs))


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
        xp: the module of the array functions.
    """

    def __init__(self, kernels: Mapping[str, Kernel], xp: Any = np) -> None:
        super().__init__(kernels)
        self.xp = xp

    def render(self, record: Primitive) -> Kernel | None:
        """Return the kernel that a primitive's record defines; None if it has no rule.

        It is called for primitives that are not in the table.
        """
        return render_kernel(record, ArrayScalars(self.xp, self))

    def supports(self, name: str) -> bool:
        """Return whether a program runs the kernel of this primitive as one node."""
        return name in self

    def errstate(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a program runs its kernels."""
        return np.errstate(all="ignore")

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
