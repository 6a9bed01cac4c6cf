"""Rearrangement of elements: repeat, roll, rotate, diagonals, join, split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ir.extents import Extent
from toolkit.ops.checks import extents_of, known_values, normalize_axis
from toolkit.ops.creation import arange, zeros
from toolkit.ops.index import as_indices, gather_p
from toolkit.ops.ranges import index_range
from toolkit.ops.shape import (
    broadcast_to,
    concatenate,
    dilate,
    expand_dims,
    flip,
    pad_p,
    reshape,
    slice_axis,
    split,
    swapaxes,
    transpose,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import Axis, TensorLike

# --- repeating ------------------------------------------------------------------------


@operation
def repeat(x: TensorLike, repeats: Any, axis: int | None = None) -> Tensor:
    """Repeat each element of a tensor along an axis.

    Args:
        x: tensor of any shape.
        repeats: the number of repetitions: one integer, or one for each element along
            the axis.
        axis: the axis to extend. None repeats the elements of the flattened tensor.

    Returns:
        A tensor with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.repeat([1, 2], 3))
        [1 1 1 2 2 2]
        >>> print(ops.repeat([[1, 2], [3, 4]], [1, 2], axis=0))
        [[1 2]
         [3 4]
         [3 4]]
    """
    x = convert(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("repeat", axis, x.ndim)
    n = x.shape[axis]
    if isinstance(repeats, Extent):
        return _repeat_all(x, cast(int, repeats), axis)
    advice = "pass `repeats` as Python integers"
    counts = known_values("repeat", as_indices("repeat", repeats), advice)
    if counts.size == 1:
        return _repeat_all(x, int(counts.reshape(())), axis)
    if counts.shape != (n,):
        raise ShapeError(
            f"repeat: expected one number or {n}; received shape {counts.shape}"
        )
    sources = convert(np.repeat(np.arange(n, dtype="int32"), counts))
    return bind(gather_p, x, sources, axis=axis)


def _repeat_all(x: Tensor, count: int, axis: int) -> Tensor:
    """Repeat all elements along an axis equally often."""
    outer, n, inner = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = broadcast_to(expand_dims(x, axis + 1), (*outer, n, count, *inner))
    return reshape(wide, (*outer, n * count, *inner))


@operation
def tile(x: Any, repeats: Any) -> Tensor:
    """Repeat a complete tensor along each axis.

    Args:
        x: tensor of any shape.
        repeats: the number of repetitions of each axis. Leading ones extend the shorter
            of `repeats` and the shape of `x`.

    Returns:
        A tensor with the dtype of `x`. Each extent is the product of the extent and its
        number of repetitions.

    Example:
        >>> from toolkit import ops
        >>> print(ops.tile([1, 2], 2))
        [1 2 1 2]
        >>> print(ops.tile([[1, 2]], (2, 1)))
        [[1 2]
         [1 2]]
    """
    x = convert(x)
    counts = list(extents_of(repeats))
    ndim = max(len(counts), x.ndim)
    counts = [1] * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    x = reshape(x, [n for extent in shape for n in (1, extent)])
    pairs = list(zip(counts, shape, strict=True))
    x = broadcast_to(x, [n for pair in pairs for n in pair])
    return reshape(x, [count * n for count, n in pairs])


@operation
def meshgrid(*x: Any, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of all points of a grid.

    Args:
        x: one vector of coordinates for each axis of the grid.
        indexing: "ij": the i-th result varies along axis i; "xy": the first two axes
            are exchanged. The default is "xy".

    Returns:
        A list with one tensor for each vector. All tensors have the shape of the grid.

    Example:
        >>> from toolkit import ops
        >>> x, y = ops.meshgrid([1, 2, 3], [10, 20])
        >>> print(x)
        [[1 2 3]
         [1 2 3]]
        >>> print(y)
        [[10 10 10]
         [20 20 20]]
    """
    if indexing not in ("xy", "ij"):
        raise unknown_choice("meshgrid: indexing", indexing, ("xy", "ij"))
    vectors = [reshape(convert(v), (-1,)) for v in x]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shape = [vectors[i].size for i in order]
    return [
        broadcast_to(reshape(v, (-1, *(1,) * (len(shape) - 1 - order[i]))), shape)
        for i, v in enumerate(vectors)
    ]


# --- moving ---------------------------------------------------------------------------


