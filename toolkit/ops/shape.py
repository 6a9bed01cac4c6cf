"""Shape manipulation: views, moves and creation, and their public functions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind, state
from toolkit.errors import ArgumentError, ShapeError, WrongExtentError
from toolkit.ir import (
    PRIMITIVES,
    Kind,
    Primitive,
    Spec,
    letters,
    primitive,
    rule_along_axis,
)
from toolkit.ir.extents import has_extent, range_length
from toolkit.ops.checks import (
    broadcast_shapes,
    extents_of,
    fix_of_target,
    is_unknown,
    normalize_axis,
    stand_in,
)
from toolkit.ops.symbolic import Probe, Undetermined, operation

Shape = tuple[int, ...]


def _may_fit(shape: Shape, other: Shape) -> bool:
    """Return whether both shapes can have the same number of elements."""
    trace = state.trace
    extent = trace.extent if isinstance(trace, Probe) else 1
    if extent == 1:
        return False
    sizes = []
    for extents in (shape, other):
        unknown = [n // extent for n in extents if n and n % extent == 0]
        residual = math.prod(n for n in extents if not n or n % extent)
        sizes.append((len(unknown), residual * math.prod(unknown)))
    (maximum, factor), (minimum, size) = sorted(sizes, reverse=True)
    return maximum > minimum and factor > 0 and size % factor == 0


def _reshape_spec(x: Spec, shape: Shape) -> Spec:
    if math.prod(shape) != x.size:
        raise ShapeError(_reshape_message(x.shape, shape))
    return x.with_shape(shape)


def _reshape_message(shape: Shape, target: Shape) -> str:
    """Return the message about a target with another number of elements."""
    size = math.prod(shape)
    numbers = "" if -1 in target else f" of {math.prod(target)}"
    return (
        f"reshape: cannot reshape {shape} of {size} elements into {target}{numbers}"
        f"{fix_of_target(size, target)}"
    )


def _broadcast_spec(x: Spec, shape: Shape) -> Spec:
    if broadcast_shapes("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: cannot broadcast {x.shape} to {shape}")
    return x.with_shape(shape)


def _slice_spec(x: Spec, start: Shape, stop: Shape, step: Shape) -> Spec:
    return x.with_shape(
        range_length(*bounds) for bounds in zip(start, stop, step, strict=True)
    )


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """Apply the adjoint of a broadcast from `shape`: sum over the broadcast axes."""
    extra = x.ndim - len(shape)
    if not extra and x.shape == shape:
        return x
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(shape) if n == 1 != x.shape[i + extra]]
    if axes:
        x = bind(PRIMITIVES["sum"], x, axis=tuple(axes), keepdims=False)
    return reshape(x, shape)


def _slice_vjp(
    g: Tensor, y: Tensor, x: Tensor, start: Shape, stop: Shape, step: Shape
) -> Tensor:
    """Return the gradient at the original positions, with zeros elsewhere."""
    backwards = tuple(i for i, s in enumerate(step) if s < 0)
    if backwards:
        g = flip(g, backwards)
    widths = []
    for axis, n in enumerate(x.shape):
        count = range_length(start[axis], stop[axis], step[axis])
        low = start[axis] + (count - 1) * step[axis] if step[axis] < 0 else start[axis]
        stride = builtins.abs(step[axis])
        if stride > 1:
            g = dilate(g, axis, stride)
        low = low if has_extent(count) or count else 0
        widths.append((low, n - low - g.shape[axis]))
    return bind(pad_p, g, widths=tuple(widths), value=0)


def dilate(x: Tensor, axis: int, stride: int) -> Tensor:
    """Insert stride - 1 zeros between the elements of `x` along `axis`."""
    n = x.shape[axis]
    if n == 0:
        return x
    wide = reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    widths = [(0, 0)] * wide.ndim
    widths[axis + 1] = (0, stride - 1)
    wide = bind(pad_p, wide, widths=tuple(widths), value=0)
    flat = reshape(wide, (*x.shape[:axis], n * stride, *x.shape[axis + 1 :]))
    return slice_axis(flat, axis, 0, (n - 1) * stride + 1)


def _fitting_axis(xs: tuple[Spec, ...]) -> str:
    """Return the only axis along which the extents differ, for a message."""
    ranks = {x.ndim for x in xs}
    if len(ranks) > 1:
        return f"; the numbers of axes differ: {sorted(ranks)}"
    extents = zip(*(x.shape for x in xs), strict=True)
    axes = [axis for axis, values in enumerate(extents) if len({*values}) > 1]
    return f"; did you mean axis={axes[0]}?" if len(axes) == 1 else ""


def _concatenate_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    for x in xs[1:]:
        matches = x.ndim == first.ndim and builtins.all(
            m == n or i == axis
            for i, (m, n) in enumerate(zip(x.shape, first.shape, strict=True))
        )
        if not matches:
            raise ShapeError(
                f"concatenate: shapes {first.shape} and {x.shape} must be equal "
                f"except along axis {axis}{_fitting_axis(xs)}"
            )
    shape = list(first.shape)
    shape[axis] = builtins.sum(x.shape[axis] for x in xs)
    return first.with_shape(shape)


def _concatenate_vjp(
    g: Tensor, y: Tensor, *xs: Tensor, axis: int
) -> tuple[Tensor, ...]:
    gradients, low = [], 0
    for x in xs:
        gradients.append(slice_axis(g, axis, low, low + x.shape[axis]))
        low += x.shape[axis]
    return tuple(gradients)


def _unpad(g: Tensor, y: Tensor, x: Tensor, widths: Any, value: Any) -> Tensor:
    start = tuple(low for low, _ in widths)
    stop = tuple(low + n for (low, _), n in zip(widths, x.shape, strict=True))
    return bind(slice_p, g, start=start, stop=stop, step=(1,) * x.ndim)


def _transpose_axes(x: Spec, axes: Shape) -> str:
    letters_in = letters(x.ndim)
    return f"{letters_in}->{''.join(letters_in[axis] for axis in axes)}"


def _retained_axes(x: Spec, is_whole: Any) -> str:
    """Return the rule of an operation that leaves axes with `is_whole` unchanged."""
    pairs = enumerate(letters(x.ndim))
    text = "".join(letter if is_whole(axis) else "_" for axis, letter in pairs)
    return f"{text}->{text}"


def _slice_axes(x: Spec, start: Shape, stop: Shape, step: Shape) -> str:
    bounds = [*zip(start, stop, step, x.shape, strict=True)]
    return _retained_axes(
        x, lambda axis: bounds[axis] == (0, x.shape[axis], 1, x.shape[axis])
    )


reshape_p: Primitive = primitive(
    "reshape", Kind.VIEW, _reshape_spec, vjp=lambda g, y, x, shape: reshape(g, x.shape)
)
transpose_p: Primitive = primitive(
    "transpose",
    Kind.VIEW,
    lambda x, axes: x.with_shape(x.shape[a] for a in axes),
    vjp=lambda g, y, x, axes: bind(
        transpose_p, g, axes=tuple(sorted(range(len(axes)), key=axes.__getitem__))
    ),
    axes=_transpose_axes,
)
broadcast_to_p: Primitive = primitive(
    "broadcast_to",
    Kind.VIEW,
    _broadcast_spec,
    vjp=lambda g, y, x, shape: sum_to(g, x.shape),
    axes="...->...",
)
slice_p: Primitive = primitive(
    "slice", Kind.VIEW, _slice_spec, vjp=_slice_vjp, axes=_slice_axes
)
concatenate_p: Primitive = primitive(
    "concatenate",
    Kind.MOVE,
    _concatenate_spec,
    vjp=_concatenate_vjp,
    axes=lambda x, *others, axis: rule_along_axis(x, axis),
)
pad_p: Primitive = primitive(
    "pad",
    Kind.MOVE,
    lambda x, widths, value: x.with_shape(
        n + low + high for n, (low, high) in zip(x.shape, widths, strict=True)
    ),
    vjp=_unpad,
    axes=lambda x, widths, value: _retained_axes(
        x, lambda axis: widths[axis] == (0, 0)
    ),
)


# --- reshaping ------------------------------------------------------------------------


@operation
def reshape(x: Any, newshape: Any) -> Tensor:
    """Return the same elements in another shape.

    Args:
        x: tensor of any shape.
        newshape: an integer or a tuple of integers. One extent may be -1 (or None),
            which means the remaining number of elements.

    Returns:
        A tensor of shape `newshape` with the dtype of `x`. The last axis varies
        fastest.

    Raises:
        ShapeError: the numbers of elements differ, or an extent is not valid.

    Example:
        >>> from toolkit import ops
        >>> print(ops.reshape([1, 2, 3, 4, 5, 6], (2, -1)))
        [[1 2 3]
         [4 5 6]]
    """
    x = convert(x)
    if isinstance(newshape, (tuple, list)):
        shape = extents_of([-1 if n is None else n for n in newshape])
    else:
        shape = extents_of(newshape)
    if any(n < -1 for n in shape):
        raise ShapeError(
            "reshape: extents must be a non-negative integer, or -1 for the "
            f"remaining elements; received newshape={newshape}"
        )
    if -1 in shape:
        known_size = -math.prod(shape)
        if shape.count(-1) > 1:
            raise ShapeError(
                "reshape: there can be at most one unknown dimension, -1; received "
                f"newshape={newshape}"
            )
        if (known_size == 0 and x.size) or (known_size and x.size % known_size):
            raise ShapeError(_reshape_message(x.shape, shape))
        shape = tuple(
            (x.size // known_size if known_size else 0) if n == -1 else n for n in shape
        )
    if math.prod(shape) != x.size and _may_fit(x.shape, shape):
        return stand_in(shape, x.dtype)
    return bind(reshape_p, x, shape=shape)


@operation
def transpose(x: Any, axes: Any = None) -> Tensor:
    """Permute the axes of a tensor.

    Args:
        x: tensor of any shape.
        axes: for each axis of the result, the axis of `x`. None reverses all axes.

    Returns:
        A tensor with permuted axes and the dtype of `x`.

    Raises:
        ArgumentError: `axes` is not a permutation of the axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.transpose([[1, 2, 3], [4, 5, 6]]))
        [[1 4]
         [2 5]
         [3 6]]
    """
    x = convert(x)
    order = tuple(range(x.ndim))[::-1] if axes is None else extents_of(axes)
    order = tuple(a + x.ndim if a < 0 else a for a in order)
    if sorted(order) != list(range(x.ndim)):
        raise ArgumentError(
            f"transpose: Each axis in `axes` must be an integer in [{-x.ndim}, "
            f"{x.ndim}), all of them a valid permutation; received axes={axes}"
        )
    return bind(transpose_p, x, axes=order)


@operation
def broadcast_to(x: Any, shape: Any) -> Tensor:
    """Repeat a tensor along new axes, and along axes of extent 1.

    Args:
        x: tensor of any shape.
        shape: the shape of the result. Its last extents equal the extents of `x`, or
            `x` has extent 1.

    Returns:
        A tensor of shape `shape` with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.broadcast_to([1, 2, 3], (2, 3)))
        [[1 2 3]
         [1 2 3]]
    """
    x = convert(x)
    shape = extents_of(shape)
    return x if x.shape == shape else bind(broadcast_to_p, x, shape=shape)


@operation
def expand_dims(x: Any, axis: Any) -> Tensor:
    """Insert axes of extent 1.

    Args:
        x: tensor of any shape.
        axis: an index in the result, or a tuple of indices, of the new axes.

    Returns:
        A tensor with the elements and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.expand_dims(ops.ones((2, 3)), 1).shape
        (2, 1, 3)
    """
    x = convert(x)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axes)
    new_axes = {normalize_axis("expand_dims", a, ndim) for a in axes}
    old = iter(x.shape)
    return reshape(x, tuple(1 if i in new_axes else next(old) for i in range(ndim)))


@operation
def squeeze(x: Any, axis: Any = None) -> Tensor:
    """Remove axes of extent 1.

    Args:
        x: tensor of any shape.
        axis: an axis or a tuple of axes to remove. None removes all axes of extent 1.

    Returns:
        A tensor with the elements and dtype of `x`.

    Raises:
        WrongExtentError: an axis in `axis` does not have extent 1.

    Example:
        >>> from toolkit import ops
        >>> ops.squeeze(ops.ones((1, 3, 1))).shape
        (3,)
    """
    x = convert(x)
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    removed = {normalize_axis("squeeze", a, x.ndim) for a in axes}
    if any_not_one := [a for a in removed if x.shape[a] != 1]:
        raise WrongExtentError(
            f"squeeze: axis {any_not_one[0]} of shape {x.shape} does not have extent 1"
        )
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in removed))


@operation
def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """Move axes to other positions; the remaining axes keep their order.

    Args:
        x: tensor of any shape.
        source: an axis of `x`, or a tuple of axes.
        destination: the position of each of these axes in the result.

    Returns:
        A tensor with permuted axes and the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.moveaxis(ops.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = convert(x)
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    sources = [normalize_axis("moveaxis", a, x.ndim) for a in sources]
    targets = [normalize_axis("moveaxis", a, x.ndim) for a in targets]
    order = [a for a in range(x.ndim) if a not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(x, order)


@operation
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes of a tensor.

    Args:
        x: tensor of any shape.
        axis1: the first axis.
        axis2: the second axis.

    Returns:
        A tensor with exchanged axes and the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.swapaxes(ops.ones((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    x = convert(x)
    order = list(range(x.ndim))
    a, b = (
        normalize_axis("swapaxes", axis1, x.ndim),
        normalize_axis("swapaxes", axis2, x.ndim),
    )
    order[a], order[b] = b, a
    return transpose(x, order)


@operation
def ravel(x: Any) -> Tensor:
    """Flatten a tensor to one axis; the last axis varies fastest.

    Args:
        x: tensor of any shape.

    Returns:
        A tensor of shape (x.size,) with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ravel([[1, 2], [3, 4]]))
        [1 2 3 4]
    """
    return reshape(x, (-1,))


# --- slicing and joining --------------------------------------------------------------


def slice_axis(x: Tensor, axis: int, low: int, high: int, step: int = 1) -> Tensor:
    """Return x[low:high:step] along one axis."""
    start, stop, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    start[axis], stop[axis], steps[axis] = low, high, step
    return bind(slice_p, x, start=tuple(start), stop=tuple(stop), step=tuple(steps))


@operation
def flip(x: Any, axis: Any = None) -> Tensor:
    """Reverse the order of the elements along axes.

    Args:
        x: tensor of any shape.
        axis: an axis, a tuple of axes, or None. The default None reverses all axes.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.flip([[1, 2], [3, 4]], axis=1))
        [[2 1]
         [4 3]]
    """
    x = convert(x)
    axes = range(x.ndim) if axis is None else axis
    axes = axes if isinstance(axes, (tuple, list, range)) else (axes,)
    reverse = {normalize_axis("flip", a, x.ndim) for a in axes}
    bounds = [
        (n - 1, -1, -1) if i in reverse else (0, n, 1) for i, n in enumerate(x.shape)
    ]
    start, stop, step = zip(*bounds, strict=True) if bounds else ((), (), ())
    return bind(slice_p, x, start=start, stop=stop, step=step)


@operation
def concatenate(xs: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Join tensors along an existing axis.

    Args:
        xs: a sequence of tensors with equal extents, except along `axis`.
        axis: the axis to join. None joins the flattened tensors. The default is the
            first axis.

    Returns:
        A tensor with the common dtype of `xs`.

    Raises:
        ShapeError: the tensors have no axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.concatenate([[[1, 2]], [[3, 4], [5, 6]]], axis=0))
        [[1 2]
         [3 4]
         [5 6]]
    """
    tensors, _ = operands(*xs)
    if axis is None:
        tensors, axis = tuple(reshape(x, (x.size,)) for x in tensors), 0
    if tensors[0].ndim == 0:
        raise ShapeError("concatenate: expected tensors with axes; received 0-d ones")
    if len(tensors) == 1:
        return tensors[0]
    axis = normalize_axis("concatenate", axis, tensors[0].ndim)
    return bind(concatenate_p, *tensors, axis=axis)


@operation
def stack(x: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Args:
        x: a sequence of tensors of the same shape.
        axis: the index of the new axis in the result. The default is 0, the first axis.

    Returns:
        A tensor with one additional axis of extent len(x), and the common dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.stack([[1, 2], [3, 4]], axis=1))
        [[1 3]
         [2 4]]
    """
    tensors, _ = operands(*x)
    first = tensors[0].shape
    other = next((t.shape for t in tensors if t.shape != first), None)
    if other is not None:
        raise ShapeError(
            f"stack: expected tensors of one shape; received shapes {first} and "
            f"{other}. ops.pad makes them equal; ops.concatenate joins them along "
            "an axis that they have"
        )
    axis = normalize_axis("stack", axis, tensors[0].ndim + 1)
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


@operation
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Split a tensor along an axis.

    Args:
        x: tensor of any shape.
        indices_or_sections: the number of parts, which divides the extent of the axis;
            or a sequence of the indices at which a new part starts.
        axis: the axis to split. The default is the first axis.

    Returns:
        A list of tensors with the dtype of `x`.

    Raises:
        ShapeError: the number of parts does not divide the extent.

    Example:
        >>> from toolkit import ops
        >>> [part.tolist() for part in ops.split(ops.arange(6), 3)]
        [[0, 1], [2, 3], [4, 5]]
        >>> [part.tolist() for part in ops.split(ops.arange(6), [1, 4])]
        [[0], [1, 2, 3], [4, 5]]
    """
    x = convert(x)
    axis = normalize_axis("split", axis, x.ndim)
    n = x.shape[axis]
    if not isinstance(indices_or_sections, (tuple, list)) and not np.ndim(
        indices_or_sections
    ):
        indices_or_sections = int(indices_or_sections)
        if n % indices_or_sections:
            raise ShapeError(
                f"split: extent {n} is not divisible by {indices_or_sections}"
            )
        size = n // indices_or_sections
        cuts = [size * i for i in range(1, indices_or_sections)]
    else:
        indices = [int(i) for i in indices_or_sections]
        cuts = [
            builtins.min(builtins.max(i + n if i < 0 else i, 0), n) for i in indices
        ]
    bounds = zip([0, *cuts], [*cuts, n], strict=True)
    return [slice_axis(x, axis, low, builtins.max(low, high)) for low, high in bounds]


@operation
def unstack(x: Any, num: int | None = None, axis: int = 0) -> list[Tensor]:
    """Split a tensor into its slices along an axis.

    Args:
        x: tensor of any shape.
        num: the extent of the axis. None means that it follows from the shape.
        axis: the axis to remove. The default is the first axis.

    Returns:
        A list of tensors without the axis, with the dtype of `x`.

    Raises:
        ShapeError: `num` is not the extent of the axis.

    Example:
        >>> from toolkit import ops
        >>> [row.tolist() for row in ops.unstack([[1, 2], [3, 4]])]
        [[1, 2], [3, 4]]
    """
    x = convert(x)
    axis = normalize_axis("unstack", axis, x.ndim)
    if num is None and is_unknown(x.shape[axis]):
        raise Undetermined(
            "unstack: Cannot infer argument `num` from shape: the number of tensors "
            f"depends on the unknown extent of axis {axis}"
        )
    if num is not None and num != x.shape[axis]:
        raise ShapeError(f"unstack: axis {axis} has extent {x.shape[axis]}, not {num}")
    slices = (slice_axis(x, axis, i, i + 1) for i in range(x.shape[axis]))
    return [squeeze(item, axis) for item in slices]
