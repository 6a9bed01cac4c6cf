"""Gradients of lookups: tensors that are zero except in the rows that were read.

Such a tensor behaves like any other, and also stores its slices. If only the slices are
used, its value is not computed: in a trace its node is pruned, and in eager mode it is
computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toolkit.core.tensor import Tensor, state
from toolkit.ir import Spec
from toolkit.type_aliases import TensorLike


class IndexedSlices(NamedTuple):
    """Slices along the first axis of a tensor; the tensor is their sum.

    Attributes:
        indices: integers of any shape, (...); an index may occur more than once.
        values: (..., *the tensor's shape without its first axis).
    """

    indices: Tensor
    values: Tensor


# Outside of every scope: a deferred computation does not see the scopes of its
# creation.
_NO_SCOPES: dict[str, Any] = {
    **dict.fromkeys(("trace", "overlay", "device", "dialect")),
    "tapes": (),
    "marks": False,
}


class _LazyTensor(Tensor):
    """A tensor whose data is computed on first use."""

    __slots__ = ("_make", "_cached")

    def __init__(self, spec: Spec, make: Callable[[], Tensor]) -> None:
        self._make: Callable[[], Tensor] | None = make
        self._cached: Any = None
        self._dtype, self._spec, self._scope = spec.dtype, spec, None

    @property
    def _array(self) -> Any:
        make = self._make
        if make is not None:
            with state.override(**_NO_SCOPES):
                self._cached = make()._array
            self._make = None
        return self._cached

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    def __reduce__(self) -> Any:
        return Tensor, (self.numpy().copy(),)


def sum_of_slices(
    spec: Spec, slices: tuple[IndexedSlices, ...], make: Callable[[], Tensor]
) -> Tensor:
    """Return a tensor with these slices, and with the value that `make` computes.

    Args:
        spec: spec of the tensor.
        slices: the slices whose sum it is.
        make: computes the sum. It is called at once if the operation must be recorded,
            or if the result must be marked with its scopes.
    """
    recorded = state.trace is not None or state.tapes or state.marks
    tensor = make() if recorded else _LazyTensor(spec, make)
    tensor._slices = slices
    return tensor


def slices_of(tensor: TensorLike) -> tuple[IndexedSlices, ...]:
    """Return the slices whose sum a tensor is, or none if it stores none."""
    slices: tuple[IndexedSlices, ...] = getattr(tensor, "_slices", ())
    return slices


def add_slices(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b, with slices if both have them."""
    slices = slices_of(a), slices_of(b)
    if not all(slices):
        return a + b
    return sum_of_slices(a.spec, slices[0] + slices[1], lambda: a + b)


def scale_slices(tensor: Tensor, scale: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `scale(tensor)` of an elementwise linear function, with scaled slices."""
    slices = slices_of(tensor)
    if not slices:
        return scale(tensor)
    scaled = tuple(IndexedSlices(s.indices, scale(s.values)) for s in slices)
    spec = tensor.spec.with_dtype(scaled[0].values.dtype)
    return sum_of_slices(spec, scaled, lambda: scale(tensor))
