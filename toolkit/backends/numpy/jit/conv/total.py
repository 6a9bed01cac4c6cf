"""The sum of the tasks' partial results."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.conv.writer import Writer


def emit_total(dtype: str, lanes: int) -> Builder:
    """A function that adds up the results of tasks; rows are elements.

    The table holds the results, the total, and two numbers: how many results there are,
    and the elements between them.
    """
    builder = Builder(lanes)
    at = Writer(builder, dtype)
    parts, total = at.entry(0, "ptr"), at.entry(1, "ptr")
    count, pitch = at.entry(2, "i64"), at.entry(3, "i64")
    with builder.loop("%lo", "%hi", lanes) as element:
        live = at.first_lanes(at.integer("sub", "%hi", element))
        part = at.move(parts, element)
        zero = builder.constant(0.0, Value("", dtype, lanes))
        with builder.accumulate("0", count, 1, [zero]) as turn:
            place = at.move(part, turn.index, pitch)
            value = at.memory.load(place, "0", dtype, live)
            turn.next([builder.binary("fadd", turn.values[0], value)])
        at.memory.store(turn.values[0], total, element, live)
    return builder


def emit_turned_total(dtype: str, lanes: int) -> Builder:
    """The same for results with the outputs outside the inputs.

    Two more numbers say how many outputs and inputs there are.
    """
    builder = Builder(lanes)
    at = Writer(builder, dtype)
    parts, total = at.entry(0, "ptr"), at.entry(1, "ptr")
    count, pitch, outputs, inputs = (at.entry(i, "i64") for i in range(2, 6))
    with builder.loop("%lo", "%hi") as element:
        output = at.integer("srem", element, outputs)
        rest = at.integer("sdiv", element, outputs)
        tap, channel = (
            at.integer("sdiv", rest, inputs),
            at.integer("srem", rest, inputs),
        )
        source = at.affine(at.affine(tap, outputs, output), inputs, channel)
        part = at.move(parts, source)
        zero = builder.constant(0.0, Value("", dtype))
        with builder.accumulate("0", count, 1, [zero]) as turn:
            value = at.memory.scalar(at.move(part, turn.index, pitch), dtype)
            turn.next([builder.binary("fadd", turn.values[0], value)])
        (result,) = turn.values
        place = at.move(total, element)
        builder.emit(f"store {result.type} {result.text}, ptr {place}")
    return builder
