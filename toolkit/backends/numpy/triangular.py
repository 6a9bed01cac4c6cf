"""Triangular systems, by the BLAS of NumPy."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from toolkit.backends.kernels import Kernel
from toolkit.backends.numpy.mkl import matrix_layout
from toolkit.backends.openblas import LibraryFunction, load_blas_function

Array = Any

# Codes of CBLAS.
_ROW_MAJOR, _LEFT, _NOT_UNIT = 101, 141, 131
_UPPER, _LOWER = 121, 122
_NO_TRANS = 111
# LAPACK solves a stack of smaller matrices in one call, which takes less time than one
# call of the BLAS for each matrix.
_MIN_STACK_EXTENT = 16
_REALS = {np.dtype("float32"): ctypes.c_float, np.dtype("float64"): ctypes.c_double}


@functools.cache
def _functions(dtype: object) -> tuple[LibraryFunction, LibraryFunction] | None:
    """Return the functions for one column and for several; None if missing."""
    prefix = "s" if dtype == "float32" else "d"
    pointer, real = ctypes.c_void_p, _REALS[dtype]
    vector = load_blas_function(
        f"cblas_{prefix}trsv",
        None,
        lambda i: (*[ctypes.c_int] * 4, i, pointer, i, pointer, i),
    )
    matrix = load_blas_function(
        f"cblas_{prefix}trsm",
        None,
        lambda i: (*[ctypes.c_int] * 5, i, i, real, pointer, i, pointer, i),
    )
    return None if vector is None or matrix is None else (vector, matrix)


def solve_by_blas(fallback: Kernel) -> Kernel:
    """Return a kernel of `solve_triangular` for float32 and float64.

    Args:
        fallback: the kernel for other dtypes, and for a BLAS without the functions.
    """

    @functools.wraps(fallback)
    def solve_triangular(
        a: Array, b: Array, *, lower: bool, out: Array | None = None
    ) -> Array:
        functions = _functions(a.dtype) if a.dtype == b.dtype in _REALS else None
        n, batch = a.shape[-1], ()
        if a.ndim > 2 or b.ndim > 2:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if functions is None or (batch and n < _MIN_STACK_EXTENT):
            return fallback(a, b, lower=lower, out=out)
        x = np.empty((*batch, *b.shape[-2:]), b.dtype)
        np.copyto(x, b)
        if x.size:
            if not a.diagonal(axis1=-2, axis2=-1).all():
                raise np.linalg.LinAlgError("Singular matrix")
            if batch:
                a = np.broadcast_to(a, (*batch, n, n))
            _solve_stack(functions, a, x, lower)
        if out is None:
            return x
        np.copyto(out, x)
        return out

    return solve_triangular


def _solve_stack(functions: Any, a: Array, x: Array, lower: bool) -> None:
    """Replace the matrices of x by the solutions."""
    n, k = x.shape[-2:]
    layout = matrix_layout(a)
    if layout is None:
        a = np.ascontiguousarray(a)
        layout = _NO_TRANS, n
    trans, lead = layout
    # A transposed matrix has its other triangle in memory.
    triangle = _LOWER if lower == (trans == _NO_TRANS) else _UPPER
    solve_vector, solve_matrix = functions
    for at_a, at_x in zip(_addresses(a), _addresses(x), strict=True):
        flags = (triangle, trans, _NOT_UNIT, n)
        if k == 1:
            solve_vector(_ROW_MAJOR, *flags, at_a, lead, at_x, 1)
        else:
            solve_matrix(_ROW_MAJOR, _LEFT, *flags, k, 1.0, at_a, lead, at_x, k)


def _addresses(x: Array) -> list[int]:
    """Return the addresses of the matrices of a stack."""
    addresses = [x.__array_interface__["data"][0]]
    for extent, step in zip(x.shape[:-2], x.strides, strict=False):
        addresses = [at + i * step for at in addresses for i in range(extent)]
    return addresses
