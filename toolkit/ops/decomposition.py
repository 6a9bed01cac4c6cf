"""Matrix decompositions and linear systems: primitives on stacks of matrices.

Their kernels call LAPACK. The gradients are analytic (Giles 2008, "Collected matrix
derivative results"; Seeger et al. 2017, arXiv:1710.08717). If equal singular values or
eigenvalues make a direction arbitrary, its contribution to the gradient is 0.
"""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.errors import ShapeError, WrongExtentError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import broadcast_shapes
from toolkit.ops.complex import conjugate, real
from toolkit.ops.contract import matmul
from toolkit.ops.creation import eye, tril, triu
from toolkit.ops.elementwise import equal, where, zero_like
from toolkit.ops.index import take_along_axis
from toolkit.ops.reduce import sum
from toolkit.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    reshape,
    slice_axis,
    stack,
    sum_to,
    swapaxes as _swapaxes,
)
from toolkit.ops.sort import argsort


def transposed(x: Tensor) -> Tensor:
    """Transpose the matrices."""
    return _swapaxes(x, -1, -2)


def scaled_rows(s: Tensor, x: Tensor) -> Tensor:
    """Compute diag(s) @ x."""
    return expand_dims(s, -1) * x


def scaled_columns(x: Tensor, s: Tensor) -> Tensor:
    """Compute x @ diag(s)."""
    return x * expand_dims(s, -2)


def leading(x: Tensor, axis: int, count: int, is_tail: bool = False) -> Tensor:
    """Return the first `count` elements along a negative axis, or the rest."""
    axis += x.ndim
    start, stop = (count, x.shape[axis]) if is_tail else (0, count)
    return slice_axis(x, axis, start, stop)


