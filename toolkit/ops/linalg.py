"""Linear algebra: matrices along the last two axes, batches along the axes before."""

from __future__ import annotations

import builtins
from math import inf
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.arguments import is_real
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable_as
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.errors import ArgumentError, ShapeError, WrongExtentError, unknown_choice
from toolkit.ir import Primitive, Spec
from toolkit.ops.checks import broadcast_shapes, normalize_axis
from toolkit.ops.contract import matmul
from toolkit.ops.creation import eye
from toolkit.ops.decomposition import (
    cholesky_p,
    eig_p,
    eigh_p,
    inverse,
    leading,
    lu_p,
    need_square,
    qr_p,
    scaled_rows,
    singular_values_p,
    slogdet_p,
    small_det_p,
    solve_p,
    svd_p,
    transposed,
    triangular_solve,
)
from toolkit.ops.elementwise import greater, not_equal, where, zero_like
from toolkit.ops.normalization import vector_norm
from toolkit.ops.numeric import abs
from toolkit.ops.reduce import max, min, sum
from toolkit.ops.shape import concatenate, expand_dims, moveaxis, squeeze
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp
from toolkit.type_aliases import Axis, TensorLike


def _matrices(op: str, x: TensorLike, square: bool = False) -> Tensor:
    """Return x as a tensor of floats, with the axes of a matrix."""
    (x,) = floating(x)
    if square:
        need_square(op, x)
    elif x.ndim < 2:
        raise ShapeError(
            f"{op}: Input should have rank >= 2. Received: shape {x.shape} instead of "
            "matrices, (..., m, n)"
        )
    return x


def _symmetric(x: Tensor) -> Tensor:
    return 0.5 * (x + transposed(x))


# --- decompositions -------------------------------------------------------------------


@operation
def cholesky(x: TensorLike, upper: bool = False) -> Tensor:
    """Return the triangular factors of positive definite matrices.

    Only the symmetric part of a matrix is used.

    Args:
        x: (..., n, n), numbers.
        upper: whether to return U of x = U^T U. By default the result is L of x = L
            L^T.

    Returns:
        A floating tensor of shape (..., n, n).

    Raises:
        ArgumentError: a matrix is not positive definite.

    Example:
        >>> from toolkit import ops
        >>> print(ops.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]))
        [[2. 0.]
         [1. 2.]]
    """
    y = bind(cholesky_p, _symmetric(_matrices("cholesky", x, square=True)))
    return transposed(y) if upper else y


@operation
def cholesky_inverse(x: TensorLike, upper: bool = False) -> Tensor:
    """Compute the inverses of matrices from their Cholesky factors.

    Args:
        x: (..., n, n), triangular factors.
        upper: whether `x` is the upper triangular factor U of U^T U. By default it is L
            of L L^T.

    Returns:
        A floating tensor of shape (..., n, n).

    Example:
        >>> from toolkit import ops
        >>> print(ops.cholesky_inverse([[2.0, 0.0], [0.0, 4.0]]))
        [[0.25   0.    ]
         [0.     0.0625]]
    """
    x = _matrices("cholesky_inverse", x, square=True)
    y = triangular_solve(x, eye(x.shape[-1], dtype=x.dtype), lower=not upper)
    return matmul(y, transposed(y)) if upper else matmul(transposed(y), y)


