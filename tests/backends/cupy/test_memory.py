"""Tests of arenas and pinned buffers that need no GPU."""

import numpy as np

import toolkit
from toolkit import ops
from toolkit.backends.cupy.lowering import Numerics
from toolkit.backends.cupy.memory import PinnedRing
from toolkit.backends.cupy.program import operands_of
from toolkit.plans.locations import NodeOperands


class Event:
    """Done when the device gets to it."""

    pending: list = []

    def __init__(self):
        self.done = True

    def record(self, stream):
        self.done = False
        Event.pending.append(self)

    def synchronize(self):
        while not self.done:
            stream_step(Event.stream)
            self.done = True

    stream: list = []


def stream_step(stream):
    for pinned, target in stream:
        target[...] = pinned
    stream.clear()


def test_pinned_buffer_is_reused_after_its_copy():
    events, stream = [], []
    Event.stream = stream

    def allocate(nbytes):
        events.append(np.zeros(nbytes, np.uint8))
        return events[-1]

    ring = PinnedRing(allocate, Event)
    arrays = [np.full(5, i, "float32") for i in range(6)]
    targets = [np.zeros(20, np.uint8) for _ in arrays]
    for array, target in zip(arrays, targets, strict=True):
        ring.upload(array, lambda p, t=target: stream.append((p, t)), None)
        array += 100.0  # the caller's again at once
    stream_step(stream)
    for i, target in enumerate(targets):
        np.testing.assert_array_equal(target.view("float32"), np.full(5, i, "float32"))
    assert len(events) == 2


def test_live_buffers_do_not_overlap_and_outputs_are_written(on_host):
    @toolkit.function
    def f(x, w):
        y = ops.tanh(ops.matmul(x, w))
        z = ops.sum(ops.exp(y), axis=0)
        return ops.matmul(y, ops.transpose(w)) + ops.sum(z), z

    with toolkit.device("gpu:0"):
        program = f.get_concrete_function(ops.ones((6, 5)), ops.ones((5, 5))).program
    buffers = program.plan.distinct
    assert buffers
    for i, a in enumerate(buffers):
        assert a.offset % 64 == 0
        assert a.offset + a.nbytes <= program.plan.nbytes
        for b in buffers[i + 1 :]:
            is_disjoint = (
                a.offset + a.extent <= b.offset or b.offset + b.extent <= a.offset
            )
            assert is_disjoint or a.last < b.first or b.last < a.first
    values = [NodeOperands(n.inputs, n.outputs, None) for n in program.graph.nodes]
    written = {
        values[i].of(name)
        for i, node in enumerate(program.lowered)
        if node is not None
        for step in node.steps
        for name in operands_of(step, node.inputs)
        if name[0] == "out"
    }
    assert set(program.graph.outputs) <= written
    assert program.backend.generator.numerics == Numerics()


def test_rows_that_are_not_aligned_are_copied(on_host):
    """Kernels of a program load several elements at a time."""
    memory, x = on_host.memory, np.arange(15, dtype="float32").reshape(5, 3)
    array = memory.asarray(x)
    rows = memory.as_row_major(array[1:])
    assert memory.address(rows) % 16 == 0
    np.testing.assert_array_equal(memory.to_numpy(rows), x[1:])
    assert memory.as_row_major(array) is array