def need_square(op: str, x: Any) -> None:
    """Raise a WrongExtentError unless x, a tensor or spec, contains square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise WrongExtentError(
            f"{op}: expected square matrices, shape (..., n, n); received {x.shape}"
        )


def _declare(
    name: str, spec: Any, vjp: Any, square: bool = True, axes: Any = "...__->...__"
) -> Primitive:
    """Declare a primitive on stacks of matrices; spec also takes batch shape, m, n."""

    def checked(x: Spec, *outputs: Spec, **attrs: Any) -> Any:
        if square:
            need_square(name, x)
        elif x.ndim < 2:
            raise ShapeError(
                f"{name}: expected matrices, shape (..., m, n); received {x.shape}"
            )
        return spec(x, x.shape[:-2], *x.shape[-2:], *outputs, **attrs)

    return primitive(name, Kind.CONTRACT, checked, vjp=vjp, axes=axes)


# --- linear systems -------------------------------------------------------------------


def _solve_spec(
    a: Spec, lead: tuple[int, ...], n: int, m: int, b: Spec, **attrs: Any
) -> Spec:
    if b.ndim < 2 or b.shape[-2] != n:
        raise ShapeError(
            f"solve: expected b of shape (..., {n}, k) for a of shape {a.shape}; "
            f"received {b.shape}"
        )
    return b.with_shape((*broadcast_shapes("solve", lead, b.shape[:-2]), *b.shape[-2:]))


def _solve_vjp(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    gb = bind(solve_p, transposed(a), g)
    return sum_to(-matmul(gb, transposed(y)), a.shape), sum_to(gb, b.shape)


solve_p: Primitive = _declare(
    "solve", _solve_spec, _solve_vjp, axes="...__,...__->...__"
)


def _solve_triangular_vjp(
    g: Tensor, y: Tensor, a: Tensor, b: Tensor, lower: bool
) -> tuple[Tensor, Tensor]:
    gb = triangular_solve(transposed(a), g, lower=not lower)
    ga = (tril if lower else triu)(-matmul(gb, transposed(y)))
    return sum_to(ga, a.shape), sum_to(gb, b.shape)


# The other triangle of `a` is not read.
solve_triangular_p: Primitive = _declare(
    "solve_triangular", _solve_spec, _solve_triangular_vjp, axes="...__,...__->...__"
)


def triangular_solve(a: Tensor, b: Tensor, lower: bool) -> Tensor:
    """Compute inverse(a) @ b for a triangle of a."""
    return bind(solve_triangular_p, a, b, lower=lower)


def right_triangular_solve(x: Tensor, a: Tensor, lower: bool) -> Tensor:
    """Compute x @ inverse(a) for a triangle of a."""
    return transposed(triangular_solve(transposed(a), transposed(x), not lower))


def inverse(x: Tensor) -> Tensor:
    """Invert square matrices."""
    return bind(solve_p, x, eye(x.shape[-1], dtype=x.dtype))


slogdet_p: Primitive = _declare(
    "slogdet",
    lambda x, lead, *sizes: (x.with_shape(lead),) * 2,
    # The sign is constant between singular matrices.
    vjp=lambda g, y, x: expand_dims(g[1], (-2, -1)) * transposed(inverse(x)),
    axes="...__->...",
)


# --- triangular factors ---------------------------------------------------------------


def _cholesky_vjp(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    inner = tril(matmul(transposed(y), g))
    inner = inner - 0.5 * inner * eye(inner.shape[-1], dtype=inner.dtype)
    s = right_triangular_solve(inner, y, lower=True)
    s = triangular_solve(transposed(y), s, lower=False)
    return 0.5 * (s + transposed(s))


cholesky_p: Primitive = _declare("cholesky", lambda x, *sizes: x, _cholesky_vjp)


# --- determinants of small matrices ---------------------------------------------------


def _cofactors(x: Tensor) -> list[list[Tensor]]:
    """Return the derivatives of the determinants of 2x2 or 3x3 matrices."""
    n = x.shape[-1]
    if n == 2:
        return [[x[..., 1, 1], -x[..., 1, 0]], [-x[..., 0, 1], x[..., 0, 0]]]

    def minor(i: int, j: int) -> Tensor:
        (a, b), (c, d) = ((i + 1) % n, (i + 2) % n), ((j + 1) % n, (j + 2) % n)
        return x[..., a, c] * x[..., b, d] - x[..., a, d] * x[..., b, c]

    return [[minor(i, j) for j in range(n)] for i in range(n)]


def _small_det(x: Tensor) -> Tensor:
    """Return the determinants of 2x2 or 3x3 matrices, by their first row."""
    wide = convert(x, dtypes.result_type(x.dtype, "float32"))
    row = _cofactors(wide)[0]
    y = wide[..., 0, 0] * row[0]
    for j, cofactor in enumerate(row[1:], 1):
        y = y + wide[..., 0, j] * cofactor
    return convert(y, x.dtype)


def _small_det_vjp(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    rows = _cofactors(x)
    return reshape(stack([g * c for row in rows for c in row], -1), x.shape)


small_det_p: Primitive = decomposable("small_det", _small_det, _small_det_vjp)


def _qr_spec(
    x: Spec, lead: tuple[int, ...], m: int, n: int, complete: bool
) -> tuple[Spec, Spec]:
    k = m if complete else min(m, n)
    return x.with_shape((*lead, m, k)), x.with_shape((*lead, k, n))


def _qr_vjp(g: Any, y: Any, x: Tensor, complete: bool) -> Tensor:
    """Return the gradient for m >= n; the columns that complete q have none."""
    n = x.shape[-1]
    gq, q = (leading(t, -1, n) for t in (g[0], y[0]))
    gr, r = (leading(t, -2, n) for t in (g[1], y[1]))
    inner = matmul(r, transposed(gr)) - matmul(transposed(gq), q)
    inner = tril(inner) + transposed(tril(inner, -1))
    return right_triangular_solve(gq + matmul(q, inner), transposed(r), lower=True)


qr_p: Primitive = _declare("qr", _qr_spec, _qr_vjp, square=False)


def _lu_spec(x: Spec, lead: tuple[int, ...], m: int, n: int) -> tuple[Spec, Spec, Spec]:
    return x, Spec((*lead, min(m, n)), "int32"), Spec((*lead, m), "int32")


def _lu_vjp(g: Any, y: Any, x: Tensor) -> Tensor:
    """Return the gradient of the square part, and of the rest by a linear system."""
    (m, n), k = x.shape[-2:], min(x.shape[-2:])
    top, g_top = (leading(leading(t, -1, k), -2, k) for t in (y[0], g[0]))
    lower = tril(top, -1) + eye(k, dtype=top.dtype)
    upper, gl, gu = triu(top), tril(g_top, -1), triu(g_top)
    solved = None
    if m > n:
        left, g_left = (leading(t, -2, k, is_tail=True) for t in (y[0], g[0]))
        solved = right_triangular_solve(g_left, transposed(upper), lower=True)
        gu = gu - triu(matmul(transposed(left), solved))
    elif n > m:
        right, g_right = (leading(t, -1, k, is_tail=True) for t in (y[0], g[0]))
        solved = triangular_solve(transposed(lower), g_right, lower=False)
        gl = gl - tril(matmul(solved, transposed(right)), -1)
    inner = tril(matmul(transposed(lower), gl), -1) + triu(
        matmul(gu, transposed(upper))
    )
    gx = right_triangular_solve(inner, transposed(upper), lower=True)
    gx = triangular_solve(transposed(lower), gx, lower=False)
    if solved is not None:
        gx = concatenate([gx, solved], axis=-2 if m > n else -1)
    order = expand_dims(argsort(y[2]), -1)
    return take_along_axis(gx, broadcast_to(order, gx.shape), axis=-2)


# Row i is exchanged with row pivots[i], in order; in total row permutation[i] moves to
# row i.
lu_p: Primitive = _declare(
    "lu", _lu_spec, _lu_vjp, square=False, axes="...__->...__,..._"
)


# --- singular values and eigenvalues --------------------------------------------------


def _reciprocal(x: Tensor) -> Tensor:
    """Compute 1 / x, with 0 where x is 0."""
    zero = equal(x, 0)
    y = 1 / where(zero, x * 0 + 1, x)
    return where(zero, zero_like(y), y)


def _gaps(x: Tensor) -> Tensor:
    """Compute 1 / (x[j] - x[i]) for each pair, with 0 where they are equal."""
    return _reciprocal(expand_dims(x, -2) - expand_dims(x, -1))


def _svd_spec(
    x: Spec, lead: tuple[int, ...], m: int, n: int, full: bool
) -> tuple[Spec, ...]:
    k = min(m, n)
    shapes = ((m, m if full else k), (k,), (n if full else k, n))
    return tuple(x.with_shape((*lead, *shape)) for shape in shapes)


def _svd_vjp(g: Any, y: Any, x: Tensor, full: bool) -> Tensor:
    """Return the gradient; the vectors that complete u and v have none."""
    s, k = y[1], y[1].shape[-1]
    u, gu = (leading(t, -1, k) for t in (y[0], g[0]))
    v, gv = (transposed(leading(t, -2, k)) for t in (y[2], g[2]))
    gaps, inverted = _gaps(s * s), _reciprocal(s)

    def rotation_term(w: Tensor, gw: Tensor) -> Tensor:
        inner = gaps * matmul(transposed(w), gw)
        return inner + transposed(inner)

    def residual(w: Tensor, gw: Tensor) -> Tensor:
        """Return the part of gw outside the span of w, over the singular values."""
        return scaled_columns(gw - matmul(w, matmul(transposed(w), gw)), inverted)

    inner = scaled_columns(rotation_term(u, gu), s) + scaled_rows(
        s, rotation_term(v, gv)
    )
    inner = inner + scaled_rows(g[1], eye(k, dtype=s.dtype))
    gx = matmul(matmul(u, inner), transposed(v))
    if x.shape[-2] > k:
        gx = gx + matmul(residual(u, gu), transposed(v))
    if x.shape[-1] > k:
        gx = gx + matmul(u, transposed(residual(v, gv)))
    return gx


svd_p: Primitive = _declare(
    "svd", _svd_spec, _svd_vjp, square=False, axes="...__->...__,..._,...__"
)


singular_values_p: Primitive = decomposable(
    "singular_values", lambda x: bind(svd_p, x, full=False)[1]
)


def _eigh_vjp(g: Any, y: Any, x: Tensor) -> Tensor:
    w, v = y
    inner = _gaps(w) * matmul(transposed(v), g[1])
    inner = inner + scaled_rows(g[0], eye(w.shape[-1], dtype=w.dtype))
    return matmul(matmul(v, inner), transposed(v))


eigh_p: Primitive = _declare(
    "eigh",
    lambda x, lead, n, _: (x.with_shape((*lead, n)), x),
    _eigh_vjp,
    axes="...__->..._,...__",
)


def _eig_vjp(g: Any, y: Any, x: Tensor) -> Tensor:
    """Return the gradient as for `eigh`, except for the length of vectors."""
    w, v = y
    unit = eye(w.shape[-1], dtype=w.dtype)
    inner = matmul(transposed(v), g[1])
    lengths = convert(real(sum(inner * unit, axis=-2)), w.dtype)
    inner = inner - scaled_columns(matmul(transposed(v), conjugate(v)), lengths)
    inner = _gaps(w) * inner + scaled_rows(g[0], unit)
    gradient = bind(solve_p, transposed(v), matmul(inner, transposed(v)))
    return gradient if x.dtype == w.dtype else real(gradient)


def _eig_spec(x: Spec, lead: Any, n: int, _: int) -> tuple[Spec, Spec]:
    x = x.with_dtype(dtypes.result_type(x.dtype, "complex64"))
    return x.with_shape((*lead, n)), x


eig_p: Primitive = _declare("eig", _eig_spec, _eig_vjp, axes="...__->..._,...__")
