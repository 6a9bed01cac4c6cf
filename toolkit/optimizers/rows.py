"""Sparse updates: updates of the rows of a Variable that a lookup has read.

`rows_of` converts the gradient of a lookup to rows, each index once. `update_parts`
computes the update of these rows only. If an update adds a multiple of the gradient,
the term of each lookup is added directly to its row. The number of rows equals the
number of lookups, for any indices, so that shapes in a compiled step are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.slices import IndexedSlices, slices_of
from toolkit.core.tensor import Tensor, bind
from toolkit.core.variable import Variable
from toolkit.ir.extents import value_of
from toolkit.ops.index import exchange_rows_p, scatter_p

if TYPE_CHECKING:
    from toolkit.optimizers.optimizer import Optimizer

# Sorting and moving a row costs about as much as updating this number of rows in order.
_COST = 4

# Variables of these dtypes can add terms one by one. In fewer bits, many small terms
# would be lost next to a large weight.
_PRECISE = ("float32", "float64")

Method = TypeVar("Method", bound=Callable[..., Any])


def accepts_rows(
    when: Callable[[Any], bool] = lambda optimizer: True, additive: bool = False
) -> Callable[[Method], Method]:
    """Mark a method of an optimizer that accepts only the rows of a gradient.

    For `update`: it changes nothing where the gradient is zero. An overriding method
    must be marked again, or it receives whole gradients.

    Args:
        when: a predicate of the optimizer that enables the mark.
        additive: whether `update` adds a multiple of the gradient to the parameter, and
            has no state.
    """

    def mark(method: Method) -> Method:
        method.accepts_rows = when  # type: ignore[attr-defined]
        method.additive = additive  # type: ignore[attr-defined]
        return method

    return mark


def _accepts_rows(optimizer: Optimizer, name: str) -> bool:
    when = getattr(getattr(type(optimizer), name), "accepts_rows", None)
    return when is not None and bool(when(optimizer))


def as_rows(
    optimizer: Optimizer, gradients: Iterable[Tensor], variables: Iterable[Variable]
) -> list[Any]:
    """Return the gradients, as `Rows` or slices where only their rows change."""
    pairs = zip(gradients, variables, strict=True)
    return [
        _convert_gradient(optimizer, g, v)
        if _should_update_rows(optimizer, g, v)
        else g
        for g, v in pairs
    ]


def _convert_gradient(
    optimizer: Optimizer, gradient: Tensor, variable: Variable
) -> Any:
    """Return the only slice of a gradient if terms can be added singly; else rows."""
    slices = _exchanged(slices_of(gradient), gradient.shape[0])
    update: Any = type(optimizer).update
    if (
        len(slices) == 1
        and getattr(update, "additive", False)
        and variable.dtype in _PRECISE
        and not _clips(optimizer)
    ):
        return slices[0]
    return rows_of(slices, gradient)


def _exchanged(slices: Sequence[IndexedSlices], extent: int) -> Sequence[IndexedSlices]:
    """Return slices that all processes of a job need for the whole batch."""
    if Variable._placement_of is None:
        return slices
    return [
        IndexedSlices(*bind(exchange_rows_p, s.indices, s.values, extent=extent))
        for s in slices
    ]


def _should_update_rows(
    optimizer: Optimizer, gradient: Tensor, variable: Variable
) -> bool:
    """Return whether to update only the rows of a gradient.

    If both ways give the same result, the cheaper one is used. The whole variable is
    updated if all of it changes anyway.
    """
    slices = slices_of(gradient)
    if not slices or not _accepts_rows(optimizer, "update_step"):
        return False
    if optimizer.lazy:
        return True
    decays = optimizer._weight_decay_of(variable)
    updates_all = (
        (decays is not None and optimizer._use_weight_decay(variable))
        or variable.constraint is not None
        or optimizer.gradient_accumulation_steps is not None
    )
    if updates_all:
        return False
    lookups = sum(s.indices.size for s in slices)
    is_cheaper = value_of(lookups) * _COST <= gradient.shape[0]
    return is_cheaper and _accepts_rows(optimizer, "update")


def _clips(optimizer: Optimizer) -> bool:
    """Return whether clipping depends on the sum of a row's terms."""
    limits = optimizer.clipnorm, optimizer.clipvalue, optimizer.global_clipnorm
    return any(limit is not None for limit in limits)


