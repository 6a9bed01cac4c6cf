"""Run lowered nodes on arrays, chunk by chunk, without a program."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.calls import Lowered
from toolkit.backends.numpy.jit.code import load
from toolkit.backends.numpy.jit.fused.elementwise import lower_fused
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import optimize
from toolkit.core.tensor import Tensor, backend
from toolkit.core.trace import Trace
from toolkit.ir import Graph, Spec
from toolkit.plans.operands import Operand
from toolkit.plans.rules import rules

# Bytes before and after the scratch memory, a multiple of a cache line.
_MARGIN = 4096
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)


def operand_of(array: Any) -> Operand:
    """An array as a lowering sees it."""
    return Operand(Spec(array.shape, dtypes.name_of(array.dtype)), array.strides)


def vectors_of(lanes: int) -> Any:
    """Return a context in which code is generated for vectors of `lanes` float32."""
    return rules.override(processor=Processor.host().with_lanes(lanes))


def run_lowered(
    lowered: Lowered,
    inputs: Any,
    outputs: Any,
    chunk: int = 0,
    bad: list[int] | None = None,
) -> None:
    """Run every call, each task in chunks of `chunk` rows (0: the whole task).

    Args:
        lowered, inputs, outputs: the calls, and their arrays.
        chunk: rows of a chunk.
        bad: receives the record of a bad index; None: the calls must record none.
    """
    # NaN detects reads before writes, and the margins detect writes out of bounds.
    work = np.full(lowered.work + 2 * _MARGIN + 64, 0xFF, np.uint8)
    start = -(-work.ctypes.data // 64) * 64 + _MARGIN
    error = (ctypes.c_int64 * 4)()
    addresses = {
        "error": lambda i: ctypes.addressof(error),
        "in": lambda i: inputs[i].ctypes.data,
        "out": lambda i: outputs[i].ctypes.data,
        "work": lambda i: start + i,
    }
    for call in lowered.calls:
        words = [addresses[kind](i) for kind, i in call.operands]
        words += call.numbers
        table = (ctypes.c_int64 * len(words))(*words)
        (address,) = load([call.code])
        for task in reversed(range(call.tasks)):
            low, high = task * call.grain, min((task + 1) * call.grain, call.rows)
            for begin in range(low, high, chunk or call.grain):
                end = min(begin + (chunk or call.grain), high)
                _FUNCTION(address)(table, begin, end, task)
    first = start - work.ctypes.data
    assert (work[:first] == 0xFF).all(), "a write before the scratch memory"
    end = first + lowered.work
    assert (work[end:] == 0xFF).all(), "a write after the scratch memory"
    if bad is not None:
        bad += error[:3]
    else:
        assert not error[0]


def graph_of(function: Any, *arrays: Any) -> Graph:
    """The graph of a function of arrays."""
    with Trace("test") as trace:
        inputs = [
            trace.placeholder(Spec(a.shape, dtypes.name_of(a.dtype))) for a in arrays
        ]
        outputs = function(*inputs)
    return trace.finish(outputs if isinstance(outputs, tuple) else [outputs])


def run_fused(
    function: Any, *arrays: Any, chunk: int = 0, donate: int | None = None
) -> tuple[list[Any], list[Any]]:
    """Return the outputs of `function` as one body, and of eager operations."""
    graph = optimize(graph_of(function, *arrays), Target(backend()))
    results = function(*map(Tensor, arrays))
    results = results if isinstance(results, tuple) else (results,)
    expected = [y.numpy() for y in results]
    outputs = [np.empty(v.spec.shape, v.spec.dtype) for v in graph.outputs]
    if donate is not None:
        outputs[0] = arrays[donate]
    lowered = lower_fused(
        graph, [operand_of(a) for a in arrays], [operand_of(y) for y in outputs]
    )
    assert lowered is not None
    run_lowered(lowered, arrays, outputs, chunk)
    return outputs, expected
