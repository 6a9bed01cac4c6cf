"""Updates of some rows of a Variable: those that a look-up has read.

`rows_of` turns the gradient of a look-up into rows, each of which it holds once;
`update_parts` computes the update of these rows alone. Where an update adds a multiple
of the gradient, the term of each look-up is added to its row instead, whatever others
there are. The number of rows is that of the look-ups, whatever their indices, so that
shapes in a compiled step are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.slices import IndexedSlices, slices_of
from toolkit.core.tensor import Tensor, bind
from toolkit.core.variable import Variable
from toolkit.ops.index import scatter_p

if TYPE_CHECKING:
    from toolkit.optimizers.optimizer import Optimizer

# Sorting and moving a row costs about what updating so many in their order does.
_COST = 4

# Of Variables of these, terms can be added one by one: in fewer bits, many small ones
# would be lost beside a large weight.
_PRECISE = ("float32", "float64")

Method = TypeVar("Method", bound=Callable[..., Any])


def by_rows(
    when: Callable[[Any], bool] = lambda optimizer: True, additive: bool = False
) -> Callable[[Method], Method]:
    """Mark a method of an optimizer that may be given only the rows of a gradient.

    Of `update`: it leaves all as it is where the gradient is zero. A method that
    overrides it is marked again, or given whole gradients.

    Args:
        when: tells of an optimizer whether it is so.
        additive: whether `update` adds to the parameter a multiple of the gradient, and
            remembers nothing.
    """

    def mark(method: Method) -> Method:
        method.by_rows = when  # type: ignore[attr-defined]
        method.additive = additive  # type: ignore[attr-defined]
        return method

    return mark


def _may_go_by_rows(optimizer: Optimizer, name: str) -> bool:
    when = getattr(getattr(type(optimizer), name), "by_rows", None)
    return when is not None and bool(when(optimizer))


def in_rows(
    optimizer: Optimizer, gradients: Iterable[Tensor], variables: Iterable[Variable]
) -> list[Any]:
    """The gradients; as `Rows` or slices where no other rows than theirs change."""
    pairs = zip(gradients, variables, strict=True)
    return [
        _parts_of(optimizer, g, v) if _goes_by_rows(optimizer, g, v) else g
        for g, v in pairs
    ]


def _parts_of(optimizer: Optimizer, gradient: Tensor, variable: Variable) -> Any:
    """The one slice of a gradient if its terms may be added one by one; else rows."""
    slices = slices_of(gradient)
    update: Any = type(optimizer).update
    if (
        len(slices) == 1
        and getattr(update, "additive", False)
        and variable.dtype in _PRECISE
        and not _clips(optimizer)
    ):
        return slices[0]
    return rows_of(gradient)


def _goes_by_rows(optimizer: Optimizer, gradient: Tensor, variable: Variable) -> bool:
    """Whether only the rows that a gradient knows of are updated.

    Where that changes no result, it is a question of cost: not if all of the variable
    changes anyway, nor if it is spread over processes, which have parts of it.
    """
    slices = slices_of(gradient)
    if not slices or not _may_go_by_rows(optimizer, "update_step"):
        return False
    if optimizer.lazy:
        return True
    decays = optimizer._weight_decay_of(variable)
    is_whole = (
        (decays is not None and optimizer._use_weight_decay(variable))
        or variable.constraint is not None
        or optimizer.gradient_accumulation_steps is not None
        or Variable._placement_of is not None
    )
    if is_whole:
        return False
    lookups = sum(s.indices.size for s in slices)
    cheaper = lookups * _COST <= gradient.shape[0]
    return cheaper and _may_go_by_rows(optimizer, "update")


def _clips(optimizer: Optimizer) -> bool:
    """Whether gradients are changed in ways that depend on the sum of a row's terms."""
    limits = optimizer.clipnorm, optimizer.clipvalue, optimizer.global_clipnorm
    return any(limit is not None for limit in limits)


class Rows(NamedTuple):
    """A gradient that is zero but for some rows, n look-ups of which were made.

    Attributes:
        indices: (n,), those of the look-ups, so that a step need not read the rows of a
            variable a second time. One may come up more than once.
        values: (n, ...); the gradient of each row in one place, zeros in all others. So
            norms are those of the gradient.
        places: (n,) where the gradient of each look-up's row is in `values`.
    """

    indices: Tensor
    values: Tensor
    places: Tensor


# What `in_rows` returns instead of a whole gradient.
PARTS = (Rows, IndexedSlices)


def rows_of(gradient: Tensor) -> Rows:
    """The rows of a gradient that knows its slices.

    Gradients of one row are added in the order of the look-ups.
    """
    slices, (extent, *rest) = slices_of(gradient), gradient.shape
    indices = _joined([ops.reshape(s.indices, (-1,)) for s in slices])
    values = [ops.reshape(s.values, (s.indices.size, *rest)) for s in slices]
    numbers = ops.where(indices < 0, indices + extent, indices)
    places = ops.searchsorted(ops.sort(numbers), numbers)
    blank = ops.zeros((indices.size, *rest), gradient.dtype)
    total = bind(scatter_p, blank, places, _joined(values), axis=0, mode="add")
    return Rows(indices, total, places)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else ops.concatenate(parts)


def on_values(change: Callable[[list[Tensor]], list[Tensor]], grads: list[Any]) -> Any:
    """Gradients after a change of their elements and norms that keeps zeros."""
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
    """Let `update` change the rows of a variable and of what is remembered of it."""
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
    """A row that was looked up several times is computed as often.

    It is stored once more with the same bits.
    """

    def read(v: Variable) -> Tensor:
        return ops.take(v.read(), rows.indices, axis=0)

    gradient = convert(ops.take(rows.values, rows.places, axis=0), variable.dtype)
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
    """What an additive update makes of zero is what it adds to any parameter."""
    gradient = convert(slices.values, variable.dtype)
    terms, _ = update(gradient, ops.zeros_like(gradient), {}, *scalars)
    _write(variable, slices.indices, terms, "add")


def _write(variable: Variable, indices: Tensor, rows: Tensor, mode: str) -> None:
    new = bind(scatter_p, variable.read(), indices, rows, axis=0, mode=mode)
    variable.assign(new)
