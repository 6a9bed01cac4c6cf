"""Tests of collectives that overlap the backward pass: equal bits, equal order."""

import threading
import time

import numpy as np
import pytest

from tests.compiler.sharding.test_steps import (
    LEAVES,
    NETWORKS,
    concrete_of,
    digest,
    step_of,
)
from tests.compiler.sharding.virtual import Split, local_graph, shard_of
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local, overlap
from toolkit.comm.slow_link import SlowGroup
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.errors import ArgumentError, RankLostError
from toolkit.ir import Kind


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    """Networks of a few kilobytes have several."""
    monkeypatch.setattr(overlap, "_MIN_BUCKET", 1 << 10)


class RecordedGroup(SlowGroup):
    """Slow link that records its users and the amount of data."""

    def __init__(self, group, latency=0.0, bandwidth=1e12):
        super().__init__(group, latency, bandwidth)
        self.threads, self.sizes = [], []

    def _delay(self, sent, received):
        self.threads.append(threading.current_thread().name)
        self.sizes.append(sent)
        super()._delay(sent, received)


def program_of(graph, group, updates=()):
    layouts = [Split(0)] * 2 + [None] * (len(graph.inputs) - 2)
    axis = MeshAxis("batch", group, LEAVES, even=False)
    target = Target(get_backend("numpy"), updates=updates, rows_independent=True)
    return compile_program(local_graph(graph, axis, layouts), target), axis


def local_arrays_of(arrays, axis):
    return [shard_of(a, Split(0), axis) for a in arrays[:2]] + list(arrays[2:])


def run_two_steps(graph, arrays, ranks, wrap):
    """Return the results of two steps, the program and the group of each rank."""

    def compute(group):
        group = wrap(group)
        program, axis = program_of(graph, group)
        step, local_arrays = Executable(program), local_arrays_of(arrays, axis)
        digests = [digest([np.array(y) for y in step(local_arrays)]) for _ in range(2)]
        return digests, program, group

    return local.run(ranks, compute)


def start_segments(program):
    """Index of each collective -> the segment before which it starts."""
    return {i: s for s in program.segments for i in s.starts}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [3, 13, 16])
@pytest.mark.one_in(12)
def test_overlap_changes_no_bits(name, rows):
    graph, arrays, _ = step_of(name, rows)
    plain = run_two_steps(graph, arrays, 1, lambda group: group)[0][0]
    for ranks in (2, 3, 4):
        for digests, program, group in run_two_steps(
            graph, arrays, ranks, RecordedGroup
        ):
            assert digests == plain
            assert start_segments(program)
            assert set(group.threads) == {"toolkit exchange"}


@pytest.mark.parametrize("name, minimum", [("mlp", 2), ("transformer", 3)])
def test_sums_start_before_the_backward_pass_ends(name, minimum):
    graph, arrays, _ = step_of(name, 8)
    for _, program, _ in run_two_steps(graph, arrays, 2, RecordedGroup):
        start_of = start_segments(program)
        sums = [
            i for i, n in enumerate(program.graph.nodes) if n.op.name == "all_reduce"
        ]
        assert len(sums) >= minimum and set(sums) == set(start_of)
        computing = [s for s in program.segments if s.code or s.members[0] in sums]
        wait_indices = [i for i, s in enumerate(computing) if s.members[0] in sums]
        # All waits are consecutive, and one segment with the updates follows.
        assert wait_indices == list(range(wait_indices[0], wait_indices[0] + len(sums)))
        assert wait_indices[-1] == len(computing) - 2
        first_members = [min(start_of[i].members) for i in sums]
        assert (
            first_members == sorted(first_members)
            and first_members[0] < first_members[-1] <= sums[0]
        )


def test_exchanged_buffers_live_until_the_wait():
    graph, arrays, _ = step_of("transformer", 8)
    (_, program, _), _ = run_two_steps(graph, arrays, 2, RecordedGroup)
    plan, nodes = program.plan, program.graph.nodes
    for i, segment in start_segments(program).items():
        wait_step = next(s.start for s in program.segments if list(s.members) == [i])
        roots = [program.layouts[v].root for v in (*nodes[i].inputs, *nodes[i].outputs)]
        buffers = [plan.buffers[v] for v in roots if v in plan.buffers]
        assert buffers
        for buffer in buffers:
            assert buffer.first <= segment.start and buffer.last >= wait_step


def test_all_ranks_have_one_order_of_collectives():
    for rows in (1, 2, 3, 7):
        graph, arrays, _ = step_of("transformer", rows)
        results = run_two_steps(graph, arrays, 4, RecordedGroup)
        orders = [
            [
                [tuple(y.spec.shape for y in n.outputs), n.attrs.get("ready")]
                for n in program.graph.nodes
                if n.op.kind is Kind.COLLECTIVE
            ]
            for _, program, _ in results
        ]
        assert orders[1:] == orders[:-1]
        assert len({tuple(digests) for digests, _, _ in results}) == 1


