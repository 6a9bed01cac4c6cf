"""Adding what the slots of a product have summed, followed by the epilogue."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.backends.numpy.jit.builder import Builder
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.matmul.writer import Writer


def emit_combine(dtype: str, lanes: int, body: Described) -> Builder:
    """The function that adds partial results in the order of their slots.

    A row of the call is a row of the product. The table: the addresses of the body's
    inputs and outputs and of the partial results; columns, slots, bytes of a slot.
    """
    w = Writer(Builder(lanes), dtype)
    b, graph = w.b, body.body
    bases = [w.entry("ptr") for _ in (*graph.inputs, *graph.outputs)]
    partials = w.entry("ptr")
    columns, slots, size = (w.entry() for _ in range(3))
    epilogue = Epilogue(graph, b, bases)
    for column, mask in _vectors(w, columns):
        loaded = epilogue.columns(column, mask)
        with b.loop("%lo", "%hi") as row:
            element = w.affine(row, columns, column)
            first = w.at(partials, element, w.itemsize)
            with b.accumulate("1", slots, 1, [w.vector(first, mask)]) as turn:
                place = w.at(first, turn.index, size)
                turn.next([b.binary("fadd", turn.values[0], w.vector(place, mask))])
            epilogue.apply(turn.values[0], element, column, mask, loaded)
    return b


def _vectors(w: Writer, columns: str) -> Iterator[tuple[str, str | None]]:
    """Columns, a vector at a time; the last ones under a mask."""
    b = w.b
    whole = b.integer("and", columns, -b.lanes)
    with b.loop("0", whole, b.lanes) as column:
        yield column, None
    with b.loop(whole, columns, b.lanes) as column:
        yield column, w.mask(b.integer("sub", columns, column))
