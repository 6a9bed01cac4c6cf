"""Shapes of an imported graph's outputs: it is run on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.core.tensor import Tensor
from toolkit.core.trace import Trace
from toolkit.errors import LoadBudgetError, ToolkitError
from toolkit.ir import Spec
from toolkit.thread_state import restored

Shape = tuple[int | None, ...]
# Extents for unknown axes, those of the batch and all others, two times: what differs
# between the two runs is unknown. Images must be large enough for all windows, steps
# few enough for tables of positions; so there are several to try.
_EXTENTS = (
    *(((1, 32), (3, 48)), ((1, 224), (3, 256)), ((1, 8), (3, 12))),
    *(((1, 640), (3, 768)), ((1, 2), (3, 3)), ((1, 32), (1, 48)), ((1, 1), (1, 2))),
)
_MOST_RUN = 20_000  # nodes, for extents that may not fit


def infer_outputs(
    run: Callable[[list[Tensor], bool], Sequence[Tensor]],
    inputs: Sequence[Any],
    nodes: int,
) -> list[tuple[Shape, str]]:
    """Shape and dtype of each output.

    Args:
        run: (tensors without data, whether the extents are small) -> outputs.
        inputs: the shape, None where an extent is unknown, and the dtype of each.
        nodes: how many are run: graphs of very many are not tried often.
    """
    unknown = any(n is None for shape, _ in inputs for n in shape)
    tries = _EXTENTS[: max(1, min(len(_EXTENTS), _MOST_RUN // max(nodes, 1)))]
    first_error: ToolkitError | None = None
    for small, large in tries if unknown else tries[:1]:
        try:
            found = _specs(run, inputs, small, True)
            again = _specs(run, inputs, large, False) if unknown else found
        except LoadBudgetError:
            raise
        except ToolkitError as error:
            first_error = first_error or error
            continue
        if all(len(a.shape) == len(b.shape) for a, b in zip(found, again, strict=True)):
            return [_merged(a, b) for a, b in zip(found, again, strict=True)]
    assert first_error is not None
    raise first_error


def _specs(
    run: Callable[[list[Tensor], bool], Sequence[Tensor]],
    inputs: Sequence[Any],
    extents: tuple[int, int],
    is_small: bool,
) -> list[Spec]:
    with restored(), Trace("shape inference") as trace:
        tensors = []
        for shape, dtype in inputs:
            filled = [
                extents[axis > 0] if n is None else n for axis, n in enumerate(shape)
            ]
            tensors.append(trace.placeholder(Spec(filled, dtype)))
        return [y.spec for y in run(tensors, is_small)]


def _merged(a: Spec, b: Spec) -> tuple[Shape, str]:
    return merged(a.shape, b.shape), a.dtype


def merged(a: Sequence[int], b: Sequence[int]) -> Shape:
    """The extents that two shapes of a value share, None where they differ."""
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))