@operation
def eigh(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and the eigenvectors of symmetric matrices.

    Only the symmetric part of a matrix is used.

    Args:
        x: (..., n, n), numbers.

    Returns:
        A pair of tensors: the eigenvalues (..., n) in ascending order, and (..., n, n),
        whose columns are orthonormal eigenvectors.

    Example:
        >>> from toolkit import ops
        >>> values, vectors = ops.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
        >>> values.tolist()
        [1.0, 2.0]
    """
    return bind(eigh_p, _symmetric(_matrices("eigh", x, square=True)))


@operation
def eig(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and the eigenvectors of square matrices.

    The gradient of the vectors assumes a loss on which their phases have no effect. For
    symmetric matrices, `eigh` gives real results.

    Args:
        x: (..., n, n), numbers.

    Returns:
        A pair of complex tensors: the eigenvalues (..., n) in no particular order, and
        (..., n, n), whose columns are eigenvectors of norm 1.

    Example:
        >>> from toolkit import ops
        >>> rotation = ops.array([[0.0, -1.0], [1.0, 0.0]])  # eigenvalues i and -i
        >>> sorted(ops.imag(ops.eig(rotation)[0]).tolist())
        [-1.0, 1.0]
    """
    x = _matrices("eig", x, square=True)
    wide = dtypes.result_type(x.dtype, "float32")
    return bind(eig_p, convert(x, wide))


@operation
def lu_factor(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the factors of the LU decomposition x = P L U, with partial pivoting.

    Args:
        x: (..., m, n), numbers.

    Returns:
        A pair of tensors: (..., m, n) with U on and above the diagonal, and L below it,
        without its diagonal of ones; and the int32 pivots (..., min(m, n)). Row i is
        exchanged with row pivots[i], in order.

    Example:
        >>> from toolkit import ops
        >>> factors, pivots = ops.lu_factor([[1.0, 2.0], [4.0, 4.0]])
        >>> print(factors)
        [[4.   4.  ]
         [0.25 1.  ]]
        >>> pivots.tolist()
        [1, 1]
    """
    return bind(lu_p, _matrices("lu_factor", x))[:2]


@operation
def qr(x: TensorLike, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Return the factors of x = q @ r: orthonormal columns and an upper triangle.

    Args:
        x: (..., m, n), numbers.
        mode: "reduced": q is (..., m, min(m, n)) and r is (..., min(m, n), n).
            "complete": q is (..., m, m) and r is (..., m, n). The additional columns
            are arbitrary, and no gradient flows through them.

    Returns:
        A pair of floating tensors (q, r).

    Raises:
        ArgumentError: the mode is unsupported.

    Example:
        >>> from toolkit import ops
        >>> q, r = ops.qr([[3.0, 1.0], [4.0, 2.0]])
        >>> print(ops.round(ops.matmul(q, r), 4))
        [[3. 1.]
         [4. 2.]]
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(
            "qr: `mode` argument value not supported. Expected one of "
            f"{{'reduced', 'complete'}}. Received: mode={mode}"
        )
    x = _matrices("qr", x)
    m, n = x.shape[-2:]
    if m >= n:
        return bind(qr_p, x, complete=mode == "complete")
    q, r = bind(qr_p, leading(x, -1, m), complete=False)
    tail = matmul(transposed(q), leading(x, -1, m, is_tail=True))
    return q, concatenate([r, tail], axis=-1)


@operation
def svd(x: TensorLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Compute the singular value decomposition x = u @ diag(s) @ vh.

    Args:
        x: (..., m, n), numbers; k = min(m, n).
        full_matrices: whether u is (..., m, m) and vh is (..., n, n). With False, they
            are (..., m, k) and (..., k, n). The additional vectors are arbitrary, and
            no gradient flows through them.
        compute_uv: whether to return u and vh, too.

    Returns:
        The tuple (u, s, vh), or only s. The singular values s have shape (..., k), in
        descending order.

    Example:
        >>> from toolkit import ops
        >>> ops.svd([[0.0, 2.0], [3.0, 0.0]], compute_uv=False).tolist()
        [3.0, 2.0]
    """
    x = _matrices("svd", x)
    if not compute_uv:
        return bind(singular_values_p, x)
    return bind(svd_p, x, full=full_matrices)


# --- systems and determinants ---------------------------------------------------------


@operation
def inv(x: TensorLike) -> Tensor:
    """Compute the inverses of square matrices.

    Args:
        x: (..., n, n), invertible matrices.

    Returns:
        A floating tensor of shape (..., n, n).

    Raises:
        WrongExtentError: the matrices are not square.

    Example:
        >>> from toolkit import ops
        >>> print(ops.inv([[2.0, 0.0], [0.0, 4.0]]))
        [[0.5  0.  ]
         [0.   0.25]]
    """
    return inverse(_matrices("inv", x, square=True))


@operation
def slogdet(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the sign and the logarithm of the absolute value of determinants.

    Args:
        x: (..., n, n), numbers.

    Returns:
        A pair of floating tensors of shape (...). A singular matrix gives 0 and -inf.

    Raises:
        WrongExtentError: the matrices are not square.

    Example:
        >>> from toolkit import ops
        >>> sign, logarithm = ops.slogdet([[0.0, 1.0], [1.0, 0.0]])
        >>> float(sign), float(logarithm)
        (-1.0, 0.0)
    """
    return bind(slogdet_p, _matrices("slogdet", x, square=True))


@operation
def det(x: TensorLike) -> Tensor:
    """Compute the determinants of square matrices.

    Args:
        x: (..., n, n), numbers.

    Returns:
        A floating tensor of shape (...).

    Raises:
        WrongExtentError: the matrices are not square.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.det([[1.0, 2.0], [3.0, 4.0]]), 4))
        -2.0
    """
    x = _matrices("det", x, square=True)
    if x.shape[-1] in (2, 3):
        return bind(small_det_p, x)
    sign, logarithm = bind(slogdet_p, x)
    return sign * exp(logarithm)


@operation
def logdet(x: TensorLike) -> Tensor:
    """Compute the logarithms of the determinants of positive definite matrices.

    Args:
        x: (..., n, n), positive definite matrices.

    Returns:
        A floating tensor of shape (...).

    Raises:
        WrongExtentError: the matrices are not square.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.logdet([[1.0, 0.0], [0.0, 100.0]]), 4))
        4.6052
    """
    return bind(slogdet_p, _matrices("logdet", x, square=True))[1]


def _system(
    op: str, a: TensorLike, b: TensorLike, square: bool = True
) -> tuple[Any, Tensor, bool]:
    """Return both as matrices, and whether b was a vector per matrix of a."""
    a, b = floating(a, b)
    a = _matrices(op, a, square)
    vector = b.ndim == a.ndim - 1
    if not vector and b.ndim < 2 or b.shape[-1 if vector else -2] != a.shape[-2]:
        raise WrongExtentError(
            f"{op}: b of shape {b.shape} does not fit a of shape {a.shape}; expected "
            f"(..., {a.shape[-2]}) or (..., {a.shape[-2]}, k)"
        )
    return a, expand_dims(b, -1) if vector else b, vector


@operation
def solve(a: Any, b: Any) -> Tensor:
    """Return the solution x of the linear system a @ x = b.

    Args:
        a: (..., n, n), invertible matrices.
        b: (..., n), with one axis less than `a`, or (..., n, k).

    Returns:
        A floating tensor with the shape of `b`.

    Example:
        >>> from toolkit import ops
        >>> ops.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 8.0]).tolist()
        [1.0, 2.0]
    """
    a, b, vector = _system("solve", a, b)
    y = bind(solve_p, a, b)
    return squeeze(y, -1) if vector else y


@operation
def solve_triangular(a: Any, b: Any, lower: bool = False) -> Tensor:
    """Return the solution x of a @ x = b for triangular matrices.

    Args:
        a: (..., n, n). The other triangle is not read.
        b: (..., n), with one axis less than `a`, or (..., n, k).
        lower: whether to use the lower triangle of `a`. The default is the upper
            triangle.

    Returns:
        A floating tensor with the shape of `b`.

    Example:
        >>> from toolkit import ops
        >>> a = [[2.0, 0.0], [1.0, 1.0]]
        >>> ops.solve_triangular(a, [2.0, 5.0], lower=True).tolist()
        [1.0, 4.0]
    """
    a, b, vector = _system("solve_triangular", a, b)
    y = triangular_solve(a, b, lower=bool(lower))
    return squeeze(y, -1) if vector else y


def _default_tolerance(x: Tensor) -> float:
    """Return the relative threshold below which singular values are noise."""
    epsilon = float(np.finfo("float64" if x.dtype == "float64" else "float32").eps)
    return epsilon * builtins.max(x.shape[-2:])


def _pseudo_inverse(x: Tensor, rcond: TensorLike | None) -> Tensor:
    u, s, vh = bind(svd_p, x, full=False)
    limit = _default_tolerance(x) if rcond is None else convert(rcond, s.dtype)
    is_significant = greater(s, limit * max(s, axis=-1, keepdims=True))
    inverted = where(is_significant, 1 / where(is_significant, s, 1.0), zero_like(s))
    return matmul(transposed(vh), scaled_rows(inverted, transposed(u)))


@operation
def pinv(x: TensorLike, rcond: TensorLike | None = None) -> Tensor:
    """Compute the Moore-Penrose inverses of matrices.

    Args:
        x: (..., m, n), numbers.
        rcond: the relative cutoff: singular values up to `rcond` times the largest one
            count as 0. None means the machine epsilon of the dtype times max(m, n).

    Returns:
        A floating tensor of shape (..., n, m).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.pinv([[1.0], [1.0]]), 4))
        [[0.5 0.5]]
    """
    return _pseudo_inverse(_matrices("pinv", x), rcond)


def _least_squares(a: Tensor, b: Tensor, rcond: TensorLike) -> Tensor:
    return matmul(_pseudo_inverse(a, rcond), b)


def _least_squares_spec(a: Spec, b: Spec, rcond: float) -> Spec:
    batch = broadcast_shapes("lstsq", a.shape[:-2], b.shape[:-2])
    return b.with_shape((*batch, a.shape[-1], b.shape[-1]))


least_squares_p: Primitive = decomposable_as(
    "least_squares", _least_squares_spec, _least_squares
)


@operation
def lstsq(a: Any, b: Any, rcond: Any = None) -> Tensor:
    """Return the least squares solution of a @ x = b with the smallest norm.

    Args:
        a: (..., m, n), numbers.
        b: (..., m), with one axis less than `a`, or (..., m, k).
        rcond: the relative cutoff of small singular values, as for `pinv`.

    Returns:
        A floating tensor of shape (..., n) or (..., n, k).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.lstsq([[1.0], [1.0]], [2.0, 4.0]), 4))
        [3.]
    """
    a, b, vector = _system("lstsq", a, b, square=False)
    if rcond is None:
        rcond = _default_tolerance(a)
    if is_real(rcond):
        y = bind(least_squares_p, a, b, rcond=float(rcond))
    else:
        y = _least_squares(a, b, rcond)
    return squeeze(y, -1) if vector else y


@operation
def matrix_rank(x: TensorLike, tol: Any = None) -> Tensor:
    """Count the singular values of matrices that are greater than a tolerance.

    Args:
        x: (..., m, n), numbers.
        tol: the tolerance. None means the largest singular value times the machine
            epsilon of the dtype times max(m, n).

    Returns:
        An int32 tensor of shape (...).

    Example:
        >>> from toolkit import ops
        >>> print(ops.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        1
    """
    x = _matrices("matrix_rank", x)
    s = bind(singular_values_p, x)
    if tol is None:
        tol = _default_tolerance(x) * max(s, axis=-1, keepdims=True)
    else:
        tol = expand_dims(convert(tol, s.dtype), -1)
    return sum(convert(greater(s, tol), "int32"), axis=-1)


# --- norms ----------------------------------------------------------------------------


@operation
def norm(
    x: TensorLike, ord: Any = None, axis: Axis | None = None, keepdims: bool = False
) -> Tensor:
    """Compute the norms of vectors along one axis, or of matrices along two axes.

    The norm of a vector is sum(abs(x) ** ord) ** (1 / ord).

    Args:
        x: numbers of any shape.
        ord: for vectors: a number, inf (the largest absolute value), -inf (the
            smallest) or 0 (the number of nonzero elements); the default is 2. For
            matrices: "fro" (the Frobenius norm, the default), "nuc" (the sum of the
            singular values), 2 and -2 (the largest and the smallest singular value), 1
            and -1 (the largest and the smallest column sum of absolute values), inf and
            -inf (of row sums).
        axis: one axis, or two axes. None means all axes, of which there are at most two
            unless `ord` is None.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the axes.

    Raises:
        ArgumentError: `axis` or `ord` is not valid.

    Example:
        >>> from toolkit import ops
        >>> print(ops.norm([3.0, 4.0]))
        5.0
        >>> print(ops.norm([[1.0, -2.0], [3.0, 4.0]], ord=1))
        6.0
    """
    (x,) = floating(x)
    if axis is None:
        axes = tuple(range(x.ndim))
        if ord is None:
            return vector_norm(x, axes, 2, keepdims)
    else:
        requested = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(normalize_axis("norm", a, x.ndim) for a in requested)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentError(
            f"norm: expected one axis or two different ones; received axis={axis!r} "
            f"for shape {x.shape}"
        )
    return _matrix_norm(x, ord, axes, keepdims)


def _vector_norm(
    x: Tensor, ord: float | None, axes: tuple[int, ...], keepdims: bool
) -> Tensor:
    if isinstance(ord, str):
        raise ArgumentError(
            f"norm: of a vector, ord must be a number; received {ord!r}"
        )
    if ord in (inf, -inf):
        return (max if ord > 0 else min)(abs(x), axes, keepdims)
    if ord == 0:
        return sum(convert(not_equal(x, 0), x.dtype), axes, keepdims)
    if ord == 1:
        return sum(abs(x), axes, keepdims)
    return vector_norm(x, axes, 2 if ord is None else ord, keepdims)


def _matrix_norm(x: Tensor, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if ord in (None, "fro"):
        return vector_norm(x, axes, 2, keepdims)
    if ord not in ("nuc", 1, -1, 2, -2, inf, -inf):
        choices = ("fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf")
        raise unknown_choice("norm: ord of a matrix", ord, choices)
    x = moveaxis(x, axes, (-2, -1))
    if ord in ("nuc", 2, -2):
        values = bind(singular_values_p, x)
    else:
        values = sum(abs(x), axis=-1 if ord in (inf, -inf) else -2)
    y = sum(values, -1) if ord == "nuc" else (max if ord > 0 else min)(values, -1)
    return expand_dims(y, tuple(sorted(axes))) if keepdims else y


# A module of a higher level defines it.
__getattr__, __dir__ = lazy_namespace(__name__, {"toolkit.autodiff.jvp": ["jvp"]})