class Rows(NamedTuple):
    """Gradient that is zero except for some rows, from n lookups.

    Attributes:
        indices: (n,), the indices of the lookups, so that a step does not read the rows
            of a variable again. They can repeat.
        values: (n, ...). The gradient of each distinct index is in one row; the
            remaining rows are zero. So norms equal the norms of the gradient.
        positions: (n,), the position in `values` of the gradient of each lookup's row.
    """

    indices: Tensor
    values: Tensor
    positions: Tensor


# Types that `as_rows` can return instead of a whole gradient.
PARTS = (Rows, IndexedSlices)


def rows_of(slices: Sequence[IndexedSlices], gradient: Tensor) -> Rows:
    """Return the rows of a gradient, from its slices.

    Gradients of one row are summed in the order of the lookups.
    """
    extent, *row_shape = gradient.shape
    indices = _joined([ops.reshape(s.indices, (-1,)) for s in slices])
    values = [ops.reshape(s.values, (s.indices.size, *row_shape)) for s in slices]
    numbers = ops.where(indices < 0, indices + extent, indices)
    positions = ops.searchsorted(ops.sort(numbers), numbers)
    blank = ops.zeros((indices.size, *row_shape), gradient.dtype)
    total = bind(scatter_p, blank, positions, _joined(values), axis=0, mode="add")
    return Rows(indices, total, positions)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors)


def on_values(change: Callable[[list[Tensor]], list[Tensor]], grads: list[Any]) -> Any:
    """Apply a change that keeps zeros to the elements and norms of gradients."""
    values = change([g.values if isinstance(g, PARTS) else g for g in grads])
    return [
        g._replace(values=new) if isinstance(g, PARTS) else new
        for g, new in zip(grads, values, strict=True)
    ]


def update_parts(
    update: Callable[..., tuple[Tensor, dict[str, Tensor]]],
    gradient: Rows | IndexedSlices,
    variable: Variable,
    slots: dict[str, Variable],
    *scalars: Tensor,
) -> None:
    """Apply `update` to the rows of a variable and of its slots."""
    if isinstance(gradient, Rows):
        _update_rows(update, gradient, variable, slots, *scalars)
    else:
        _add_terms(update, gradient, variable, *scalars)


def _update_rows(
    update: Callable[..., tuple[Tensor, dict[str, Tensor]]],
    rows: Rows,
    variable: Variable,
    slots: dict[str, Variable],
    *scalars: Tensor,
) -> None:
    """Compute a row once for each of its lookups.

    Each result has the same bits, so that repeated stores are safe.
    """

    def read(v: Variable) -> Tensor:
        return ops.take(v.read(), rows.indices, axis=0)

    gradient = convert(ops.take(rows.values, rows.positions, axis=0), variable.dtype)
    memory = {name: read(slot) for name, slot in slots.items()}
    value, memory = update(gradient, read(variable), memory, *scalars)
    _write(variable, rows.indices, value, "set")
    for name, slot in slots.items():
        _write(slot, rows.indices, memory[name], "set")


def _add_terms(
    update: Callable[..., tuple[Tensor, dict[str, Tensor]]],
    slices: IndexedSlices,
    variable: Variable,
    *scalars: Tensor,
) -> None:
    """Add the terms of an additive update: its result for a zero parameter."""
    gradient = convert(slices.values, variable.dtype)
    terms, _ = update(gradient, ops.zeros_like(gradient), {}, *scalars)
    _write(variable, slices.indices, terms, "add")


def _write(variable: Variable, indices: Tensor, rows: Tensor, mode: str) -> None:
    new = bind(scatter_p, variable.read(), indices, rows, axis=0, mode=mode)
    variable.assign(new)
