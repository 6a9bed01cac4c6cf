"""Linear algebra and Fourier transforms, by the functions of the array module.

Half precision computes in float32. These functions allocate their results, because
array modules give them no `out` argument.
"""

from __future__ import annotations

from typing import Any

from toolkit.backends.array.common import Array, Kernels, is_half

# Columns that `lu` eliminates by one product. Measured with 16 matrices of 256 x 256:
# one column takes 228 ms, 16 take 77 ms, 32 take 59 ms, 64 take 75 ms.
PANEL = 32


class Linalg(Kernels):
    """Decompositions of stacks of matrices, linear systems, Fourier transforms."""

    def _run(self, name: str, *xs: Array, out: Any = None, **arguments: Any) -> Any:
        """Call the array module's function of that name, in the dtype of xs."""
        dtype = xs[-1].dtype
        if is_half(dtype):
            xs = tuple(x.astype("float32") for x in xs)
        y = getattr(self.xp.linalg, name)(*xs, **arguments)
        return self._return_result(y, dtype, out)

    def _return_result(self, y: Any, dtype: Any, out: Any) -> Any:
        if isinstance(y, tuple):
            return self._return_results(y, dtype, out)
        return self.xp.asarray(y, dtype) if out is None else self._copy_to(out, y)

    def _return_results(
        self, results: tuple[Any, ...], dtype: Any, out: Any
    ) -> tuple[Array, ...]:
        outs = (None,) * len(results) if out is None else out
        return tuple(
            self._return_result(a, a.dtype if a.dtype.kind == "i" else dtype, o)
            for a, o in zip(results, outs, strict=True)
        )

    def _factors(
        self, name: str, x: Array, out: Any, **arguments: Any
    ) -> tuple[Array, ...]:
        """Return the results of a function with several results."""
        factors: tuple[Array, ...] = self._run(name, x, out=out, **arguments)
        return factors

    def dft(
        self, real: Array, imag: Array, *, axis: int, inverse: bool, out: Any = None
    ) -> tuple[Array, ...]:
        """Return the discrete Fourier transform along `axis`, without normalization."""
        xp = self.xp
        wide = "complex128" if real.dtype == "float64" else "complex64"
        x = xp.empty(real.shape, wide)
        x.real, x.imag = real, imag
        if not inverse:
            y = xp.fft.fft(x, axis=axis)
        else:
            y = xp.fft.ifft(x, axis=axis, norm="forward")
        return self._return_results((y.real, y.imag), real.dtype, out)

    def rdft(self, x: Array, *, out: Any = None) -> tuple[Array, ...]:
        """Return the first half of the transform of real numbers on the last axis."""
        wide = x.astype("float32") if is_half(x.dtype) else x
        y = self.xp.fft.rfft(wide, axis=-1)
        return self._return_results((y.real, y.imag), x.dtype, out)

    def irdft(self, real: Array, imag: Array, *, length: int, out: Any = None) -> Array:
        """Return the real part of the inverse of the first half of frequencies."""
        xp = self.xp
        wide = "complex128" if real.dtype == "float64" else "complex64"
        x = xp.empty(real.shape, wide)
        x.real, x.imag = real, imag
        # `irfft` counts all elements except the first and the middle one twice.
        x[..., 1 : (length + 1) // 2] /= 2
        y = xp.fft.irfft(x, length, axis=-1, norm="forward")
        return self._return_result(y, real.dtype, out)

    def solve(self, a: Array, b: Array, *, out: Any = None) -> Array:
        """Return x with a @ x = b; raise LinAlgError if a matrix is singular."""
        return self._run("solve", a, b, out=out)

    def solve_triangular(
        self, a: Array, b: Array, *, lower: bool, out: Any = None
    ) -> Array:
        """Return x with a @ x = b for a triangle of a, as `solve`."""
        triangle = self.xp.tril(a) if lower else self.xp.triu(a)
        return self._run("solve", triangle, b, out=out)

    def slogdet(self, x: Array, *, out: Any = None) -> tuple[Array, ...]:
        """Return the sign and the logarithm of the determinant's absolute value."""
        return self._factors("slogdet", x, out)

    def cholesky(self, x: Array, *, out: Any = None) -> Array:
        """Return the lower triangular factor; LinAlgError if a matrix has none."""
        return self._run("cholesky", x, out=out)

    def qr(self, x: Array, *, complete: bool, out: Any = None) -> tuple[Array, ...]:
        """Return orthonormal columns and an upper triangle."""
        mode = "complete" if complete else "reduced"
        return self._factors("qr", x, out, mode=mode)

    def svd(self, x: Array, *, full: bool, out: Any = None) -> tuple[Array, ...]:
        """Return singular vectors and values, descending."""
        return self._factors("svd", x, out, full_matrices=full)

    def singular_values(self, x: Array, *, out: Array | None = None) -> Array:
        """Return the singular values, descending."""
        return self._run("svd", x, out=out, compute_uv=False)

    def eigh(self, x: Array, *, out: Any = None) -> tuple[Array, ...]:
        """Return eigenvalues, ascending, and eigenvectors of symmetric matrices."""
        return self._factors("eigh", x, out)

    def eig(self, x: Array, *, out: Any = None) -> tuple[Array, ...]:
        """Return eigenvalues and eigenvectors, both complex."""
        dtype = self.xp.result_type(x.dtype, "complex64")
        y = tuple(self.xp.linalg.eig(x))
        return self._return_results(y, dtype, out)

    def lu(self, x: Array, *, out: Any = None) -> tuple[Array, ...]:
        """Compute the LU decomposition with partial pivoting, all matrices at once.

        Returns the factors, the pivots, and the source index of each row.
        """
        xp = self.xp
        m, n = x.shape[-2:]
        y = xp.array(x.reshape(-1, m, n), "float32" if is_half(x.dtype) else x.dtype)
        count, k = len(y), min(m, n)
        stack = xp.arange(count)
        rows = xp.empty((count, m), "int32")
        rows[...] = xp.arange(m)
        pivots = xp.empty((count, k), "int32")
        for i in range(k):
            largest = i + xp.argmax(xp.abs(y[:, i:, i]), axis=1)
            pivots[:, i] = largest
            for a in (y, rows):
                a[stack, largest], a[:, i] = a[:, i].copy(), a[stack, largest]
            head = y[:, i, i, None]
            y[:, i + 1 :, i] /= xp.where(head == 0, xp.ones_like(head), head)
            # Later columns change once for each panel, by matrix products.
            start, stop = _panel(i, k)
            below, right = slice(i + 1, None), slice(i + 1, stop)
            y[:, below, right] -= y[:, below, i, None] * y[:, i, None, right]
            if i + 1 == stop < n:
                _eliminate_panel(y, start, stop)
        lead = x.shape[:-2]
        factors = (y.reshape(x.shape), pivots.reshape(*lead, k), rows.reshape(*lead, m))
        return self._return_results(factors, x.dtype, out)


def _panel(column: int, count: int) -> tuple[int, int]:
    """Return the first and the last column (exclusive) of a column's panel."""
    start = column // PANEL * PANEL
    return start, min(start + PANEL, count)


def _eliminate_panel(y: Array, start: int, stop: int) -> None:
    """Eliminate the columns from start to stop from all later columns of matrices."""
    for i in range(start + 1, stop):
        y[:, i, None, stop:] -= y[:, i, None, start:i] @ y[:, start:i, stop:]
    y[:, stop:, stop:] -= y[:, stop:, start:stop] @ y[:, start:stop, stop:]
