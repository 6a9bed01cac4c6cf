"""LU factors and least squares, by functions of LAPACK that NumPy does not expose.

LAPACK reads columns, so each function copies the matrices to that layout.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from toolkit.backends.kernels import Kernel
from toolkit.backends.openblas import LibraryFunction, load_lapack_function

Array = Any
# A number by reference, text, or the address of an array.
Pointer = Any
# Replaces the rows of an array by solutions; the second argument is LAPACK's "trans".
Solver: TypeAlias = Callable[[Array, bytes], int]
_PREFIXES = {"float32": "s", "float64": "d"}
# The width of matrices of a stack from which a call for each matrix takes less time
# than NumPy functions of a whole stack.
_MIN_EXTENT = 16
# The number of matrices from which NumPy exchanges rows of a stack faster than Python.
_MIN_STACK = 4
# Elements of LAPACK's workspace for each row or column: its largest block size.
_BLOCK = 64
# The margin for the error of LAPACK's estimate of a condition number.
_ESTIMATE_MARGIN = 10.0
# Steps of the power method, and the margin for its error.
_POWER_STEPS, _MARGIN = 8, 4.0


class _Lapack:
    """Functions of one dtype. Numbers are passed by reference, arrays by address."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.integer: Any = ctypes.c_int64
        self._functions: dict[str, LibraryFunction] = {}

    def load(self, *names: str) -> bool:
        """Load functions; return whether all of them exist."""
        for name in names:
            loaded = load_lapack_function(_PREFIXES[self.dtype] + name)
            if loaded is None:
                return False
            self._functions[name], self.integer = loaded
        return True

    def call(self, name: str, *arguments: bytes | int | Array) -> int:
        """Call a function, and return its status."""
        status = self.integer()
        pointers = [self._pointer(x) for x in arguments]
        self._functions[name](*pointers, ctypes.byref(status))
        return int(status.value)

    def call_for_each(self, name: str, count: int, *arguments: int | Array) -> None:
        """Call a function for each matrix of contiguous stacks; ignore its status."""
        function, status = self._functions[name], ctypes.byref(self.integer())
        pointers = [self._pointer(x) for x in arguments]
        stacks = [
            (pointer, x.strides[0])
            for pointer, x in zip(pointers, arguments, strict=True)
            if not isinstance(x, int)
        ]
        for _ in range(count):
            function(*pointers, status)
            for pointer, step in stacks:
                pointer.value += step

    def _pointer(self, x: bytes | int | Array) -> Pointer:
        if isinstance(x, bytes):
            return ctypes.c_char_p(x)
        if isinstance(x, int):
            return ctypes.byref(self.integer(x))
        return ctypes.c_void_p(x.__array_interface__["data"][0])

    def integers(self, count: int) -> Array:
        """Return an array for integers of LAPACK."""
        return np.empty(count, f"int{8 * ctypes.sizeof(self.integer)}")

    def workspace(self, count: int) -> Array:
        """Return an array for intermediate numbers."""
        return np.empty(max(count, 1) * _BLOCK, self.dtype)


@functools.cache
def _lapack(dtype: str) -> _Lapack | None:
    """Return the functions of a dtype; None if one is missing."""
    lapack = _Lapack(dtype)
    names = ("getrf", "geqrf", "ormqr", "trcon", "trtrs")
    return lapack if lapack.load(*names) else None


def has_lapack() -> bool:
    """Return whether the library of NumPy has the functions of this module."""
    return all(_lapack(dtype) is not None for dtype in _PREFIXES)


def lu_by_lapack(fallback: Kernel) -> Kernel:
    """Return a kernel of `lu` for float32 and float64.

    Args:
        fallback: the kernel for other dtypes and small matrices.
    """

    @functools.wraps(fallback)
    def lu(x: Array, *, out: Sequence[Array] | None = None) -> Sequence[Array]:
        m, n = x.shape[-2:]
        k = min(m, n)
        lapack = _lapack(x.dtype.name) if x.dtype.name in _PREFIXES else None
        is_small = k < (_MIN_EXTENT if x.ndim > 2 else 1)
        if lapack is None or is_small:
            fallen_back: Sequence[Array] = fallback(x, out=out)
            return fallen_back
        if out is None:
            lead = x.shape[:-2]
            out = (
                np.empty(x.shape, x.dtype),
                np.empty((*lead, k), "int32"),
                np.empty((*lead, m), "int32"),
            )
        factors, pivots, permutations = out
        columns = np.array(np.swapaxes(x, -1, -2), order="C")
        numbers = columns.reshape(-1, n, m)
        swaps = lapack.integers(len(numbers) * k).reshape(-1, k)
        lapack.call_for_each("getrf", len(numbers), m, n, numbers, m, swaps)
        factors[...] = np.swapaxes(columns, -1, -2)
        swaps -= 1
        pivots[...] = swaps.reshape(pivots.shape)
        permutations[...] = _permutations(swaps, m).reshape(permutations.shape)
        return out

    return lu