@operation
def roll(x: TensorLike, shift: Any, axis: Axis | None = None) -> Tensor:
    """Move elements along axes cyclically.

    Args:
        x: tensor of any shape.
        shift: the number of positions, an integer or one for each axis. It may be a
            tensor. Positive numbers move elements to higher indices.
        axis: an axis or a tuple of axes. None moves the elements of the flattened
            tensor.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.roll([1, 2, 3, 4], 1))
        [4 1 2 3]
    """
    x = convert(x)
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, 0), x.shape)
    axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    count = max(len(axes), len(shifts))
    if {len(axes), len(shifts)} - {1, count}:
        raise ArgumentError(
            f"roll: expected {len(axes)} shifts, one for each axis; received "
            f"{len(shifts)}"
        )
    axes, shifts = (v * count if len(v) == 1 else v for v in (axes, shifts))
    for places, a in zip(shifts, axes, strict=True):
        x = _roll(x, places, normalize_axis("roll", a, x.ndim))
    return x


def _roll(x: Tensor, shift: int, axis: int) -> Tensor:
    n = x.shape[axis]
    if not is_int(shift):
        sources = (arange(n, dtype="int32") - as_indices("roll", shift)) % max(n, 1)
        return bind(gather_p, x, sources, axis=axis)
    cut = -int(shift) % max(n, 1)
    if cut == 0:
        return x
    halves = slice_axis(x, axis, cut, n), slice_axis(x, axis, 0, cut)
    return concatenate(halves, axis)


