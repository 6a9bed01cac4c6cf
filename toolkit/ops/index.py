"""Reads and writes at computed indices: primitives, and their public functions.

Indices are int32 or int64. A negative index is relative to the end, and an index out of
range raises an OutOfRangeError. `scatter` and `put_along_axis` combine updates in a
fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.slices import IndexedSlices, sum_of_slices
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.errors import ShapeError, unknown_choice
from toolkit.ir import Kind, Primitive, Spec, letters, primitive, rule_along_axis
from toolkit.ops.checks import broadcast_shapes, check_integers, normalize_axis
from toolkit.ops.creation import arange, zeros, zeros_like
from toolkit.ops.elementwise import add, equal, less, where, zero_like
from toolkit.ops.numeric import logical_and
from toolkit.ops.shape import broadcast_to, reshape, slice_axis
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

Shape = tuple[int, ...]

_MODES = ("add", "set", "max", "min", "mul")


# --- primitives -----------------------------------------------------------------------


def _gathered(x: Shape, indices: Shape, axis: int) -> Shape:
    return (*x[:axis], *indices, *x[axis + 1 :])


def _gather_spec(x: Spec, indices: Spec, axis: int, shifted: bool = False) -> Spec:
    return x.with_shape(_gathered(x.shape, indices.shape, axis))


def _scatter_spec(x: Spec, indices: Spec, updates: Spec, axis: int, mode: str) -> Spec:
    if updates.shape != (shape := _gathered(x.shape, indices.shape, axis)):
        raise ShapeError(
            f"scatter: expected updates of shape {shape}; received {updates.shape}"
        )
    return x


def _along_spec(x: Spec, indices: Spec, axis: int, shifted: bool = False) -> Spec:
    expected = (*x.shape[:axis], *indices.shape[axis : axis + 1], *x.shape[axis + 1 :])
    if indices.shape != expected:
        raise ShapeError(
            f"take_along_axis: shapes {x.shape} and {indices.shape} must be equal "
            f"except along axis {axis}"
        )
    return x.with_shape(indices.shape)


def _put_spec(x: Spec, indices: Spec, updates: Spec, axis: int, mode: str) -> Spec:
    slices = _along_spec(x, indices, axis)
    if updates.shape != slices.shape:
        raise ShapeError(
            f"put_along_axis: expected updates of shape {slices.shape}; "
            f"received {updates.shape}"
        )
    return x


def _rows(indices: Tensor, like: Tensor, axis: int) -> Tensor:
    """Return `indices` along `axis` of a gathered tensor, for broadcasting with it."""
    return reshape(indices, (*indices.shape, *(1,) * (like.ndim - axis - indices.ndim)))


def _last_writer(indices: Tensor, updates: Tensor, axis: int, extent: int) -> Tensor:
    """Return where no later update of `scatter` overwrites an update."""
    order = reshape(arange(indices.size, dtype="int32"), indices.shape)
    blank = zeros((extent,), "int32")
    last = bind(scatter_p, blank, indices, order, axis=0, mode="set")
    wins = equal(bind(gather_p, last, indices, axis=0), order)
    return _rows(wins, updates, axis)


def _last_along(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Return where no later update of `put_along_axis` overwrites an update."""
    counter = reshape(
        arange(indices.shape[axis], dtype="int32"),
        (-1, *(1,) * (indices.ndim - axis - 1)),
    )
    order = broadcast_to(counter, indices.shape)
    blank = zeros(x.shape, "int32")
    last = bind(put_along_axis_p, blank, indices, order, axis=axis, mode="set")
    return equal(bind(take_along_axis_p, last, indices, axis=axis), order)


def _combine_vjp(
    g: Tensor, y: Tensor, x: Tensor, u: Tensor, mode: str, io: Any
) -> tuple[Tensor, ...]:
    """Return the gradients of x and of the updates u.

    `io` is (take, put, last): take(t) reads at the indices, put(t, u, mode) combines
    there, and last() marks the updates that mode "set" keeps.
    """
    take, combine, last = io
    if mode == "add":
        return g, take(g)
    if mode == "set":
        blank = zeros_like(u)
        return combine(g, blank, "set"), where(last(), take(g), zero_like(g))
    if mode == "mul":
        return _product_vjp(g, x, u, take, combine)
    # Elements that tie at the extremum share the gradient.
    wins, update_wins = equal(x, y), equal(u, take(y))
    share = g / combine(convert(wins, g.dtype), convert(update_wins, g.dtype), "add")
    return (
        where(wins, share, zero_like(g)),
        where(update_wins, take(share), zero_like(g)),
    )


