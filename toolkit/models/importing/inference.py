"""Shape inference of imported graphs: they run on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.core.tensor import Tensor
from toolkit.core.trace import Trace
from toolkit.errors import LoadBudgetError, ToolkitError
from toolkit.ir import Spec
from toolkit.reading.onnx.graph import ValueInfo
from toolkit.thread_state import restore_on_error

Shape = tuple[int | None, ...]
Run = Callable[[list[Tensor], bool], Sequence[Tensor | None]]
# Extents for unknown axes (batch axes and all others), in two variants: an extent that
# differs between the two runs is unknown. Images must be large enough for all windows,
# steps few enough for position tables; so there are several pairs to try.
_EXTENTS = (
    *(((1, 32), (3, 48)), ((1, 224), (3, 256)), ((1, 8), (3, 12))),
    *(((1, 640), (3, 768)), ((1, 2), (3, 3)), ((1, 32), (1, 48)), ((1, 1), (1, 2))),
)
_MOST_RUN = 20_000  # nodes, if extents can be unsuitable


def infer_outputs(
    run: Run, inputs: Sequence[Any], nodes: int
) -> list[tuple[Shape, str] | None]:
    """Return shape and dtype of each output; None if its shape depends on values.

    Args:
        run: (tensors without data, whether the extents are small) -> outputs.
        inputs: the shape and the dtype of each. An unknown extent is None, or a name:
            extents with one name are equal.
        nodes: the number of nodes: large graphs get fewer attempts.
    """
    unknown = any(not isinstance(n, int) for shape, _ in inputs for n in shape)
    tries = _EXTENTS[: max(1, min(len(_EXTENTS), _MOST_RUN // max(nodes, 1)))]
    first_error: ToolkitError | None = None
    for small, large in tries if unknown else tries[:1]:
        try:
            specs = _specs(run, inputs, small, True)
            second_specs = _specs(run, inputs, large, False) if unknown else specs
        except LoadBudgetError:
            raise
        except ToolkitError as error:
            first_error = first_error or error
            continue
        pairs = list(zip(specs, second_specs, strict=True))
        if all(len(a.shape) == len(b.shape) for a, b in pairs if a and b):
            return [_merged(a, b) if a and b else None for a, b in pairs]
    assert first_error is not None
    raise first_error


def _specs(
    run: Run, inputs: Sequence[Any], extents: tuple[int, int], is_small: bool
) -> list[Spec | None]:
    with restore_on_error(), Trace("shape inference") as trace:
        shapes = filled_shapes([shape for shape, _ in inputs], extents)
        specs = [Spec(shape, x[1]) for shape, x in zip(shapes, inputs, strict=True)]
        tensors = [trace.placeholder(spec) for spec in specs]
        return [None if y is None else y.spec for y in run(tensors, is_small)]


def filled_shapes(
    shapes: Sequence[Sequence[int | str | None]], extents: tuple[int, int]
) -> list[tuple[int, ...]]:
    """Return shapes with sizes for the unknown extents.

    Args:
        shapes: shapes in which an unknown extent is None or a name. A name can be a
            sum, such as "past + 1".
        extents: the batch size, for first axes, and the size of all other axes.
    """
    sizes: dict[str, int] = {}
    for shape in shapes:
        for axis, n in enumerate(shape):
            for term in _terms(n) if isinstance(n, str) else ():
                # A name of a batch axis in one input means the batch in all of them.
                is_batch = axis == 0 and term == n
                size = extents[0] if is_batch else sizes.get(term, extents[1])
                sizes[term] = size

    def extent(n: int | str | None, axis: int) -> int:
        if isinstance(n, str):
            return sum(int(t) if _is_number(t) else sizes[t] for t in _terms(n))
        return extents[axis > 0] if n is None else n

    return [tuple(extent(n, axis) for axis, n in enumerate(shape)) for shape in shapes]


def _terms(name: str) -> list[str]:
    """Return the terms of a sum; another name is a single term."""
    terms = [term.strip() for term in name.split("+")]
    is_sum = all(terms) and not all(map(_is_number, terms))
    return terms if is_sum else [name]


def _is_number(term: str) -> bool:
    return term.isascii() and term.isdecimal() and len(term) < 9


def with_names(infos: Sequence[ValueInfo], inputs: Sequence[Any]) -> list[Any]:
    """Return shapes and dtypes in which unknown extents have their names in the file.

    Args:
        infos: the inputs of the file.
        inputs: the shape and the dtype of each.
    """
    pairs = list(zip(infos, inputs, strict=True))
    sizes: dict[Any, Any] = {
        name: n
        for info, (shape, _) in pairs
        for name, n in zip(info.shape or (), shape, strict=True)
        if isinstance(name, str) and n is not None
    }

    def named(info: ValueInfo, shape: Shape) -> tuple[Any, ...]:
        axes = zip(info.shape or (), shape, strict=True)
        return tuple(sizes.get(name, name) if n is None else n for name, n in axes)

    return [(named(info, shape), dtype) for info, (shape, dtype) in pairs]


def _merged(a: Spec, b: Spec) -> tuple[Shape, str]:
    return merged(a.shape, b.shape), a.dtype


def merged(a: Sequence[int], b: Sequence[int]) -> Shape:
    """Return the common extents of two shapes, None where they differ."""
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))
