"""Discrete cosine transforms, by Fourier transforms of real numbers."""

from __future__ import annotations

import math

import numpy as np

from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.fourier import irfft, resized, rfft
from toolkit.ops.shape import concatenate, flip, slice_axis, swapaxes
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

_TYPES = (1, 2, 3, 4)
_INVERSES = {1: 1, 2: 3, 3: 2, 4: 4}
_NORMS = (None, "ortho")


@operation
def dct(
    x: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Compute the discrete cosine transform of real numbers along an axis.

    Type 2 is y[j] = 2 * sum_k x[k] * cos(pi * j * (2 * k + 1) / (2 * n)).

    Args:
        x: real numbers of any shape.
        type: the type of the transform: 1, 2, 3 or 4. Type 1 needs at least 2 elements.
        n: the extent to which the axis is truncated or padded with zeros. None keeps
            it.
        axis: the axis of the transform. The default is the last axis.
        norm: "ortho" scales the result so that the transform is orthogonal, which is
            not defined for type 1. None does not scale it.

    Returns:
        A floating tensor with extent `n` along `axis`.

    Reference:
        https://en.wikipedia.org/wiki/Discrete_cosine_transform

    Example:
        >>> from toolkit import ops
        >>> float(ops.dct([1.0, 1.0, 1.0, 1.0])[0])
        8.0
    """
    x = _prepared("dct", x, type, n, axis, norm)
    y = _TRANSFORMS[type](x, norm == "ortho")
    return swapaxes(y, axis, -1)


@operation
def idct(
    x: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Tensor:
    """Compute the inverse of `dct` along an axis, up to a factor.

    With the norm None, idct(dct(x)) is 2 * n * x; for type 1 it is 2 * (n - 1) * x.

    Args:
        x: real numbers of any shape.
        type: the type of the transform to invert: 1, 2, 3 or 4.
        n: the extent to which the axis is truncated or padded with zeros. None keeps
            it.
        axis: the axis of the transform. The default is the last axis.
        norm: "ortho" or None, as in `dct`. With "ortho", the inverse has no factor.

    Returns:
        A floating tensor with extent `n` along `axis`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.dct([1.0, 2.0, 3.0], norm="ortho")
        >>> print(ops.round(ops.idct(x, norm="ortho"), 4))
        [1. 2. 3.]
    """
    x = _prepared("idct", x, type, n, axis, norm)
    y = _TRANSFORMS[_INVERSES[type]](x, norm == "ortho")
    return swapaxes(y, axis, -1)


def _prepared(
    op: str, x: TensorLike, type: int, n: int | None, axis: int, norm: str | None
) -> Tensor:
    """Return x with the axis of the transform last, and with n elements along it."""
    if type not in _TYPES:
        raise unknown_choice(f"{op}: type", type, _TYPES)
    if norm not in _NORMS:
        raise unknown_choice(f"{op}: norm", norm, _NORMS)
    (x,) = floating(x)
    if not x.ndim:
        raise ShapeError(f"{op}: expected a tensor with axes; received a 0-d one")
    if n is not None and n < 1:
        raise ArgumentError(f"{op}: expected n >= 1; received {n}")
    x = swapaxes(x, axis, -1)
    x = x if n is None else resized(x, int(n))
    if type == 1 and norm is not None:
        raise ArgumentError(f"{op}: type 1 does not support a norm; received {norm!r}")
    if type == 1 and x.shape[-1] < 2:
        raise ShapeError(f"{op}: type 1 needs 2 elements; received {x.shape[-1]}")
    return x


def _angles(n: int, dtype: str) -> tuple[Tensor, Tensor]:
    """Return cos and sin of pi * k / (2 * n) for k < n."""
    angles = np.arange(n) * (math.pi / (2 * n))
    return convert(np.cos(angles), dtype), convert(np.sin(angles), dtype)


def _scale(n: int, dtype: str) -> Tensor:
    """Return the factors that make types 2 and 3 orthogonal."""
    factors = np.full(n, math.sqrt(0.5 / n))
    factors[:1] *= math.sqrt(0.5)
    return convert(factors, dtype)


def _type_1(x: Tensor, is_ortho: bool) -> Tensor:
    last = x.ndim - 1
    inner = slice_axis(x, last, 1, x.shape[-1] - 1)
    return rfft(concatenate([x, flip(inner, -1)], -1))[0]


def _type_2(x: Tensor, is_ortho: bool) -> Tensor:
    n, last = x.shape[-1], x.ndim - 1
    real, imag = (slice_axis(component, last, 0, n) for component in rfft(x, 2 * n))
    cosine, sine = _angles(n, x.dtype)
    y = 2 * (real * cosine + imag * sine)
    return y * _scale(n, x.dtype) if is_ortho else y


def _type_3(x: Tensor, is_ortho: bool) -> Tensor:
    n, last = x.shape[-1], x.ndim - 1
    if is_ortho:
        x = x * _scale(n, x.dtype) * convert(np.r_[2.0, np.ones(n - 1)], x.dtype)
    cosine, sine = _angles(n, x.dtype)
    y = irfft((resized(x * cosine, n + 1), resized(x * sine, n + 1)), 2 * n)
    return slice_axis(y, last, 0, n) * (2 * n)


def _type_4(x: Tensor, is_ortho: bool) -> Tensor:
    n = x.shape[-1]
    y = _type_2(resized(x, 2 * n), False)[..., 1::2]
    return y * math.sqrt(0.5 / n) if is_ortho else y


_TRANSFORMS = {1: _type_1, 2: _type_2, 3: _type_3, 4: _type_4}