def _product_vjp(g: Tensor, x: Tensor, u: Tensor, take: Any, combine: Any) -> Any:
    """Return for each factor the product of all other factors, also if one is 0."""
    zero_x, zero_u = equal(x, 0), equal(u, 0)
    count = combine(convert(zero_x, g.dtype), convert(zero_u, g.dtype), "add")
    nonzero_product = combine(
        where(zero_x, x * 0 + 1, x), where(zero_u, u * 0 + 1, u), "mul"
    )

    def product_of_others(
        factor: Tensor, is_zero: Tensor, count: Tensor, nonzero_product: Tensor
    ) -> Tensor:
        at_zero = where(
            logical_and(is_zero, equal(count, 1)),
            nonzero_product,
            zero_like(nonzero_product),
        )
        quotient = nonzero_product / where(is_zero, factor * 0 + 1, factor)
        return where(equal(count, 0), quotient, at_zero)

    u_others = product_of_others(u, zero_u, take(count), take(nonzero_product))
    return g * product_of_others(x, zero_x, count, nonzero_product), take(g) * u_others


def _scatter_vjp(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int,
    mode: str,
) -> tuple[Any, None, Any]:
    io = (
        lambda t: bind(gather_p, t, indices, axis=axis),
        lambda t, u, mode: bind(scatter_p, t, indices, u, axis=axis, mode=mode),
        lambda: _last_writer(indices, updates, axis, x.shape[axis]),
    )
    dx, du = _combine_vjp(g, y, x, updates, mode, io)
    return dx, None, du


def _put_vjp(
    g: Tensor,
    y: Tensor,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int,
    mode: str,
) -> tuple[Any, None, Any]:
    io = (
        lambda t: bind(take_along_axis_p, t, indices, axis=axis),
        lambda t, u, mode: bind(put_along_axis_p, t, indices, u, axis=axis, mode=mode),
        lambda: _last_along(x, indices, axis),
    )
    dx, du = _combine_vjp(g, y, x, updates, mode, io)
    return dx, None, du


