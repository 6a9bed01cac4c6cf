"""`tf.linalg`: matrix operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow import arrays, math
from toolkit.compat.tensorflow.arguments import axes, dtype_name, refuse
from toolkit.compat.tensorflow.arrays import eye as eye
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.math import (
    global_norm as global_norm,
    l2_normalize as l2_normalize,
)
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import Axis, DTypeLike, TensorLike

globals().update(
    rename_functions(
        {
            "cholesky": (ops.cholesky, "input"),
            "cross": (ops.cross, "a b"),
            "det": (ops.det, "input"),
            "eigh": (ops.eigh, "tensor"),
            "eig": (ops.linalg.eig, "tensor"),
            "expm": (ops.expm, "input"),
            "logm": (ops.logm, "input"),
            "matrix_rank": (ops.linalg.matrix_rank, "a tol"),
            "pinv": (ops.linalg.pinv, "a rcond"),
            "sqrtm": (ops.sqrtm, "input"),
            "slogdet": (ops.slogdet, "input"),
            "tensordot": (ops.tensordot, "a b axes"),
        }
    )
)


def matmul(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Multiply matrices, or batches of them, with optional transposition.

    `a_is_sparse` and `b_is_sparse` are hints, and have no effect.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> float(tf.matmul([[1.0, 2.0]], [[3.0, 4.0]], transpose_b=True)[0, 0])
        11.0
    """
    a = _transpose_matrix(a, transpose_a, adjoint_a)
    product = ops.matmul(a, _transpose_matrix(b, transpose_b, adjoint_b))
    return convert(product, dtype_name(output_type))


def _transpose_matrix(x: TensorLike, transposed: bool, adjoint: bool) -> Tensor:
    x = matrix_transpose(x) if transposed or adjoint else convert(x)
    return ops.conj(x) if adjoint else x


