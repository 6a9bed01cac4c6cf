"""Linear algebra kernels on matrices in the last two axes, and Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.backends.reference.common import widen

Array = Any


def _narrowed(x: Array, *results: Array) -> Any:
    """Return results in the dtype of x; a single result is not a tuple."""
    narrowed = tuple(np.asarray(y).astype(x.dtype) for y in results)
    return narrowed if len(narrowed) > 1 else narrowed[0]


def dft(real: Array, imag: Array, axis: int, inverse: bool) -> Any:
    """Multiply by the matrix of exp(-2 pi i j k / n), or of its conjugates."""
    n = real.shape[axis]
    angles = np.outer(np.arange(n), np.arange(n)) / n
    matrix = np.exp((2j if inverse else -2j) * np.pi * angles)
    y = np.moveaxis(widen(real) + 1j * widen(imag), axis, -1) @ matrix
    y = np.moveaxis(y, -1, axis)
    return _narrowed(real, y.real, y.imag)


def rdft(x: Array) -> Any:
    """Return the first half of the transform of real numbers along the last axis."""
    spectrum = dft(x, np.zeros_like(x), axis=x.ndim - 1, inverse=False)
    return tuple(y[..., : x.shape[-1] // 2 + 1] for y in spectrum)


def irdft(real: Array, imag: Array, length: int) -> Array:
    """Return the real part of the inverse transform; other frequencies are 0."""
    widths = [(0, 0)] * (real.ndim - 1) + [(0, length - real.shape[-1])]
    real, imag = np.pad(real, widths), np.pad(imag, widths)
    return dft(real, imag, axis=real.ndim - 1, inverse=True)[0]


def solve(a: Array, b: Array) -> Array:
    """Return x with a @ x = b."""
    return _narrowed(b, np.linalg.solve(widen(a), widen(b)))


def solve_triangular(a: Array, b: Array, lower: bool) -> Array:
    """Return x with a @ x = b for a triangle of a."""
    return solve(np.tril(a) if lower else np.triu(a), b)


def slogdet(x: Array) -> Any:
    """Return the sign and the logarithm of the absolute value of the determinant."""
    return _narrowed(x, *np.linalg.slogdet(widen(x)))


def cholesky(x: Array) -> Array:
    """Return the lower triangular factor."""
    return _narrowed(x, np.linalg.cholesky(widen(x)))


def qr(x: Array, complete: bool) -> Any:
    """Return orthonormal columns and an upper triangle."""
    return _narrowed(x, *np.linalg.qr(widen(x), "complete" if complete else "reduced"))


def svd(x: Array, full: bool) -> Any:
    """Return singular vectors and values, descending."""
    return _narrowed(x, *np.linalg.svd(widen(x), full_matrices=full))


def eigh(x: Array) -> Any:
    """Return eigenvalues, ascending, and eigenvectors of symmetric matrices."""
    return _narrowed(x, *np.linalg.eigh(widen(x)))


def eig(x: Array) -> Any:
    """Return eigenvalues and eigenvectors, both complex."""
    dtype = np.result_type(x.dtype, np.complex64)
    return tuple(y.astype(dtype) for y in np.linalg.eig(widen(x)))


def lu(x: Array) -> Any:
    """Compute the LU decomposition with partial pivoting, matrix by matrix."""
    (m, n), lead = x.shape[-2:], x.shape[:-2]
    y = widen(x).copy()
    pivots = np.zeros((*lead, min(m, n)), np.int32)
    rows = np.zeros((*lead, m), np.int32)
    for batch_index in np.ndindex(lead):
        a, order = y[batch_index], list(range(m))
        for i in range(min(m, n)):
            j = i + int(np.argmax(np.abs(a[i:, i])))
            pivots[(*batch_index, i)] = j
            a[[i, j]] = a[[j, i]]
            order[i], order[j] = order[j], order[i]
            if a[i, i] != 0:
                a[i + 1 :, i] /= a[i, i]
            a[i + 1 :, i + 1 :] -= np.outer(a[i + 1 :, i], a[i, i + 1 :])
        rows[batch_index] = order
    return y.astype(x.dtype), pivots, rows
