"""The sum of the tasks' partial results."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter


def emit_total(dtype: str, lanes: int) -> Kernel:
    """Emit a function that adds up the results of tasks. Rows are elements.

    The table holds the results, the total, the number of results, and the elements from
    one result to the next.
    """
    builder = Kernel(lanes)
    at = ConvolutionWriter(builder, dtype)
    partials, total = at.address(0), at.address(1)
    count, pitch = at.b.entry(2), at.b.entry(3)
    with builder.loop(builder.low, builder.high, lanes) as element:
        live = at.b.first_lanes(builder.high - element, "int64")
        partial = partials + element
        zero = builder.constant(0.0, Value("", dtype, lanes))
        with builder.accumulate(0, count, 1, [zero]) as iteration:
            address = partial + iteration.index * pitch
            value = at.b.load(address, 0, dtype, live)
            iteration.next([builder.binary("fadd", iteration.values[0], value)])
        at.b.store(iteration.values[0], total, element, live)
    return builder


def emit_transposed_total(dtype: str, lanes: int) -> Kernel:
    """Emit the same function for results whose outputs are outside the inputs.

    The numbers of outputs and of inputs follow in the table.
    """
    builder = Kernel(lanes)
    at = ConvolutionWriter(builder, dtype)
    partials, total = at.address(0), at.address(1)
    count, pitch, outputs, inputs = (at.b.entry(i) for i in range(2, 6))
    with builder.loop(builder.low, builder.high) as element:
        output = element % outputs
        quotient = element // outputs
        tap, channel = quotient // inputs, quotient % inputs
        source = (tap * outputs + output) * inputs + channel
        partial = partials + source
        zero = builder.constant(0.0, Value("", dtype))
        with builder.accumulate(0, count, 1, [zero]) as iteration:
            value = at.b.scalar(partial + iteration.index * pitch, dtype)
            iteration.next([builder.binary("fadd", iteration.values[0], value)])
        (result,) = iteration.values
        address = total + element
        builder.emit(f"store {result.type} {result.text}, ptr {address}")
    return builder
