"""Shape manipulation: views and moves, creation, and the public functions over them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import config, dtypes
from toolkit.convert import convert, operands
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Kind, Spec, primitive
from toolkit.ops.elementwise import broadcast_shapes, where, zero_like
from toolkit.symbolic import KerasTensor, operation, standardize_shape
from toolkit.tensor import Tensor, bind

Shape = tuple[int, ...]


def _reshape_spec(x: Spec, shape: Shape) -> Spec:
    if math.prod(shape) != x.size:
        raise ShapeError(f"reshape: cannot reshape {x.shape} into {shape}")
    return x.with_shape(shape)


def _broadcast_spec(x: Spec, shape: Shape) -> Spec:
    if broadcast_shapes("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: cannot broadcast {x.shape} to {shape}")
    return x.with_shape(shape)


def _slice_spec(x: Spec, start: Shape, stop: Shape, step: Shape) -> Spec:
    return x.with_shape(
        len(range(*bounds)) for bounds in zip(start, stop, step, strict=True)
    )


def _broadcast_vjp(g: Tensor, y: Tensor, x: Tensor, shape: Shape) -> Tensor:
    from toolkit.ops.reduce import sum

    extra = len(shape) - x.ndim
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(x.shape) if n == 1 != shape[i + extra]]
    return reshape(sum(g, axis=tuple(axes)) if axes else g, x.shape)  # type: ignore[no-any-return]


def _slice_vjp(
    g: Tensor, y: Tensor, x: Tensor, start: Shape, stop: Shape, step: Shape
) -> Tensor:
    """Put the gradient back where it was taken from, zeros elsewhere."""
    backwards = tuple(i for i, s in enumerate(step) if s < 0)
    if backwards:
        g = flip(g, backwards)
    widths = []
    for axis, n in enumerate(x.shape):
        taken = range(start[axis], stop[axis], step[axis])
        taken = taken if step[axis] > 0 else taken[::-1]
        stride = builtins.abs(step[axis])
        if stride > 1:
            g = _dilate(g, axis, stride)
        low = taken[0] if len(taken) else 0
        widths.append((low, n - low - g.shape[axis]))
    return bind(pad_p, g, widths=tuple(widths), value=0)  # type: ignore[no-any-return]


def _dilate(x: Tensor, axis: int, stride: int) -> Tensor:
    """`x` with stride - 1 zeros between its elements along `axis`."""
    n = x.shape[axis]
    if n == 0:
        return x
    wide = reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    widths = [(0, 0)] * wide.ndim
    widths[axis + 1] = (0, stride - 1)
    wide = bind(pad_p, wide, widths=tuple(widths), value=0)
    flat = reshape(wide, (*x.shape[:axis], n * stride, *x.shape[axis + 1 :]))
    return slice_axis(flat, axis, 0, (n - 1) * stride + 1)


def _concatenate_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    for x in xs[1:]:
        matches = x.ndim == first.ndim and builtins.all(
            m == n or i == axis
            for i, (m, n) in enumerate(zip(x.shape, first.shape, strict=True))
        )
        if not matches:
            raise ShapeError(
                f"concatenate: along axis {axis}, shapes {first.shape} and {x.shape} "
                "differ elsewhere too"
            )
    shape = list(first.shape)
    shape[axis] = builtins.sum(x.shape[axis] for x in xs)
    return first.with_shape(shape)


def _concatenate_vjp(g: Tensor, y: Tensor, *xs: Tensor, axis: int) -> tuple[Tensor, ...]:
    parts, low = [], 0
    for x in xs:
        parts.append(slice_axis(g, axis, low, low + x.shape[axis]))
        low += x.shape[axis]
    return tuple(parts)


def _unpad(g: Tensor, y: Tensor, x: Tensor, widths: Any, value: Any) -> Tensor:
    start = tuple(low for low, _ in widths)
    stop = tuple(low + n for (low, _), n in zip(widths, x.shape, strict=True))
    return bind(slice_p, g, start=start, stop=stop, step=(1,) * x.ndim)  # type: ignore[no-any-return]


reshape_p = primitive(
    "reshape",
    Kind.VIEW,
    _reshape_spec,
    vjp=lambda g, y, x, shape: reshape(g, x.shape),
)
transpose_p = primitive(
    "transpose",
    Kind.VIEW,
    lambda x, axes: x.with_shape(x.shape[a] for a in axes),
    vjp=lambda g, y, x, axes: bind(
        transpose_p, g, axes=tuple(sorted(range(len(axes)), key=axes.__getitem__))
    ),
)
broadcast_to_p = primitive(
    "broadcast_to", Kind.VIEW, _broadcast_spec, vjp=_broadcast_vjp
)
slice_p = primitive("slice", Kind.VIEW, _slice_spec, vjp=_slice_vjp)
concatenate_p = primitive(
    "concatenate", Kind.MOVE, _concatenate_spec, vjp=_concatenate_vjp
)
pad_p = primitive(
    "pad",
    Kind.MOVE,
    lambda x, widths, value: x.with_shape(
        n + low + high for n, (low, high) in zip(x.shape, widths, strict=True)
    ),
    vjp=_unpad,
)


# --- reshaping ------------------------------------------------------------------------


@operation
def reshape(x: Any, newshape: Any) -> Tensor:
    """The same elements in another shape; one extent may be -1."""
    x = convert(x)
    sizes = newshape if isinstance(newshape, (tuple, list)) else (newshape,)
    shape = tuple(-1 if n is None else int(n) for n in sizes)
    if -1 in shape:
        rest = -math.prod(shape)
        if shape.count(-1) > 1 or (rest == 0 and x.size) or (rest and x.size % rest):
            raise ShapeError(f"reshape: cannot reshape {x.shape} into {shape}")
        shape = tuple((x.size // rest if rest else 0) if n == -1 else n for n in shape)
    return bind(reshape_p, x, shape=shape)  # type: ignore[no-any-return]


@operation
def transpose(x: Any, axes: Any = None) -> Tensor:
    """The axes in another order; reversed if `axes` is None."""
    x = convert(x)
    order = tuple(range(x.ndim))[::-1] if axes is None else tuple(axes)
    order = tuple(a + x.ndim if a < 0 else a for a in order)
    if sorted(order) != list(range(x.ndim)):
        raise ArgumentError(
            f"transpose: expected a permutation of {x.ndim} axes; received {axes}"
        )
    return bind(transpose_p, x, axes=order)  # type: ignore[no-any-return]


@operation
def broadcast_to(x: Any, shape: Any) -> Tensor:
    """x repeated along new axes and axes of extent 1, to get `shape`."""
    x = convert(x)
    shape = tuple(int(n) for n in shape)
    return x if x.shape == shape else bind(broadcast_to_p, x, shape=shape)


@operation
def expand_dims(x: Any, axis: Any) -> Tensor:
    """x with new axes of extent 1 at the positions `axis` of the result."""
    x = convert(x)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    places = {_axis("expand_dims", a, ndim) for a in axes}
    old = iter(x.shape)
    return reshape(x, tuple(1 if i in places else next(old) for i in range(ndim)))  # type: ignore[no-any-return]


@operation
def squeeze(x: Any, axis: Any = None) -> Tensor:
    """x without its axes of extent 1, or without those named."""
    x = convert(x)
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))  # type: ignore[no-any-return]
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    gone = {_axis("squeeze", a, x.ndim) for a in axes}
    if any_not_one := [a for a in gone if x.shape[a] != 1]:
        raise ShapeError(
            f"squeeze: axis {any_not_one[0]} of shape {x.shape} does not have extent 1"
        )
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))  # type: ignore[no-any-return]


def _axis(op: str, axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ArgumentError(
            f"{op}: expected an axis in [{-ndim}, {ndim}); received {axis}"
        )
    return int(axis) % ndim


@operation
def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """The axes `source` moved to the positions `destination`."""
    x = convert(x)
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    sources = [_axis("moveaxis", a, x.ndim) for a in sources]
    targets = [_axis("moveaxis", a, x.ndim) for a in targets]
    order = [a for a in range(x.ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(x, order)  # type: ignore[no-any-return]


@operation
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """x with two axes exchanged."""
    x = convert(x)
    order = list(range(x.ndim))
    a, b = _axis("swapaxes", axis1, x.ndim), _axis("swapaxes", axis2, x.ndim)
    order[a], order[b] = b, a
    return transpose(x, order)  # type: ignore[no-any-return]


@operation
def ravel(x: Any) -> Tensor:
    """x with a single axis."""
    return reshape(x, (-1,))  # type: ignore[no-any-return]


# --- slicing and joining --------------------------------------------------------------


def slice_axis(x: Tensor, axis: int, low: int, high: int, step: int = 1) -> Tensor:
    """x[low:high:step] along one axis."""
    start, stop, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    start[axis], stop[axis], steps[axis] = low, high, step
    return bind(slice_p, x, start=tuple(start), stop=tuple(stop), step=tuple(steps))  # type: ignore[no-any-return]


@operation
def flip(x: Any, axis: Any = None) -> Tensor:
    """x with the order of its elements reversed along `axis` (None: along all)."""
    x = convert(x)
    axes = range(x.ndim) if axis is None else axis
    axes = axes if isinstance(axes, (tuple, list, range)) else (axes,)
    reverse = {_axis("flip", a, x.ndim) for a in axes}
    bounds = [
        (n - 1, -1, -1) if i in reverse else (0, n, 1) for i, n in enumerate(x.shape)
    ]
    start, stop, step = zip(*bounds, strict=True) if bounds else ((), (), ())
    return bind(slice_p, x, start=start, stop=stop, step=step)  # type: ignore[no-any-return]


@operation
def concatenate(xs: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors joined along an axis that they have."""
    tensors, _ = operands(*xs)
    if tensors[0].ndim == 0:
        raise ShapeError("concatenate: expected tensors with axes; received 0-d ones")
    if len(tensors) == 1:
        return tensors[0]
    axis = _axis("concatenate", axis, tensors[0].ndim)
    return bind(concatenate_p, *tensors, axis=axis)  # type: ignore[no-any-return]


