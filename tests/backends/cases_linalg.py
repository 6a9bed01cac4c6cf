"""Test cases of linear algebra and of Fourier transforms."""

import numpy as np

from tests.backends.cases import FLOATS, Case, sample

BATCHES = ((), (3,), (0,))


def matrices(dtype, lead, m, n):
    """Return matrices with a large diagonal, so that no two pivots are close."""
    x = sample((*lead, m, n), dtype, -1.0, 1.0)
    return x + (4 * np.eye(m, n)).astype(x.dtype)


def linalg():
    # Half precision uses the same code and would only make the comparison less exact.
    for dtype in ("float32", "float64"):
        for lead in BATCHES:
            x = matrices(dtype, lead, 4, 4)
            yield Case("solve", (x, sample((*lead, 4, 2), dtype)), {}, 30)
            for lower in (False, True):
                operands = x, sample((*lead, 4, 2), dtype)
                yield Case("solve_triangular", operands, {"lower": lower}, 30)
            yield Case("slogdet", (x,), {}, 30)
            symmetric = x + np.swapaxes(x, -1, -2)
            yield Case("cholesky", (symmetric,), {}, 30)
            yield Case("eigh", (symmetric,), {}, 100)
            ascending = np.diag(np.arange(4)).astype(x.dtype) * 3
            yield Case("eig", (np.tril(x, -1) + ascending,), {}, 100)
            for m, n in ((4, 4), (5, 3), (3, 5)):
                x = matrices(dtype, lead, m, n)
                yield Case("lu", (x,), {}, 30)
                for complete in (False, True):
                    yield Case("qr", (x,), {"complete": complete}, 100)
                    yield Case("svd", (x,), {"full": complete}, 100)
    for dtype in ("float16", "bfloat16"):
        yield Case("cholesky", (4 * np.eye(3).astype(sample((1,), dtype).dtype),))


def transforms():
    for dtype in FLOATS:
        for shape, axis in (((8,), 0), ((3, 5, 2), 1), ((0, 3), 1)):
            x, y = sample(shape, dtype), sample(shape, dtype, seed="imaginary")
            for inverse in (False, True):
                yield Case("dft", (x, y), {"axis": axis, "inverse": inverse}, 8)
        for shape in ((8,), (3, 5), (0, 4), (2, 1)):
            x, m = sample(shape, dtype), shape[-1] // 2 + 1
            yield Case("rdft", (x,), {}, 8)
            real = sample((*shape[:-1], m), dtype)
            imag = sample((*shape[:-1], m), dtype, seed="imaginary")
            yield Case("irdft", (real, imag), {"length": shape[-1]}, 8)


LINALG = [*linalg(), *transforms()]


# --- factors up to their free choices -------------------------------------------------


def canonicalize(name, factors):
    """Return factors in a canonical form.

    The definition does not fix the signs of vectors, the basis of the null space, or an
    order. Libraries make different choices.
    """
    return _CANONICAL.get(name, tuple)(factors)


def _signs(vectors):
    """Return the sign, or phase, of the largest element of each column."""
    # If two elements are nearly equal, rounding must not decide.
    pivot = np.abs(vectors).round(2).argmax(axis=-2)[..., None, :]
    largest = np.take_along_axis(vectors, pivot, axis=-2)
    return largest / np.abs(largest)


def _projector(vectors):
    """Return a projector, which is equal for every basis of a space."""
    return vectors @ np.swapaxes(vectors, -1, -2)


def _qr(factors):
    q, r = factors
    k = min(r.shape[-2:])
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    rows = r[..., :k, :] * np.swapaxes(signs, -1, -2)
    return q[..., :k] * signs, _projector(q[..., k:]), rows, r[..., k:, :]


def _svd(factors):
    u, s, v = factors
    k = s.shape[-1]
    signs = _signs(u[..., :k])
    rows = v[..., :k, :] * np.swapaxes(signs, -1, -2)
    complement = _projector(np.swapaxes(v[..., k:, :], -1, -2))
    return u[..., :k] * signs, _projector(u[..., k:]), s, rows, complement


def _eigh(factors):
    values, vectors = factors
    return values, vectors * _signs(vectors)


def _eig(factors):
    values, vectors = factors
    order = np.argsort(values.real, axis=-1)
    vectors = np.take_along_axis(vectors, order[..., None, :], axis=-1)
    signs = np.conj(_signs(vectors))
    return np.take_along_axis(values, order, axis=-1), vectors * signs


_CANONICAL = {"qr": _qr, "svd": _svd, "eigh": _eigh, "eig": _eig}
