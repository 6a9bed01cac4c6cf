"""Gradients of look-ups: tensors that are zero but for the rows that were read.

Such a tensor is one like any other, and beside that it knows the rows. If only those
are used, its value is not computed: in a trace its node is pruned, and eagerly it is
made when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toolkit.core.tensor import Tensor, state
from toolkit.ir import Spec


class IndexedSlices(NamedTuple):
    """Slices along the first axis of a tensor, which is their sum.

    Attributes:
        indices: integers of any shape, (...); one may come up more than once.
        values: (..., *the tensor's shape without its first axis).
    """

    indices: Tensor
    values: Tensor


# Outside of every scope: what is computed later is not told of those of that moment.
_NOWHERE: dict[str, Any] = {
    **dict.fromkeys(("trace", "overlay", "device", "dialect")),
    "tapes": (),
    "marks": False,
}


class _Unmade(Tensor):
    """A tensor with data that are computed when they are first asked for."""

    __slots__ = ("_make", "_made")

    def __init__(self, spec: Spec, make: Callable[[], Tensor]) -> None:
        self._make: Callable[[], Tensor] | None = make
        self._made: Any = None
        self._dtype, self._spec, self._scope = spec.dtype, spec, None

    @property
    def _array(self) -> Any:
        make = self._make
        if make is not None:
            with state.inside(**_NOWHERE):
                self._made = make()._array
            self._make = None
        return self._made

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    def __reduce__(self) -> Any:
        return Tensor, (self.numpy().copy(),)


def sum_of_slices(
    spec: Spec, slices: tuple[IndexedSlices, ...], make: Callable[[], Tensor]
) -> Tensor:
    """What `make` computes, the sum of `slices`: a tensor that knows them.

    Args:
        spec: of the tensor.
        slices: what it is the sum of.
        make: computes it. It is called at once where it has to be recorded, or to be
            told of the scopes that it is computed in.
    """
    recorded = state.trace is not None or state.tapes or state.marks
    tensor = make() if recorded else _Unmade(spec, make)
    tensor._slices = slices
    return tensor


def slices_of(tensor: Any) -> tuple[IndexedSlices, ...]:
    """The slices that a tensor knows to be the sum of; none if it knows of none."""
    found: tuple[IndexedSlices, ...] = getattr(tensor, "_slices", ())
    return found


def added(a: Tensor, b: Tensor) -> Tensor:
    """a + b, which knows its slices if both do."""
    slices = slices_of(a), slices_of(b)
    if not all(slices):
        return a + b
    return sum_of_slices(a.spec, slices[0] + slices[1], lambda: a + b)


def scaled(tensor: Tensor, scale: Callable[[Tensor], Tensor]) -> Tensor:
    """`scale(tensor)` of a linear function of elements, which knows its slices, too."""
    slices = slices_of(tensor)
    if not slices:
        return scale(tensor)
    parts = tuple(IndexedSlices(s.indices, scale(s.values)) for s in slices)
    spec = tensor.spec.with_dtype(parts[0].values.dtype)
    return sum_of_slices(spec, parts, lambda: scale(tensor))
