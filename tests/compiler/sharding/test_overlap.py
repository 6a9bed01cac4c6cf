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
from tests.compiler.sharding.virtual import Split, local_graph, part_of
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


class Recorded(SlowGroup):
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


def parts_of(arrays, axis):
    return [part_of(a, Split(0), axis) for a in arrays[:2]] + list(arrays[2:])


def results(graph, arrays, ranks, wrapped):
    """Return the results of two steps, the program and the group of each rank."""

    def compute(group):
        group = wrapped(group)
        program, axis = program_of(graph, group)
        step, local_arrays = Executable(program), parts_of(arrays, axis)
        digests = [digest([np.array(y) for y in step(local_arrays)]) for _ in range(2)]
        return digests, program, group

    return local.run(ranks, compute)


def collectives(program):
    """Index of each collective -> the segment before which it starts."""
    return {i: s for s in program.segments for i in s.starts}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [3, 13, 16])
@pytest.mark.one_in(12)
def test_bits_are_those_without_overlap(name, rows):
    graph, arrays, _ = step_of(name, rows)
    plain = results(graph, arrays, 1, lambda group: group)[0][0]
    for ranks in (2, 3, 4):
        for digests, program, group in results(graph, arrays, ranks, Recorded):
            assert digests == plain
            assert collectives(program)
            assert set(group.threads) == {"toolkit exchange"}


@pytest.mark.parametrize("name, least", [("mlp", 2), ("transformer", 3)])
def test_sums_start_before_the_backward_pass_ends(name, least):
    graph, arrays, _ = step_of(name, 8)
    for _, program, _ in results(graph, arrays, 2, Recorded):
        early = collectives(program)
        sums = [
            i for i, n in enumerate(program.graph.nodes) if n.op.name == "all_reduce"
        ]
        assert len(sums) >= least and set(sums) == set(early)
        computing = [s for s in program.segments if s.code or s.members[0] in sums]
        waits = [i for i, s in enumerate(computing) if s.members[0] in sums]
        # All waits are consecutive, and one segment with the updates follows.
        assert waits == list(range(waits[0], waits[0] + len(sums)))
        assert waits[-1] == len(computing) - 2
        begins = [min(early[i].members) for i in sums]
        assert begins == sorted(begins) and begins[0] < begins[-1] <= sums[0]


def test_what_is_exchanged_stays_in_memory_meanwhile():
    graph, arrays, _ = step_of("transformer", 8)
    (_, program, _), _ = results(graph, arrays, 2, Recorded)
    plan, nodes = program.plan, program.graph.nodes
    for i, segment in collectives(program).items():
        waited = next(s.start for s in program.segments if list(s.members) == [i])
        roots = [program.layouts[v].root for v in (*nodes[i].inputs, *nodes[i].outputs)]
        buffers = [plan.buffers[v] for v in roots if v in plan.buffers]
        assert buffers
        for buffer in buffers:
            assert buffer.first <= segment.start and buffer.last >= waited


def test_a_rank_orders_collectives_as_others_do_whatever_rows_it_has():
    for rows in (1, 2, 3, 7):
        graph, arrays, _ = step_of("transformer", rows)
        rank_results = results(graph, arrays, 4, Recorded)
        orders = [
            [
                [tuple(y.spec.shape for y in n.outputs), n.attrs.get("ready")]
                for n in program.graph.nodes
                if n.op.kind is Kind.COLLECTIVE
            ]
            for _, program, _ in rank_results
        ]
        assert orders[1:] == orders[:-1]
        assert len({tuple(digests) for digests, _, _ in rank_results}) == 1


class Lost(Recorded):
    """A link over which a rank is lost at the second message."""

    def all_to_all(self, *arguments):
        super().all_to_all(*arguments)
        if len(self.sizes) == 2:
            raise RankLostError("rank 1 is lost")


