"""Tests of plans of tree sums between devices, run on arrays of the host."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.comm.test_ordered import (
    add_rounded,
    expected_tree,
    leaf,
    reduce_ranks,
    split_leaves,
)
from toolkit import dtypes
from toolkit.comm import Leaves, ordered
from toolkit.comm.sum_plans import (
    MAX_DIRECT_SIZE,
    AllGather,
    Combine,
    Location,
    Term,
    Transfer,
    plan_all_reduce,
    plan_reduce_scatter,
)
from toolkit.errors import ArgumentError


class Rank:
    """The memory of a rank, as bytes."""

    def __init__(self, rank, ranks, terms, outs):
        self.rank, self.size = rank, ranks
        self.buffers = {"piece": [], "scratch": [], "out": []}
        for number, term in enumerate(terms):
            combine = combination(term)
            leaves_of_rank = split_leaves(
                self, term.leaves, getter(number, term), combine
            )
            self.buffers["piece"] += [as_bytes(piece) for piece in leaves_of_rank]
            kind = dtypes.numpy_dtype(term.dtype)
            self.buffers["out"].append(as_bytes(np.zeros(outs(term), kind)))

    def at(self, span, nbytes):
        buffer = self.buffers[span.kind][span.number]
        assert span.offset >= 0
        assert span.offset + nbytes <= buffer.size
        return buffer[span.offset : span.offset + nbytes]


def as_bytes(array):
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def getter(number, term):
    return lambda i: leaf(1000 * number + i, (term.size,), term.dtype)


def combination(term):
    return add_rounded if term.op == "sum" else ordered.OPERATIONS[term.op]


def run(plans, ranks):
    """Run the plans of all ranks step by step; each send must have a receive."""
    for plan, rank in zip(plans, ranks, strict=True):
        rank.buffers["scratch"] = [np.zeros(plan.scratch, np.uint8)]
    for steps in zip(*(plan.steps for plan in plans), strict=True):
        kinds = {type(step) for step in steps}
        assert len(kinds) == 1, "ranks would wait for each other"
        if kinds == {Transfer}:
            transfer(steps, ranks)
        for step, rank in zip(steps, ranks, strict=True):
            if isinstance(step, Combine):
                combine(step, rank)
            elif isinstance(step, AllGather):
                for span, buffer_span, nbytes in step.gathers:
                    room = rank.at(buffer_span, nbytes * len(ranks))
                    assert span.offset == buffer_span.offset + rank.rank * nbytes
                    for other in ranks:
                        start = other.rank * nbytes
                        sent = next(
                            s for s in steps[other.rank].gathers if s[1] == buffer_span
                        )
                        room[start : start + nbytes] = other.at(sent.shard, nbytes)


def transfer(steps, ranks):
    sent = {}
    for step, rank in zip(steps, ranks, strict=True):
        for peer, span, nbytes in step.sends:
            content = rank.at(span, nbytes).copy()
            sent.setdefault((rank.rank, peer), []).append(content)
    for step, rank in zip(steps, ranks, strict=True):
        for peer, span, nbytes in step.receives:
            content = sent[peer, rank.rank].pop(0)
            assert content.size == nbytes
            rank.at(span, nbytes)[:] = content
    assert not any(sent.values())


def combine(step, rank):
    kind = dtypes.numpy_dtype(step.dtype)
    nbytes = step.size * kind.itemsize

    def value(node):
        if isinstance(node, tuple):
            return combination(step)(*map(value, node))
        if node < len(step.local_pieces):
            return rank.at(step.local_pieces[node], nbytes).view(kind)
        number = node - len(step.local_pieces)
        span = step.received._replace(
            offset=step.received.offset + number * step.stride
        )
        return rank.at(span, nbytes).view(kind)

    result = np.asarray(value(step.tree), kind)
    rank.at(step.target, nbytes)[:] = as_bytes(result)


def expected(number, term):
    get = getter(number, term)
    return expected_tree(0, term.leaves.span, term.leaves, get, combination(term))


def check(ranks, terms):
    memory = [Rank(r, ranks, terms, lambda term: term.size) for r in range(ranks)]
    plans = [plan_all_reduce(r, ranks, terms) for r in range(ranks)]
    run(plans, memory)
    for number, term in enumerate(terms):
        expected_bytes = as_bytes(expected(number, term)).tobytes()
        for rank in memory:
            assert rank.buffers["out"][number].tobytes() == expected_bytes
    return plans


leaves_of = st.builds(Leaves.of_rows, rows=st.integers(1, 40), count=st.integers(1, 17))
terms_of = st.builds(
    Term,
    st.sampled_from([0, 1, 7, 2048, 2049, 6000, 24000]),
    st.sampled_from(["float32", "bfloat16", "int32"]),
    leaves_of,
    st.sampled_from(["sum", "max"]),
)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.lists(terms_of, min_size=1, max_size=3))
def test_all_ranks_have_the_bits_of_the_tree(ranks, terms):
    check(ranks, terms)


def test_bits_match_host_sums():
    leaves = Leaves.of_rows(11, 6)
    term = Term(5000, "float16", leaves)
    ranks = [Rank(r, 3, [term], lambda t: t.size) for r in range(3)]
    run([plan_all_reduce(r, 3, [term]) for r in range(3)], ranks)
    (first, *_) = reduce_ranks(3, leaves, (5000,), "float16")
    assert ranks[2].buffers["out"][0].tobytes() == first.tobytes()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_keeps_its_shard(ranks):
    term = Term(6000, "float32", Leaves.of_rows(9, 4))
    memory = [Rank(r, ranks, [term], lambda t: t.size // ranks) for r in range(ranks)]
    run([plan_reduce_scatter(r, ranks, term) for r in range(ranks)], memory)
    actual = b"".join(rank.buffers["out"][0].tobytes() for rank in memory)
    assert actual == expected(0, term).tobytes()


def test_shards_can_have_different_sizes():
    term, bounds = Term(7, "float32", Leaves.of_rows(9, 4)), [(0, 1), (1, 3), (3, 7)]
    sizes = [stop - start for start, stop in bounds]
    memory = [Rank(r, 3, [term], lambda t, r=r: sizes[r]) for r in range(3)]
    run([plan_reduce_scatter(r, 3, term, bounds) for r in range(3)], memory)
    actual = b"".join(rank.buffers["out"][0].tobytes() for rank in memory)
    assert actual == expected(0, term).tobytes()


def kinds(plan):
    return [type(step).__name__ for step in plan.steps]


def test_the_order_of_calls():
    large, small = 4 * MAX_DIRECT_SIZE, MAX_DIRECT_SIZE // 4
    leaves = Leaves.of_rows(4, 4)
    plan = plan_all_reduce(0, 2, [Term(large, "float32", leaves)])
    assert kinds(plan) == ["Transfer", "Combine", "AllGather"]
    # Half of the only piece is sent, and half of the peer's is received, as in a ring.
    assert [m.nbytes for m in plan.steps[0].sends] == [2 * large]
    assert [m.nbytes for m in plan.steps[0].receives] == [2 * large]
    plan_of_both = plan_all_reduce(
        0, 2, [Term(large, "float32", leaves), Term(small, "float32", leaves)]
    )
    assert kinds(plan_of_both) == ["Transfer", "Combine", "Combine", "AllGather"]
    odd = plan_all_reduce(0, 2, [Term(large + 1, "float32", leaves)])
    assert kinds(odd) == ["Transfer", "Combine", "Transfer"]
    assert kinds(plan_all_reduce(0, 1, [Term(large, "float32", leaves)])) == ["Combine"]


def test_a_library_adds_only_floats_of_all_ranks():
    leaves = Leaves.of_rows(4, 4)
    terms = [
        Term(6, "float32", leaves),
        Term(6, "int32", leaves),
        Term(6, "float32", leaves, "max"),
    ]
    plan = plan_all_reduce(0, 2, terms, uses_library=True)
    # A tree combines the last two; the rank has one piece of each term.
    assert kinds(plan) == ["Transfer", "Combine", "Combine", "LibrarySum"]
    (term,) = plan.steps[-1].terms
    assert (term.source, term.target) == (
        Location("piece", 0, 0),
        Location("out", 0, 0),
    )
    assert kinds(plan_all_reduce(0, 1, terms[:1], True)) == ["Combine"]
    # Two pieces of a rank are combined first. Without a piece, the term is zero.
    combine, _ = plan_all_reduce(
        0, 2, [Term(6, "float32", leaves.of_rows(11, 6))], True
    ).steps
    assert len(combine.local_pieces) == 2 and combine.received is None
    combine, _ = plan_all_reduce(
        0, 2, [Term(6, "float32", leaves.of_rows(1, 4))], True
    ).steps
    assert combine.tree is None
    assert kinds(plan_reduce_scatter(0, 2, terms[0], None, True)) == ["LibrarySum"]
    bounds = [(0, 2), (2, 6)]
    assert kinds(plan_reduce_scatter(0, 2, terms[0], bounds, True)) == [
        "Transfer",
        "Combine",
    ]


def test_unsupported_combination_is_refused():
    no_leaves = Leaves(4, ())
    with pytest.raises(ArgumentError, match="no rank has rows for the max of"):
        plan_all_reduce(0, 2, [Term(4, "float32", no_leaves, "max")])
    with pytest.raises(ArgumentError, match="received 'mean'"):
        plan_all_reduce(0, 2, [Term(4, "float32", Leaves(1, (0,)), "mean")])
    with pytest.raises(
        ArgumentError, match="a number of elements that is divisible by 2; received 5"
    ):
        plan_reduce_scatter(0, 2, Term(5, "float32", Leaves(1, (0,))))
    (step,) = plan_all_reduce(0, 2, [Term(4, "float32", no_leaves)]).steps
    assert step.tree is None