def _put_back(g: Tensor, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Return zeros like x with g added at the indices along an axis."""
    n = x.shape[axis]
    if indices.shape[axis] != 1:
        blank = zeros(x.shape, g.dtype)
        return bind(put_along_axis_p, blank, indices, g, axis=axis, mode="add")
    # One index for all positions: a comparison fuses with the readers of the result.
    trailing = (1,) * (x.ndim - axis - 1)
    positions = reshape(arange(n, dtype=indices.dtype), (n, *trailing))
    wrapped = where(less(indices, 0), add(indices, n), indices)
    return where(equal(positions, wrapped), g, zero_like(g))


def _gather_axes(x: Spec, indices: Spec, axis: int, shifted: bool = False) -> str:
    axes = letters(x.ndim)
    index_axes = letters(indices.ndim, x.ndim)
    front, back = axes[:axis], axes[axis + 1 :]
    return f"{front}_{back},{index_axes}->{front}{index_axes}{back}"


def _scatter_axes(x: Spec, indices: Spec, updates: Spec, axis: int, mode: str) -> str:
    table, _, rows = _gather_axes(x, indices, axis).partition("->")
    data_axes, index_axes = table.split(",")
    if mode != "add":  # the last update wins, or the operation has no inverse
        rows = rows.replace(index_axes, "_" * len(index_axes))
        index_axes = "_" * len(index_axes)
    return f"{data_axes},{index_axes},{rows}->{data_axes}"


def _gather_vjp(
    g: Tensor, y: Tensor, x: Tensor, indices: Tensor, axis: int, shifted: bool = False
) -> Tensor:
    """Return zeros like x with g added at the indices; for rows, with slices."""
    spec = Spec(x.shape, g.dtype)

    def dense() -> Tensor:
        blank = zeros(spec.shape, spec.dtype)
        gradient: Tensor = bind(scatter_p, blank, indices, g, axis=axis, mode="add")
        return gradient

    if axis:
        return dense()
    return sum_of_slices(spec, (IndexedSlices(indices, g),), dense)


def _take_along_vjp(
    g: Tensor, y: Tensor, x: Tensor, indices: Tensor, axis: int, shifted: bool = False
) -> Tensor:
    return _put_back(g, x, indices, axis)


# The indices of a `shifted` lookup come from `reject_negative`; errors name the
# original ones.
gather_p: Primitive = primitive(
    "gather", Kind.INDEX, _gather_spec, vjp=(_gather_vjp, None), axes=_gather_axes
)
scatter_p: Primitive = primitive(
    "scatter",
    Kind.INDEX,
    _scatter_spec,
    vjp=_scatter_vjp,
    axes=_scatter_axes,
    initial_operand=0,
)
take_along_axis_p: Primitive = primitive(
    "take_along_axis",
    Kind.INDEX,
    _along_spec,
    vjp=(_take_along_vjp, None),
    axes=lambda x, indices, axis, shifted=False: rule_along_axis(x, axis),
)
put_along_axis_p: Primitive = primitive(
    "put_along_axis",
    Kind.INDEX,
    _put_spec,
    vjp=_put_vjp,
    axes=lambda x, *others, axis, mode: rule_along_axis(x, axis),
)
# The indices and rows of a lookup, of the whole batch in all processes of a job. A step
# that is partitioned over the processes gathers them, and checks the indices against
# the extent of the table. In one process it returns its operands.
exchange_rows_p: Primitive = decomposable(
    "exchange_rows", lambda indices, rows, extent: (indices, rows)
)


# --- helpers --------------------------------------------------------------------------


def as_indices(op: str, x: Any) -> Tensor:
    """Return `x` as a tensor of int32 or int64; raise an error for floats."""
    x = convert(x)
    if dtypes.is_float(x.dtype):
        if x.size == 0:  # an empty list becomes a float tensor
            return convert(x, "int32")
        check_integers(op, x.dtype, "integer indices")
    wide = x.dtype in ("int64", "uint32", "uint64")
    return convert(x, "int64" if wide else "int32")


def flat_indices(columns: Sequence[Tensor], extents: Shape) -> Tensor:
    """Return indices into the flattened axes of `extents`, from one for each axis.

    Gathering each index from a counter handles negative indices, and lets the kernel
    check the range of each axis separately.
    """
    if len(columns) == 1:
        return columns[0]
    dtype = "int32" if math.prod(extents) < 2**31 else "int64"
    total: Any = None
    stride = 1
    for index, n in zip(reversed(columns), reversed(extents), strict=True):
        counter = arange(n, dtype=dtype) * stride
        term = bind(gather_p, counter, index, axis=0)
        total = term if total is None else total + term
        stride *= n
    return total


def reject_negative(indices: Tensor, extent: int) -> Tensor:
    """Return indices that a lookup with `shifted` rejects if they are negative.

    Without this, a lookup counts a negative index from the end of the axis.

    Args:
        indices: the indices.
        extent: the extent of the axis.
    """
    return where(less(indices, 0), indices - extent, indices)


def lookup(x: TensorLike, indices: Tensor) -> Tensor:
    """Return the rows of x at indices from `reject_negative`; errors name the original.

    Args:
        x: a table, (n, ...).
        indices: the indices.
    """
    rows: Tensor = bind(gather_p, convert(x), indices, axis=0, shifted=True)
    return rows


# --- public functions -----------------------------------------------------------------


@operation
def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """Return the elements at indices along an axis.

    The axes of `indices` replace the axis: x of shape (a, n, b) and indices of shape
    (i, j) with axis=1 give (a, i, j, b).

    Args:
        x: tensor of any shape.
        indices: integers in [-n, n) of any shape, where n is the extent of the axis.
        axis: the axis to index. None indexes the flattened tensor.

    Returns:
        A tensor with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.take([10, 20, 30], [2, 0, 0]))
        [30 10 10]
        >>> print(ops.take([[1, 2], [3, 4]], 1, axis=1))
        [2 4]
    """
    x = convert(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("take", axis, x.ndim)
    return bind(gather_p, x, as_indices("take", indices), axis=axis)


@operation
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """Return the element at a separate index for each position along an axis.

    For axis=1, the result is y[i, j] = x[i, indices[i, j]].

    Args:
        x: tensor of any shape.
        indices: integers with the rank of `x`. All axes except `axis` broadcast.
        axis: the axis to index. None indexes the flattened `x` with the flattened
            `indices`.

    Returns:
        A tensor with the dtype of `x`.

    Raises:
        ShapeError: `x` and `indices` have different ranks.

    Example:
        >>> from toolkit import ops
        >>> print(ops.take_along_axis([[1, 2], [3, 4]], [[1], [0]], axis=1))
        [[2]
         [3]]
    """
    x, indices = convert(x), as_indices("take_along_axis", indices)
    if axis is None:
        x, indices, axis = reshape(x, (-1,)), reshape(indices, (-1,)), 0
    if x.ndim != indices.ndim:
        raise ShapeError(
            "take_along_axis: expected x and indices of equal rank; received shapes "
            f"{x.shape} and {indices.shape}"
        )
    axis = normalize_axis("take_along_axis", axis, x.ndim)
    common = broadcast_shapes(
        "take_along_axis",
        *((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, indices)),
    )
    x, indices = (
        broadcast_to(t, (*common[:axis], t.shape[axis], *common[axis + 1 :]))
        for t in (x, indices)
    )
    return bind(take_along_axis_p, x, indices, axis=axis)


@operation
def scatter(indices: Any, values: Any, shape: Any) -> Tensor:
    """Add values to zeros at indices.

    Args:
        indices: (..., k), integers: indices of the first k axes of the result.
        values: (..., *shape[k:]). Values with equal indices are added.
        shape: the shape of the result.

    Returns:
        A tensor of shape `shape` with the dtype of `values`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.scatter([[0], [2], [2]], [1, 10, 20], (4,)))
        [ 1  0 30  0]
    """
    values = convert(values)
    return scatter_update(zeros(shape, values.dtype), indices, values, "add")


@operation
def scatter_update(
    inputs: Any, indices: Any, updates: Any, reduction: str | None = None
) -> Tensor:
    """Return a copy of a tensor with updates at indices.

    Args:
        inputs: the initial tensor.
        indices: (..., k), integers: indices of the first k axes of `inputs`.
        updates: (..., *inputs.shape[k:]).
        reduction: the combination of an update with the old value: None replaces it,
            "add", "max", "min" and "mul" combine them. With None, the last update of
            equal indices is stored.

    Returns:
        A tensor with the shape and dtype of `inputs`.

    Raises:
        ShapeError: the shapes do not match.

    Example:
        >>> from toolkit import ops
        >>> print(ops.scatter_update([1, 2, 3], [[0], [2]], [10, 30]))
        [10  2 30]
    """
    mode = "set" if reduction is None else str(reduction).lower()
    if mode not in _MODES:
        raise unknown_choice("scatter_update: reduction", reduction, _MODES)
    inputs = convert(inputs)
    updates = convert(updates, inputs.dtype)
    indices = as_indices("scatter_update", indices)
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 < depth <= inputs.ndim:
        raise ShapeError(
            f"scatter_update: expected indices of shape (..., k), 1 <= k <= "
            f"{inputs.ndim}; received {indices.shape}"
        )
    lead, suffix = inputs.shape[:depth], inputs.shape[depth:]
    flat = flat_indices(columns_of(indices), lead)
    target = reshape(inputs, (math.prod(lead), *suffix))
    updates = broadcast_to(updates, (*flat.shape, *suffix))
    y = bind(scatter_p, target, flat, updates, axis=0, mode=mode)
    return reshape(y, inputs.shape)


def columns_of(indices: Tensor) -> list[Tensor]:
    """Return the tensors indices[..., i]."""
    axis, shape = indices.ndim - 1, indices.shape[:-1]
    return [
        reshape(slice_axis(indices, axis, i, i + 1), shape)
        for i in range(indices.shape[-1])
    ]