def test_what_fails_beside_a_step_is_raised_and_changes_nothing():
    pytest.importorskip("llvmlite")
    concrete, arrays = concrete_of("mlp", 8)
    number_of = {id(v): 2 + i for i, v in enumerate(concrete.variables)}
    updated_inputs = [number_of.get(id(v)) for v in concrete.written]
    updates = [
        (concrete.fetched + i, number) for i, number in enumerate(updated_inputs)
    ]

    def compute(group):
        program, axis = program_of(concrete.graph, Lost(group), updates)
        assert program.in_place
        local_arrays = parts_of(arrays, axis)
        variables = [np.array(a) for a in local_arrays[2:]]
        specs = [y.spec for y in program.graph.outputs[concrete.fetched :]]
        pairs = zip(updated_inputs, specs, strict=True)
        written = [
            np.empty(s.shape, s.dtype) if n is None else variables[n - 2]
            for n, s in pairs
        ]
        step = Executable(program)
        for _ in range(2):  # queued collectives fail, too, and the next step
            with pytest.raises(RankLostError, match="rank 1 is lost"):
                step.update(local_arrays[:2], [*variables, *written])
        assert digest(variables) == digest(arrays[2:])
        return True

    assert local.run(2, compute) == [True, True]


class Gated(Recorded):
    """Link that is slower than the concurrent computation of a rank."""

    def __init__(self, group):
        super().__init__(group)
        self.gate = threading.Event()
        self.gate.set()

    def all_to_all(self, *arguments):
        assert self.gate.wait(30)
        super().all_to_all(*arguments)


def test_computing_goes_on_while_a_link_is_slow():
    graph, arrays, _ = step_of("mlp", 16)

    def compute(group):
        link = Gated(group)
        program, axis = program_of(graph, link)
        step, local_arrays = Executable(program), parts_of(arrays, axis)
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


def test_times_tell_when_a_collective_ran():
    graph, arrays, _ = step_of("mlp", 16)

    def compute(group):
        program, axis = program_of(graph, Recorded(group, 0.02))
        events = []
        bound = Executable(program)._borrow()
        bound.run(parts_of(arrays, axis), None, events)
        sent = [e for e in events if e.thread == -1]
        kinds = {bound.timed_units[e.unit].nodes[0].op.kind for e in sent}
        assert kinds == {Kind.COLLECTIVE}
        return all(e.end - e.start > 0.01 for e in sent)

    assert local.run(2, compute) == [True, True]


def test_the_link_tells_how_much_goes_together():
    group = local.single()
    assert overlap.bucket_bytes(group) == (1 << 20, 25 << 20)
    slow = SlowGroup(group, 1e-3, 100e6)
    assert overlap.bucket_bytes(slow) == (1_000_000, 1_000_000)
    assert overlap.bucket_bytes(SlowGroup(group, 1, 1e9)) == (25 << 20, 25 << 20)


def test_overlap_can_be_forced(monkeypatch):
    def of(group):
        return [overlap.overlaps(g) for g in (group, SlowGroup(group, 0, 1e9))]

    assert local.run(2, of) == [[False, True]] * 2
    assert local.run(1, of) == [[False, False]]
    monkeypatch.setenv("TOOLKIT_OVERLAP", "on")
    assert local.run(2, of) == [[True, True]] * 2
    monkeypatch.setenv("TOOLKIT_OVERLAP", "off")
    assert local.run(2, of) == [[False, False]] * 2
    monkeypatch.setenv("TOOLKIT_OVERLAP", "maybe")
    with pytest.raises(ArgumentError, match="TOOLKIT_OVERLAP.*'maybe'"):
        overlap.overlaps(local.single())


def test_a_thread_ends_with_its_group():
    before = threading.active_count()
    background = overlap.Background()
    order = []
    pending = [background.start(lambda i=i: order.append(i)) for i in range(5)]
    for handle in pending:
        handle.wait()
    assert order == [0, 1, 2, 3, 4] and threading.active_count() == before + 1
    del background
    limit = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threading.active_count() == before