@operation
def stack(x: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    tensors, _ = operands(*x)
    axis = _axis("stack", axis, tensors[0].ndim + 1)
    return concatenate([expand_dims(t, axis) for t in tensors], axis)  # type: ignore[no-any-return]


@operation
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """x cut along an axis into equal parts, or at the given indices."""
    x = convert(x)
    axis = _axis("split", axis, x.ndim)
    n = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if n % indices_or_sections:
            raise ShapeError(
                f"split: extent {n} does not divide into {indices_or_sections} parts"
            )
        size = n // indices_or_sections
        cuts = [size * i for i in range(1, indices_or_sections)]
    else:
        given = [int(i) for i in indices_or_sections]
        cuts = [builtins.min(builtins.max(i + n if i < 0 else i, 0), n) for i in given]
    bounds = zip([0, *cuts], [*cuts, n], strict=True)
    return [slice_axis(x, axis, low, builtins.max(low, high)) for low, high in bounds]


@operation
def unstack(x: Any, num: int | None = None, axis: int = 0) -> list[Tensor]:
    """The slices of x along an axis, as a list."""
    x = convert(x)
    axis = _axis("unstack", axis, x.ndim)
    if num is not None and num != x.shape[axis]:
        raise ShapeError(f"unstack: axis {axis} has extent {x.shape[axis]}, not {num}")
    parts = (slice_axis(x, axis, i, i + 1) for i in range(x.shape[axis]))
    return [squeeze(part, axis) for part in parts]


# --- creation -------------------------------------------------------------------------


def _full(shape: Any, value: Any, dtype: str) -> Tensor:
    extents = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    return bind(broadcast_to_p, convert(value, dtype), shape=extents)  # type: ignore[no-any-return]


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """A tensor whose every element is `fill_value`."""
    value = convert(fill_value, dtype and dtypes.standardize(dtype))
    return broadcast_to(value, (shape,) if isinstance(shape, int) else shape)  # type: ignore[no-any-return]


def zeros(shape: Any, dtype: Any = None) -> Tensor:
    """A tensor of zeros, floatx unless `dtype` is given."""
    return _full(shape, 0, dtypes.standardize(dtype))


def ones(shape: Any, dtype: Any = None) -> Tensor:
    """A tensor of ones, floatx unless `dtype` is given."""
    return _full(shape, 1, dtypes.standardize(dtype))


def empty(shape: Any, dtype: Any = None) -> Tensor:
    """A tensor whose elements do not matter: zeros."""
    return zeros(shape, dtype)


@operation
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """`fill_value` everywhere, in the shape and dtype of x."""
    x = convert(x)
    value = convert(fill_value, dtypes.standardize(dtype) if dtype else x.dtype)
    return broadcast_to(value, x.shape)  # type: ignore[no-any-return]


@operation
def zeros_like(x: Any, dtype: Any = None) -> Tensor:
    """Zeros in the shape and dtype of x."""
    return full_like(x, 0, dtype)  # type: ignore[no-any-return]


@operation
def ones_like(x: Any, dtype: Any = None) -> Tensor:
    """Ones in the shape and dtype of x."""
    return full_like(x, 1, dtype)  # type: ignore[no-any-return]


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """Evenly spaced numbers from `start` (0 if `stop` is None) up to `stop`."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(v) for v in (start, stop, step))
    name = dtypes.result_type(*(type(v) for v in (start, stop, step)))
    name = dtypes.standardize(dtype) if dtype else name
    return convert(np.arange(start, stop, step), name)


def _number(x: Any) -> Any:
    return x if isinstance(x, (int, float)) else convert(x).item()


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from `start` to `stop`, along a new `axis`."""
    from toolkit.convert import floating

    low, high = floating(start, stop)
    low, high = (
        broadcast_to(v, broadcast_shapes("linspace", low.shape, high.shape))
        for v in (low, high)
    )
    step = (high - low) / builtins.max(num - 1 if endpoint else num, 1)
    counter = reshape(arange(num, dtype=low.dtype), (num,) + (1,) * low.ndim)
    values = expand_dims(low, 0) + counter * expand_dims(step, 0)
    if endpoint and num > 1:
        values = concatenate([slice_axis(values, 0, 0, num - 1), expand_dims(high, 0)])
    values = convert(moveaxis(values, 0, axis), dtype and dtypes.standardize(dtype))
    return (values, step) if retstep else values


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """An N x M matrix (M = N if None) with ones on its k-th diagonal."""
    M = N if M is None else M
    rows = reshape(arange(N, dtype="int32"), (N, 1))
    columns = reshape(arange(M, dtype="int32"), (1, M))
    return convert(rows + k == columns, dtypes.standardize(dtype))  # type: ignore[operator]


def identity(n: int, dtype: Any = None) -> Tensor:
    """The n x n identity matrix."""
    return eye(n, dtype=dtype)


def _triangle(x: Tensor, k: int, lower: bool) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"tril/triu: expected at least 2 axes; received {x.shape}")
    n, m = x.shape[-2:]
    rows = reshape(arange(n, dtype="int32"), (n, 1))
    columns = reshape(arange(m, dtype="int32"), (1, m))
    keep = columns <= rows + k if lower else columns >= rows + k  # type: ignore[operator]
    return where(keep, x, zero_like(x))  # type: ignore[no-any-return]


@operation
def tril(x: Any, k: int = 0) -> Tensor:
    """The lower triangles of the last two axes, zeros above the k-th diagonal."""
    return _triangle(convert(x), k, lower=True)


@operation
def triu(x: Any, k: int = 0) -> Tensor:
    """The upper triangles of the last two axes, zeros below the k-th diagonal."""
    return _triangle(convert(x), k, lower=False)


def shape(x: Any) -> tuple[int | None, ...]:
    """The shape of x, None where a symbol's extent is unknown."""
    return x.shape if isinstance(x, KerasTensor) else convert(x).shape