def matvec(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Multiply a matrix by a vector, or batches of them.

    `a_is_sparse` and `b_is_sparse` are hints, and have no effect.
    """
    product = ops.matmul(
        _transpose_matrix(a, transpose_a, adjoint_a), ops.expand_dims(b, -1)
    )
    return ops.squeeze(product, -1)


def matrix_transpose(
    a: TensorLike, name: str | None = None, conjugate: bool = False
) -> Tensor:
    """Exchange the last two axes."""
    swapped = ops.swapaxes(a, -1, -2)
    return ops.conj(swapped) if conjugate else swapped


def adjoint(matrix: TensorLike, name: str | None = None) -> Tensor:
    """Return the conjugate transpose."""
    return matrix_transpose(matrix, conjugate=True)


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Tensor:
    """Sum products of tensors by an equation such as "ij,jk->ik"."""
    return ops.einsum(equation, *inputs)


def norm(
    tensor: TensorLike,
    ord: Any = "euclidean",
    axis: Axis | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the norm of all elements, or along axes.

    Args:
        tensor: the tensor.
        ord: "euclidean", a number, infinity, or "fro" for matrices.
        axis: of vectors, or two of matrices; None takes the tensor as one vector.
        keepdims: whether reduced axes stay, with extent 1.
    """
    if ord == "euclidean" or (ord == 2 and not isinstance(axis, (list, tuple))):
        return math.reduce_euclidean_norm(tensor, axis, keepdims)
    if axis is None:
        result = ops.norm(ops.reshape(tensor, (-1,)), ord)
        return ops.reshape(result, (1,) * convert(tensor).ndim) if keepdims else result
    return ops.norm(tensor, ord, axes(axis), bool(keepdims))


def inv(input: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """Return the inverse of a matrix."""
    return ops.inv(_transpose_matrix(input, False, adjoint))


def solve(
    matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """Solve matrix @ x = rhs for x."""
    return ops.solve(_transpose_matrix(matrix, False, adjoint), rhs)


def triangular_solve(
    matrix: TensorLike,
    rhs: TensorLike,
    lower: bool = True,
    adjoint: bool = False,
    name: str | None = None,
) -> Tensor:
    """Solve matrix @ x = rhs for x, with a triangular matrix."""
    lower = lower if not adjoint else not lower
    return ops.solve_triangular(_transpose_matrix(matrix, False, adjoint), rhs, lower)


def lstsq(
    matrix: TensorLike,
    rhs: TensorLike,
    l2_regularizer: float = 0.0,
    fast: bool = True,
    name: str | None = None,
) -> Tensor:
    """Minimize |matrix @ x - rhs| ** 2 + l2_regularizer * |x| ** 2.

    `fast` has no effect: without a regularizer the method is the singular value
    decomposition, as with `fast=False` in TensorFlow.
    """
    if not l2_regularizer:
        return ops.lstsq(matrix, rhs)
    matrix = convert(matrix)
    normal = matmul(matrix, matrix, transpose_a=True)
    ridge = l2_regularizer * arrays.eye(normal.shape[-1], dtype=normal.dtype)
    return ops.solve(normal + ridge, matmul(matrix, rhs, transpose_a=True))


def svd(
    tensor: TensorLike,
    full_matrices: bool = False,
    compute_uv: bool = True,
    name: str | None = None,
) -> Any:
    """Return s, u, v with tensor = u @ diag(s) @ transpose(v); without compute_uv only
    s."""
    if not compute_uv:
        return ops.svd(tensor, full_matrices, False)
    u, s, vh = ops.svd(tensor, full_matrices)
    return s, u, adjoint(vh)


def qr(
    input: TensorLike, full_matrices: bool = False, name: str | None = None
) -> tuple[Tensor, ...]:
    """Return an orthogonal q and an upper triangular r with input = q @ r."""
    return ops.qr(input, "complete" if full_matrices else "reduced")


def eigvalsh(tensor: TensorLike, name: str | None = None) -> Tensor:
    """Return the eigenvalues of a symmetric matrix in ascending order."""
    return ops.eigh(tensor)[0]


def eigvals(tensor: TensorLike, name: str | None = None) -> Tensor:
    """Return the eigenvalues of a matrix, which can be complex."""
    return ops.linalg.eig(tensor)[0]


def cholesky_solve(
    chol: TensorLike, rhs: TensorLike, name: str | None = None
) -> Tensor:
    """Solve chol @ transpose(chol) @ x = rhs for x."""
    return triangular_solve(chol, triangular_solve(chol, rhs), adjoint=True)


def normalize(
    tensor: TensorLike,
    ord: Any = "euclidean",
    axis: Axis | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the tensor divided by its norm, and the norm."""
    size = norm(tensor, ord, axis, keepdims=True)
    return ops.divide(tensor, size), size


def logdet(matrix: TensorLike, name: str | None = None) -> Tensor:
    """Return the logarithm of the determinant of a positive definite matrix."""
    return ops.slogdet(matrix)[1]


def trace(x: TensorLike, name: str | None = None) -> Tensor:
    """Return the sum of the diagonal of the last two axes."""
    return ops.trace(x, axis1=-2, axis2=-1)


def diag(diagonal: TensorLike, name: str | None = None, k: int = 0) -> Tensor:
    """Return matrices with the last axis of `diagonal` on their k-th diagonal."""
    x = convert(diagonal)
    count = x.shape[-1] + abs(k)
    hot = np.eye(count, k=k, dtype=bool)
    wide = [(0, 0)] * (x.ndim - 1) + [(max(-k, 0), max(k, 0))]
    rows = ops.expand_dims(ops.pad(x, wide), -1)
    return ops.where(hot, rows, ops.zeros_like(rows))


def diag_part(input: TensorLike, name: str | None = None, k: int = 0) -> Tensor:
    """Return the k-th diagonal of the last two axes."""
    return ops.diagonal(input, k, -2, -1)


def set_diag(
    input: TensorLike, diagonal: TensorLike, name: str | None = None, k: int = 0
) -> Tensor:
    """Replace the main diagonal of matrices."""
    refuse("set_diag", k=(k, 0))
    x = convert(input)
    hot = np.eye(x.shape[-2], x.shape[-1], dtype=bool)
    short = x.shape[-2] - convert(diagonal).shape[-1]
    wide = [(0, 0)] * (x.ndim - 2) + [(0, short)]
    return ops.where(hot, ops.expand_dims(ops.pad(diagonal, wide), -1), x)


def band_part(
    input: TensorLike, num_lower: Any, num_upper: int, name: str | None = None
) -> Tensor:
    """Set the elements outside of a band to 0; a negative number keeps the triangle."""
    x = convert(input)
    if int(num_lower) >= 0:
        x = ops.triu(x, -int(num_lower))
    return ops.tril(x, int(num_upper)) if int(num_upper) >= 0 else x


def tensor_diag_part(input: TensorLike, name: str | None = None) -> Tensor:
    """Return the diagonal of a matrix."""
    refuse("tensor_diag_part", rank=(convert(input).ndim, 2))
    return ops.diagonal(input)


def tensor_diag(diagonal: TensorLike, name: str | None = None) -> Tensor:
    """Return the matrix with a vector on its diagonal."""
    return ops.diag(diagonal)


make_operations(__name__)
