"""The roofline of the host: peak arithmetic and memory traffic per second.

Both are measured once, on all threads together, on first use.
"""

from __future__ import annotations

import ctypes
from functools import cache
from time import perf_counter

from toolkit import settings
from toolkit.backends.numpy.jit.calls import Call, Lowered
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.backends.numpy.jit.program import NativeProgram
from toolkit.plans.operands import OperandMemory

# Enough independent multiply-adds to fill the pipelines of common processors.
_CHAINS = 12
_ITERATIONS = 100_000
_BYTES = 1 << 26
_REPEATS = 5


@cache
def peaks() -> tuple[float, float]:
    """Return the float32 operations and the bytes per second of all threads."""
    threads = settings.num_threads()
    lanes = Processor.host().lanes
    flops = 2 * _CHAINS * lanes * _ITERATIONS * threads
    arithmetic = Call(
        Code(_emit_products, lanes), (("out", 0),), (), threads, flops=flops
    )
    copied = 2 * 4 * lanes * (_BYTES // (4 * lanes) // threads) * threads
    copy = Call(
        Code(_emit_copies, lanes),
        (("in", 0), ("out", 0)),
        (_BYTES // (4 * lanes) // threads,),
        threads,
        nbytes=copied,
    )
    return flops / _fastest(arithmetic), copied / _fastest(copy)


def _fastest(call: Call) -> float:
    blocks = {kind: (ctypes.c_char * _BYTES)() for kind in ("in", "out")}
    program = NativeProgram(
        [Lowered((call,))], lambda *_: OperandMemory(0, _BYTES, False)
    )
    runner = program.bind(
        lambda _, operand: (None, ctypes.addressof(blocks[operand[0]])),
        (ctypes.c_int64 * 1)(),
    )
    times = []
    for _ in range(_REPEATS):
        start = perf_counter()
        runner.run()
        times.append(perf_counter() - start)
    return min(times)


def _emit_products(lanes: int) -> Kernel:
    """Emit independent chains of fused multiply-adds in registers, for each row."""
    b = Kernel(lanes)
    target = b.address(0)
    zero = b.filled(0.0, "float32")
    factor = b.constant(0.5, zero)
    with b.loop(b.low, b.high) as row:
        with b.accumulate(0, _ITERATIONS, 1, [zero] * _CHAINS) as iteration:
            iteration.next(
                [b.intrinsic("fma", v, factor, factor) for v in iteration.values]
            )
        total = iteration.values[0]
        for value in iteration.values[1:]:
            total = b.binary("fadd", total, value)
        b.store(total, target, row * lanes, None)
    return b


def _emit_copies(lanes: int) -> Kernel:
    """Emit a copy of a contiguous block of memory, for each row."""
    b = Kernel(lanes)
    source, target, count = b.address(0), b.address(1), b.entry(2)
    with b.loop(b.low, b.high) as row:
        first = row * count
        with b.loop(0, count) as k:
            index = (first + k) * lanes
            b.store(b.load(source, index, "float32", None), target, index, None)
    return b