@operation
def rot90(array: Any, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    """Rotate a tensor by multiples of 90 degrees in the plane of two axes.

    Args:
        array: a tensor with at least 2 axes.
        k: the number of rotations by 90 degrees. Negative numbers rotate in the
            opposite direction.
        axes: the two axes of the plane; the rotation is from the first to the second.

    Returns:
        A tensor with the dtype of `array`. An odd `k` exchanges the extents of the
        axes.

    Raises:
        ShapeError: `array` has fewer than 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.rot90([[1, 2], [3, 4]]))
        [[2 4]
         [1 3]]
    """
    x = convert(array)
    if x.ndim < 2:
        raise ShapeError(f"rot90: expected at least 2 axes; received {x.shape}")
    if len(axes) != 2 or axes[0] % x.ndim == axes[1] % x.ndim:
        raise ArgumentError(f"rot90: expected two different axes; received {axes}")
    first, second = (normalize_axis("rot90", a, x.ndim) for a in axes)
    if k % 4 == 0:
        return x
    if k % 4 == 1:
        return swapaxes(flip(x, second), first, second)
    if k % 4 == 2:
        return flip(x, (first, second))
    return flip(swapaxes(x, first, second), second)


@operation
def fliplr(x: TensorLike) -> Tensor:
    """Reverse the second axis of a tensor.

    Args:
        x: a tensor with at least 2 axes.

    Returns:
        A tensor with the shape and dtype of `x`.

    Raises:
        ShapeError: `x` has fewer than 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.fliplr([[1, 2], [3, 4]]))
        [[2 1]
         [4 3]]
    """
    x = convert(x)
    if x.ndim < 2:
        raise ShapeError(f"fliplr: expected at least 2 axes; received {x.shape}")
    return flip(x, 1)


@operation
def flipud(x: TensorLike) -> Tensor:
    """Reverse the first axis of a tensor.

    Args:
        x: a tensor with at least 1 axis.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.flipud([[1, 2], [3, 4]]))
        [[3 4]
         [1 2]]
    """
    return flip(x, 0)


# --- diagonals ------------------------------------------------------------------------


@operation
def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the diagonals of matrices along two axes, as the last axis.

    Args:
        x: a tensor with at least 2 axes.
        offset: the diagonal. 0 is the main diagonal, positive numbers are above it, and
            negative numbers are below it.
        axis1: the axis of the rows.
        axis2: the axis of the columns.

    Returns:
        A tensor of the remaining axes and the diagonal, with the dtype of `x`.

    Raises:
        ShapeError: `x` has fewer than 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.diagonal([[1, 2], [3, 4]]))
        [1 4]
    """
    x = convert(x)
    if x.ndim < 2:
        raise ShapeError(f"diagonal: expected at least 2 axes; received {x.shape}")
    a, b = (normalize_axis("diagonal", axis, x.ndim) for axis in (axis1, axis2))
    if a == b:
        raise ArgumentError(
            f"diagonal: expected two different axes; received axis {a} twice"
        )
    other_axes = [i for i in range(x.ndim) if i not in (a, b)]
    order = [*other_axes, a, b]
    x = x if order == list(range(x.ndim)) else transpose(x, order)
    n, m = x.shape[-2:]
    length = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    flat = reshape(x, (*x.shape[:-2], n * m))
    start = offset if offset >= 0 else -offset * m
    if length == 0:
        return slice_axis(flat, flat.ndim - 1, 0, 0)
    stop = start + (length - 1) * (m + 1) + 1
    return slice_axis(flat, flat.ndim - 1, start, stop, m + 1)


@operation
def diag(x: TensorLike, k: int = 0) -> Tensor:
    """Return a diagonal of a matrix, or a matrix with a diagonal.

    Args:
        x: (m, n), a matrix, or (n,), a diagonal.
        k: the diagonal. 0 is the main diagonal, positive numbers are above it, and
            negative numbers are below it.

    Returns:
        A vector for a matrix. For a vector, a matrix with n + abs(k) rows and columns.

    Raises:
        ShapeError: `x` does not have 1 or 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.diag([1, 2]))
        [[1 0]
         [0 2]]
        >>> print(ops.diag([[1, 2], [3, 4]]))
        [1 4]
    """
    x = convert(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag: expected 1 or 2 axes; received {x.shape}")
    n = x.size + abs(k)
    if x.size == 0:
        return zeros((n, n), x.dtype)
    start = k if k >= 0 else -k * n
    flat = dilate(x, 0, n + 1)
    widths = ((start, n * n - start - flat.size),)
    return reshape(bind(pad_p, flat, widths=widths, value=0), (n, n))


@operation
def diagflat(x: TensorLike, k: int = 0) -> Tensor:
    """Create a matrix with the elements of a tensor on one diagonal.

    Args:
        x: tensor of any shape with n elements; it is flattened.
        k: the diagonal. 0 is the main diagonal, positive numbers are above it, and
            negative numbers are below it.

    Returns:
        A square matrix with n + abs(k) rows, and the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.diagflat([[1, 2]], k=1))
        [[0 1 0]
         [0 0 2]
         [0 0 0]]
    """
    return diag(reshape(x, (-1,)), k)


# --- joining and splitting ------------------------------------------------------------


@operation
def vstack(xs: Sequence[Any]) -> Tensor:
    """Join tensors along the first axis; a vector counts as one row.

    Args:
        xs: a sequence of tensors with equal extents, except along the first axis.

    Returns:
        A tensor with the common dtype of `xs`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.vstack([[1, 2], [3, 4]]))
        [[1 2]
         [3 4]]
    """
    return concatenate([_rows(x) for x in operands(*xs)[0]], 0)


def _rows(x: Tensor) -> Tensor:
    return x if x.ndim > 1 else reshape(x, (1, x.size))


@operation
def hstack(xs: Sequence[Any]) -> Tensor:
    """Join tensors along the second axis, and vectors along their only axis.

    Args:
        xs: a sequence of tensors with equal extents, except along the joined axis.

    Returns:
        A tensor with the common dtype of `xs`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.hstack([[[1], [2]], [[3], [4]]]))
        [[1 3]
         [2 4]]
    """
    tensors = [x if x.ndim else reshape(x, (1,)) for x in operands(*xs)[0]]
    return concatenate(tensors, 0 if tensors[0].ndim == 1 else 1)


@operation
def dstack(xs: Sequence[Any]) -> Tensor:
    """Join tensors along the third axis; matrices get a third axis of extent 1.

    Args:
        xs: a sequence of tensors with equal extents, except along the third axis.

    Returns:
        A tensor with the common dtype of `xs`.

    Example:
        >>> from toolkit import ops
        >>> ops.dstack([ops.ones((2, 3)), ops.ones((2, 3))]).shape
        (2, 3, 2)
    """
    tensors = [_rows(x) for x in operands(*xs)[0]]
    return concatenate([expand_dims(x, 2) if x.ndim == 2 else x for x in tensors], 2)


@operation
def append(x1: TensorLike, x2: TensorLike, axis: int | None = None) -> Tensor:
    """Append one tensor to another along an axis.

    Args:
        x1: the first tensor.
        x2: the tensor to append, with the extents of `x1` except along `axis`.
        axis: the axis to join. None joins the flattened tensors.

    Returns:
        A tensor with the common dtype of both.

    Example:
        >>> from toolkit import ops
        >>> print(ops.append([1, 2], [[3, 4]]))
        [1 2 3 4]
    """
    x1, x2 = convert(x1), convert(x2)
    if axis is None:
        x1, x2, axis = reshape(x1, (x1.size,)), reshape(x2, (x2.size,)), 0
    return concatenate([x1, x2], axis)


@operation
def array_split(x: TensorLike, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split a tensor along an axis into parts of almost equal extents.

    Args:
        x: tensor of any shape.
        indices_or_sections: the number of parts, whose extents differ by at most 1; or
            a sequence of indices, as for `split`.
        axis: the axis to split. The default is the first axis.

    Returns:
        A list of tensors with the dtype of `x`; the longer parts are first.

    Raises:
        ArgumentError: the number of parts is less than 1.

    Example:
        >>> from toolkit import ops
        >>> [part.tolist() for part in ops.array_split(ops.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
    """
    x = convert(x)
    axis = normalize_axis("array_split", axis, x.ndim)
    if not is_int(indices_or_sections):
        return split(x, indices_or_sections, axis)
    if indices_or_sections < 1:
        raise ArgumentError(
            f"array_split: expected at least 1 part; received {indices_or_sections}"
        )
    size, larger = divmod(x.shape[axis], indices_or_sections)
    cuts = [size * i + min(i, larger) for i in range(1, indices_or_sections)]
    return split(x, cuts, axis)