class LostGroup(RecordedGroup):
    """A link over which a rank is lost at the second message."""

    def all_to_all(self, *arguments):
        super().all_to_all(*arguments)
        if len(self.sizes) == 2:
            raise RankLostError("rank 1 is lost")


def test_failed_collective_is_raised_and_changes_no_variable():
    pytest.importorskip("llvmlite")
    concrete, arrays = concrete_of("mlp", 8)
    input_of = {id(v): 2 + i for i, v in enumerate(concrete.variables)}
    updated_inputs = [input_of.get(id(v)) for v in concrete.written_variables]
    updates = [
        (concrete.num_outputs + i, number) for i, number in enumerate(updated_inputs)
    ]

    def compute(group):
        program, axis = program_of(concrete.graph, LostGroup(group), updates)
        assert program.in_place
        local_arrays = local_arrays_of(arrays, axis)
        variables = [np.array(a) for a in local_arrays[2:]]
        specs = [y.spec for y in program.graph.outputs[concrete.num_outputs :]]
        pairs = zip(updated_inputs, specs, strict=True)
        destinations = [
            np.empty(s.shape, s.dtype) if n is None else variables[n - 2]
            for n, s in pairs
        ]
        step = Executable(program)
        for _ in range(2):  # queued collectives fail, too, and the next step
            with pytest.raises(RankLostError, match="rank 1 is lost"):
                step.update(local_arrays[:2], [*variables, *destinations])
        assert digest(variables) == digest(arrays[2:])
        return True

    assert local.run(2, compute) == [True, True]


class GatedGroup(RecordedGroup):
    """Link that is slower than the concurrent computation of a rank."""

    def __init__(self, group):
        super().__init__(group)
        self.gate = threading.Event()
        self.gate.set()

    def all_to_all(self, *arguments):
        assert self.gate.wait(30)
        super().all_to_all(*arguments)


def test_computation_continues_while_a_link_is_slow():
    graph, arrays, _ = step_of("mlp", 16)

    def compute(group):
        link = GatedGroup(group)
        program, axis = program_of(graph, link)
        step, local_arrays = Executable(program), local_arrays_of(arrays, axis)
        expected = digest([np.array(y) for y in step(local_arrays)])
        bound = step._borrow()
        names = [
            getattr(step_function, "__name__", "") for step_function in bound.steps
        ]
        # The first message arrives after the computation of the next part of the step.
        bound.steps.insert(names.index("start") + 2, link.gate.set)
        assert names[names.index("start") + 1] == "run"
        link.gate.clear()
        outputs = bound.run(local_arrays, None)
        return digest([np.array(y) for y in outputs]) == expected

    assert local.run(2, compute) == [True, True]


def test_events_have_the_times_of_collectives():
    graph, arrays, _ = step_of("mlp", 16)

    def compute(group):
        program, axis = program_of(graph, RecordedGroup(group, 0.02))
        events = []
        bound = Executable(program)._borrow()
        bound.run(local_arrays_of(arrays, axis), None, events)
        exchanges = [e for e in events if e.thread == -1]
        kinds = {bound.timed_units[e.unit].nodes[0].op.kind for e in exchanges}
        assert kinds == {Kind.COLLECTIVE}
        return all(e.end - e.start > 0.01 for e in exchanges)

    assert local.run(2, compute) == [True, True]


def test_bucket_size_depends_on_the_link():
    group = local.single()
    assert overlap.bucket_bytes(group) == (1 << 20, 25 << 20)
    slow_group = SlowGroup(group, 1e-3, 100e6)
    assert overlap.bucket_bytes(slow_group) == (1_000_000, 1_000_000)
    assert overlap.bucket_bytes(SlowGroup(group, 1, 1e9)) == (25 << 20, 25 << 20)


def test_overlap_can_be_forced(monkeypatch):
    def overlaps_of(group):
        return [overlap.can_overlap(g) for g in (group, SlowGroup(group, 0, 1e9))]

    assert local.run(2, overlaps_of) == [[False, True]] * 2
    assert local.run(1, overlaps_of) == [[False, False]]
    monkeypatch.setenv("TOOLKIT_OVERLAP", "on")
    assert local.run(2, overlaps_of) == [[True, True]] * 2
    monkeypatch.setenv("TOOLKIT_OVERLAP", "off")
    assert local.run(2, overlaps_of) == [[False, False]] * 2
    monkeypatch.setenv("TOOLKIT_OVERLAP", "maybe")
    with pytest.raises(ArgumentError, match="TOOLKIT_OVERLAP.*'maybe'"):
        overlap.can_overlap(local.single())


def test_a_thread_ends_with_its_group():
    before = threading.active_count()
    background = overlap.BackgroundThread()
    order = []
    handles = [background.start(lambda i=i: order.append(i)) for i in range(5)]
    for handle in handles:
        handle.wait()
    assert order == [0, 1, 2, 3, 4] and threading.active_count() == before + 1
    del background
    limit = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threading.active_count() == before
