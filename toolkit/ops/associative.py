"""`associative_scan`: all partial results of an associative function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import tree
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.checks import normalize_axis
from toolkit.ops.shape import concatenate, flip, reshape, slice_axis, stack
from toolkit.ops.symbolic import operation


@operation
def associative_scan(
    f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Tensor:
    """Combine the first i elements along an axis for every i, in about log2(n) steps.

    Args:
        f: an associative function of two structures like `elems`: f(f(a, b), c) = f(a,
            f(b, c)). It works elementwise along `axis`.
        elems: a structure of tensors with the same extent n along `axis`.
        reverse: whether to combine the last elements instead of the first ones.
        axis: the axis to scan. The default is the first axis.

    Returns:
        A structure with the shapes and dtypes of `elems`.

    Raises:
        ArgumentError: `f` is not a function.
        ShapeError: the extents along `axis` differ.

    Reference:
        Blelloch, Prefix Sums and Their Applications (1990)

    Example:
        >>> from toolkit import ops
        >>> ops.associative_scan(ops.add, ops.array([1, 2, 3, 4])).tolist()
        [1, 3, 6, 10]
    """
    if not callable(f):
        raise ArgumentError(f"associative_scan: expected a function; received {f!r}")
    xs = [convert(x) for x in tree.flatten(elems)]
    axes = [normalize_axis("associative_scan", axis, x.ndim) for x in xs]
    extents = {x.shape[a] for x, a in zip(xs, axes, strict=True)}
    if len(extents) != 1:
        raise ShapeError(
            "associative_scan: expected tensors with the same extent along axis "
            f"{axis}, the first dimension of the scan; received shapes "
            f"{[x.shape for x in xs]}"
        )

    def combine(low: list[Tensor], high: list[Tensor]) -> list[Tensor]:
        combined = f(
            tree.pack_sequence_as(elems, low), tree.pack_sequence_as(elems, high)
        )
        return [convert(x) for x in tree.flatten(combined)]

    if reverse:
        xs = [flip(x, a) for x, a in zip(xs, axes, strict=True)]
    ys = _scan(combine, xs, axes)
    if reverse:
        ys = [flip(y, a) for y, a in zip(ys, axes, strict=True)]
    return tree.pack_sequence_as(elems, ys)


def _scan(combine: Any, xs: list[Tensor], axes: list[int]) -> list[Tensor]:
    """Scan pairs of adjacent elements, then complete the elements in between."""
    n = xs[0].shape[axes[0]]
    if n < 2:
        return xs

    def take_slice(values: list[Tensor], start: int, stop: int, step: int = 1) -> Any:
        pairs = zip(values, axes, strict=True)
        return [slice_axis(x, a, start, stop, step) for x, a in pairs]

    odd = _scan(
        combine, combine(take_slice(xs, 0, n - 1, 2), take_slice(xs, 1, n, 2)), axes
    )
    even = take_slice(xs, 0, 1)
    if n > 2:
        even_tail = combine(take_slice(odd, 0, (n - 1) // 2), take_slice(xs, 2, n, 2))
        even = [
            concatenate([x, y], a)
            for x, y, a in zip(even, even_tail, axes, strict=True)
        ]
    return [_interleave(x, y, a) for x, y, a in zip(even, odd, axes, strict=True)]


def _interleave(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    n = odd.shape[axis]
    pairs = stack([slice_axis(even, axis, 0, n), odd], axis + 1)
    y = reshape(pairs, (*odd.shape[:axis], 2 * n, *odd.shape[axis + 1 :]))
    if even.shape[axis] == n:
        return y
    return concatenate([y, slice_axis(even, axis, n, n + 1)], axis)