@operation
def hsplit(x: TensorLike, indices_or_sections: Any) -> list[Tensor]:
    """Split a tensor along its second axis, or a vector along its only axis.

    Args:
        x: a tensor with at least 1 axis.
        indices_or_sections: a number of parts or a sequence of indices, as for `split`.

    Returns:
        A list of tensors with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> [part.tolist() for part in ops.hsplit([[1, 2], [3, 4]], 2)]
        [[[1], [3]], [[2], [4]]]
    """
    x = convert(x)
    return split(x, indices_or_sections, 0 if x.ndim == 1 else 1)


@operation
def vsplit(x: TensorLike, indices_or_sections: Any) -> list[Tensor]:
    """Split a tensor along its first axis.

    Args:
        x: a tensor with at least 2 axes.
        indices_or_sections: a number of parts or a sequence of indices, as for `split`.

    Returns:
        A list of tensors with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> [part.tolist() for part in ops.vsplit([[1, 2], [3, 4]], 2)]
        [[[1, 2]], [[3, 4]]]
    """
    return _split_deep("vsplit", x, indices_or_sections, 0, 2)


@operation
def dsplit(x: TensorLike, indices_or_sections: Any) -> list[Tensor]:
    """Split a tensor along its third axis.

    Args:
        x: a tensor with at least 3 axes.
        indices_or_sections: a number of parts or a sequence of indices, as for `split`.

    Returns:
        A list of tensors with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> [part.shape for part in ops.dsplit(ops.ones((2, 2, 4)), 2)]
        [(2, 2, 2), (2, 2, 2)]
    """
    return _split_deep("dsplit", x, indices_or_sections, 2, 3)


def _split_deep(
    op: str, x: TensorLike, where: Any, axis: int, ndim: int
) -> list[Tensor]:
    x = convert(x)
    if x.ndim < ndim:
        raise ShapeError(f"{op}: expected at least {ndim} axes; received {x.shape}")
    return split(x, where, axis)


@operation
def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> Tensor:
    """Create a Vandermonde matrix: the powers of a vector as columns.

    Args:
        x: (n,), the bases.
        N: the number of columns. None means n.
        increasing: whether the powers increase from 0. By default they decrease to 0.

    Returns:
        A tensor of shape (n, N) with the dtype of `x`.

    Raises:
        ShapeError: `x` does not have 1 axis.

    Example:
        >>> from toolkit import ops
        >>> print(ops.vander([1, 2, 3]))
        [[1 1 1]
         [4 2 1]
         [9 3 1]]
    """
    x = convert(x)
    if x.ndim != 1:
        raise ShapeError(f"vander: expected 1 axis; received {x.shape}")
    count = x.size if N is None else int(N)
    powers = index_range(count, dtype="int32")
    columns = convert(powers if increasing else powers[::-1], x.dtype)
    return expand_dims(x, 1) ** expand_dims(columns, 0)