def _permutations(swaps: Array, count: int) -> Array:
    """Return the source index of each row after exchanges of rows, for each matrix."""
    rows = np.empty((len(swaps), count), "int32")
    rows[...] = np.arange(count)
    if len(swaps) < _MIN_STACK:
        for line, exchanges in zip(rows, swaps.tolist(), strict=True):
            order = line.tolist()
            for i, j in enumerate(exchanges):
                order[i], order[j] = order[j], order[i]
            line[:] = order
        return rows
    stack = np.arange(len(swaps))
    for i, j in enumerate(swaps.T):
        rows[stack, j], rows[:, i] = rows[:, i].copy(), rows[stack, j]
    return rows


def least_squares(
    a: Array, b: Array, *, rcond: float, out: Array | None = None
) -> Array:
    """Return the least squares solutions of a @ x = b with the smallest norms.

    Args:
        a: (..., m, n).
        b: (..., m, k).
        rcond: the relative cutoff of small singular values.
        out: the array for the result.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, k = a.shape[-1], b.shape[-1]
    y = np.empty((*batch, n, k), b.dtype) if out is None else out
    # As all functions of NumPy for such systems, in double precision.
    dtype = np.result_type(a.dtype, b.dtype, "float64")
    a = np.broadcast_to(a.astype(dtype), (*batch, *a.shape[-2:]))
    b = np.broadcast_to(b.astype(dtype), (*batch, *b.shape[-2:]))
    if not y.size:
        return y
    if dtype != "float64" or min(a.shape[-2:]) < _MIN_EXTENT:
        y[...] = _by_singular_values(a, b, rcond)
        return y
    for index in np.ndindex(batch):
        x = _by_reflections(a[index], b[index], rcond)
        y[index] = _by_singular_values(a[index], b[index], rcond) if x is None else x
    return y


def _by_singular_values(a: Array, b: Array, rcond: float) -> Array:
    if not min(a.shape[-2:]):
        return 0.0
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    is_significant = s > rcond * s[..., :1]
    inverted = is_significant / np.where(is_significant, s, 1.0)
    rotated = np.swapaxes(u.conj(), -1, -2) @ b
    return np.swapaxes(vh.conj(), -1, -2) @ (inverted[..., None] * rotated)


def _by_reflections(a: Array, b: Array, rcond: float) -> Array | None:
    """Return the solution by a QR decomposition; None without full rank."""
    lapack = _lapack("float64")
    assert lapack is not None
    is_wide = a.shape[0] < a.shape[1]
    # The columns of a tall matrix: `a`, or `a` transposed.
    columns = np.array(a if is_wide else a.T, order="C")
    n, m = columns.shape
    k = b.shape[1]
    scales, work = np.empty(n), lapack.workspace(max(m, k, 3 * n))
    lapack.call("geqrf", m, n, columns, m, scales, work, work.size)

    def solve(x: Array, trans: bytes) -> int:
        """Replace the first n elements of the rows of x by their solutions."""
        shape = (b"U", trans, b"N", n, len(x), columns, m, x, x.shape[1])
        return lapack.call("trtrs", *shape)

    inverse_condition, integers = np.empty(1), lapack.integers(n)
    triangle = (b"1", b"U", b"N", n, columns, m, inverse_condition)
    lapack.call("trcon", *triangle, work, integers)
    # Condition numbers in other norms differ by a factor of up to n.
    if not inverse_condition[0] > _ESTIMATE_MARGIN * n * rcond and not _has_full_rank(
        columns[:, :n], solve, rcond
    ):
        return None
    x = np.zeros((k, m))
    x[:, : b.shape[0]] = b.T
    reflectors = (k, n, columns, m, scales, x, m, work, work.size)
    if is_wide:
        solve(x, b"T")
        x[:, n:] = 0
        lapack.call("ormqr", b"L", b"N", m, *reflectors)
        return x.T
    lapack.call("ormqr", b"L", b"T", m, *reflectors)
    solve(x, b"N")
    return x[:, :n].T


def _has_full_rank(transposed: Array, solve: Solver, rcond: float) -> bool:
    """Return whether the smallest singular value is certainly above the cutoff.

    Args:
        transposed: R transposed, with other numbers in the upper triangle.
        solve: replaces a row by the solution of a system with R or R transposed.
        rcond: the relative cutoff.
    """
    lower = np.tril(transposed)
    if not lower.diagonal().all() or not np.isfinite(lower).all():
        return False
    n = len(lower)
    # Reproducible, and with components along all singular vectors.
    largest = smallest = np.random.default_rng(0).standard_normal((1, n))
    for _ in range(_POWER_STEPS):
        largest = (largest @ lower) @ lower.T
        largest = largest / sqrt(float(np.vdot(largest, largest)))
        solve(smallest := smallest.copy(), b"T")
        solve(smallest, b"N")
        norm = sqrt(float(np.vdot(smallest, smallest)))
        smallest = smallest / norm
    product = largest @ lower
    scale = sqrt(float(np.vdot(product, product)))
    return bool(1 / sqrt(norm) > _MARGIN * rcond * scale)
