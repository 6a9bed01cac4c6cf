"""Tests of sums in a fixed order: the same bits on any number of virtual ranks."""

import math
from functools import reduce

import numpy as np
import pytest

from toolkit import dtypes
from toolkit.comm import (
    Leaves,
    all_reduce,
    local,
    ordered,
    reduce_scatter,
    shared,
    shared_reduction,
)
from toolkit.comm.ordered import prepare_all_reduce
from toolkit.errors import ArgumentError, DTypeError, ShapeError


@pytest.fixture(params=["memory", "messages"], autouse=True)
def topology(request, monkeypatch):
    """Return the ranks of one machine, or of several machines without shared memory."""
    if request.param == "messages":
        monkeypatch.setattr(shared, "memory_of", lambda group: None)


def leaf(index, shape, dtype):
    """Return numbers whose sum depends on the order of additions."""
    draws = np.random.default_rng(100 + index)
    if dtype == "bool":
        return draws.integers(0, 2, shape).astype(bool)
    if dtypes.is_integer(dtype):
        return draws.integers(0, 100, shape).astype(dtype)
    values = draws.standard_normal(shape) * 10.0 ** (index % 3)
    return values.astype(dtypes.numpy_dtype(dtype))


def expected_tree(first, size, leaves, get, combine):
    """Combine halves recursively and skip absent ones, as the definition says."""
    if size == 1:
        return get(first) if first in leaves.present else None
    left_sum = expected_tree(first, size // 2, leaves, get, combine)
    right = expected_tree(first + size // 2, size // 2, leaves, get, combine)
    if left_sum is None or right is None:
        return right if left_sum is None else left_sum
    return combine(left_sum, right)


def add_rounded(x, y):
    """Add in float32 if the dtype is smaller, and round."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return (x.astype(np.float32) + y.astype(np.float32)).astype(x.dtype)
    return x + y


def split_leaves(group, leaves, get, combine):
    return [
        expected_tree(first, size, leaves, get, combine)
        for first, size in leaves.pieces(group.rank, group.size)
    ]


def reduce_ranks(ranks, leaves, shape, dtype, op="sum"):
    """Return the result of each rank."""
    combine = add_rounded if op == "sum" else ordered.OPERATIONS[op]

    def of(group):
        leaves_of_rank = split_leaves(
            group, leaves, lambda i: leaf(i, shape, dtype), combine
        )
        out = np.empty(shape, dtypes.numpy_dtype(dtype))
        all_reduce(group, [leaves_of_rank], leaves, [out], op)
        return out

    return local.run(ranks, of)


def expected(leaves, shape, dtype, op="sum"):
    combine = add_rounded if op == "sum" else ordered.OPERATIONS[op]
    return expected_tree(
        0, leaves.span, leaves, lambda i: leaf(i, shape, dtype), combine
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("count", [4, 6, 8, 16])
def test_bits_match_one_rank(count, dtype):
    leaves = Leaves.of_rows(count, count)
    for size in (7, 5003):
        bits = expected(leaves, (size,), dtype).tobytes()
        for ranks in range(1, 9):
            for rank, result in enumerate(reduce_ranks(ranks, leaves, (size,), dtype)):
                assert result.tobytes() == bits, (size, ranks, rank)


def test_order_changes_the_test_sums():
    terms = [leaf(i, (5003,), "float32") for i in range(8)]
    plain = reduce(np.add, terms)
    assert (
        plain.tobytes() != expected(Leaves.of_rows(8, 8), (5003,), "float32").tobytes()
    )


@pytest.mark.parametrize("present", [(), (3,), (0, 7), (1, 2, 5), (4, 5, 6, 7)])
@pytest.mark.parametrize("direct", [0, 1 << 20])
def test_absent_leaves_are_skipped(monkeypatch, present, direct):
    monkeypatch.setattr(shared_reduction, "_MAX_DIRECT_SIZE", direct)
    leaves = Leaves(8, present)
    for size in (3, 4001):
        result = expected(leaves, (size,), "float32")
        bits = np.zeros(size, np.float32) if result is None else result
        for ranks in (1, 2, 3, 5, 8):
            for total in reduce_ranks(ranks, leaves, (size,), "float32"):
                assert total.tobytes() == bits.tobytes(), (size, ranks)


@pytest.mark.parametrize("op", ["max", "min", "prod", "any", "all"])
def test_other_combinations(op):
    dtype = "bool" if op in ("any", "all") else "float32"
    leaves = Leaves.of_rows(8, 8)
    for size in (5, 9001):
        bits = expected(leaves, (size,), dtype, op).tobytes()
        for ranks in (1, 3, 4):
            for total in reduce_ranks(ranks, leaves, (size,), dtype, op):
                assert total.tobytes() == bits


def test_a_negative_zero_is_not_lost():
    leaves = Leaves(4, (2,))

    def of(group):
        leaves_of_rank = [np.full(3, -0.0, np.float32)] * len(
            leaves.pieces(group.rank, 2)
        )
        out = np.empty(3, np.float32)
        all_reduce(group, [leaves_of_rank], leaves, [out])
        return out

    assert all(np.signbit(out).all() for out in local.run(2, of))


@pytest.mark.parametrize("small, direct", [(0, 1 << 20), (1 << 15, 1 << 20), (0, 0)])
def test_several_tensors_and_dtypes_at_once(monkeypatch, small, direct):
    monkeypatch.setattr(shared_reduction, "_MIN_SEGMENT_SIZE", small)
    monkeypatch.setattr(shared_reduction, "_MAX_DIRECT_SIZE", direct)
    shapes = [((3, 5), "float32"), ((), "int64"), ((0,), "float32")]
    shapes += [((70, 80), "float32"), ((2, 2), "bfloat16"), ((), "bfloat16")]
    leaves = Leaves.of_rows(8, 8)

    def of(group):
        pieces = [
            split_leaves(group, leaves, lambda i, s=s, d=d: leaf(i, s, d), add_rounded)
            for s, d in shapes
        ]
        outs = [np.empty(s, dtypes.numpy_dtype(d)) for s, d in shapes]
        all_reduce(group, pieces, leaves, outs)
        return outs

    bits = [np.asarray(expected(leaves, s, d)).tobytes() for s, d in shapes]
    for ranks in (1, 2, 3, 4):
        for outs in local.run(ranks, of):
            assert [out.tobytes() for out in outs] == bits


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_bits_do_not_depend_on_the_algorithm(monkeypatch, limit):
    monkeypatch.setattr(ordered, "_MAX_DIRECT_SIZE", limit)
    monkeypatch.setattr(shared_reduction, "_MAX_DIRECT_SIZE", limit)
    for count, size in ((4, 3), (6, 5003), (16, 70_001)):
        leaves = Leaves.of_rows(count, count)
        bits = expected(leaves, (size,), "float32").tobytes()
        for ranks in (2, 3, 4, 7):
            bits_of_algorithms = {
                out.tobytes() for out in reduce_ranks(ranks, leaves, (size,), "float32")
            }
            assert bits_of_algorithms == {bits}, (count, size, ranks)


def test_large_tensors_are_sent_in_chunks(monkeypatch):
    monkeypatch.setattr(ordered, "ROUND_SIZE", 1 << 10)
    monkeypatch.setattr(ordered, "_MAX_DIRECT_SIZE", 1 << 10)
    monkeypatch.setattr(ordered, "_rounds", ordered._rounds.__wrapped__)
    monkeypatch.setattr(shared, "SLOT_SIZE", 1 << 10)
    monkeypatch.setattr(shared_reduction, "_MAX_DIRECT_SIZE", 1 << 10)
    leaves = Leaves.of_rows(8, 8)
    bits = expected(leaves, (20011,), "float32").tobytes()
    for ranks in (2, 3, 4):
        for total in reduce_ranks(ranks, leaves, (20011,), "float32"):
            assert total.tobytes() == bits


def test_result_may_overwrite_an_operand():
    leaves = Leaves.of_rows(4, 4)
    for size in (10, 300_000):
        bits = expected(leaves, (size,), "float32").tobytes()

        def of(group, size=size):
            get = lambda i: leaf(i, (size,), "float32")  # noqa: E731
            leaves_of_rank = split_leaves(group, leaves, get, add_rounded)
            all_reduce(group, [leaves_of_rank], leaves, [leaves_of_rank[-1]])
            return leaves_of_rank[-1]

        for ranks in (1, 2, 3, 4):
            assert {out.tobytes() for out in local.run(ranks, of)} == {bits}


@pytest.mark.parametrize("slot", [1 << 10, 1 << 20])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_reduce_scatter_returns_the_shard_of_each_rank(monkeypatch, ranks, slot):
    monkeypatch.setattr(shared, "SLOT_SIZE", slot)
    leaves = Leaves.of_rows(8, 8)
    shape = (12, 50)

    def of(group):
        get = lambda i: leaf(i, shape, "float32")  # noqa: E731
        out = np.empty((12 // ranks, 50), np.float32)
        reduce_scatter(
            group, split_leaves(group, leaves, get, add_rounded), leaves, out
        )
        return out

    shards = local.run(ranks, of)
    assert (
        np.concatenate(shards).tobytes() == expected(leaves, shape, "float32").tobytes()
    )


def test_a_rank_sends_few_pieces():
    for count in (4, 8, 16):
        leaves = Leaves.of_rows(count, count)
        for ranks in range(1, count + 1):
            pieces = [leaves.pieces(rank, ranks) for rank in range(ranks)]
            for rank in range(ranks):
                covered = [i for f, n in pieces[rank] for i in range(f, f + n)]
                assert covered == list(leaves.range_of_rank(rank, ranks))
            if ranks & (ranks - 1) == 0:
                assert {len(pieces_of_rank) for pieces_of_rank in pieces} == {1}
    assert sum(len(Leaves.of_rows(16, 16).pieces(r, 3)) for r in range(3)) == 7


def test_ranks_without_leaves_have_no_pieces():
    leaves = Leaves.of_rows(2, 2)
    assert [leaves.pieces(r, 4) for r in range(4)] == [[], [(0, 1)], [], [(1, 1)]]
    for size in (5, 9001):
        bits = expected(leaves, (size,), "float32").tobytes()
        assert {
            out.tobytes() for out in reduce_ranks(4, leaves, (size,), "float32")
        } == {bits}


def test_leaves_of_few_rows():
    for rows in range(6):
        leaves = Leaves.of_rows(rows, 4)
        assert len(leaves.present) == min(rows, 4)


def test_overflow_does_not_warn():
    leaves = Leaves.of_rows(2, 2)
    largest = np.full(4, np.finfo(np.float32).max, np.float32)

    def of(group):
        out = np.empty(4, np.float32)
        all_reduce(group, [[largest]], leaves, [out])
        return out

    assert all(math.isinf(out[0]) for out in local.run(2, of))


@pytest.mark.parametrize(
    "pieces, out, op, error, words",
    [
        ([], np.zeros(3), "sum", ArgumentError, "expected 1 pieces"),
        ([np.zeros(2)], np.zeros(3), "sum", ShapeError, r"\(3,\).*received \(2,\)"),
        ([np.zeros(3)], np.zeros(3, "f"), "sum", DTypeError, "float32.*float64"),
        ([np.zeros(6)[::2]], np.zeros(3), "sum", ArgumentError, "contiguous"),
        ([np.zeros(3)], np.zeros(3), "mean", ArgumentError, "'mean'"),
    ],
)
def test_mismatched_arguments_are_refused(pieces, out, op, error, words):
    with pytest.raises(error, match=words):
        all_reduce(local.single(), [pieces], Leaves(1, (0,)), [out], op)


def test_maximum_of_zero_leaves_is_refused():
    with pytest.raises(ArgumentError, match="max"):
        all_reduce(local.single(), [[]], Leaves(2, ()), [np.zeros(3)], "max")


@pytest.mark.parametrize("size", [7, 5003, 400_000])
def test_a_sum_is_prepared_once_and_called_again(size):
    leaves = Leaves.of_rows(4, 4)

    def of(group):
        count = len(leaves.pieces(group.rank, group.size))
        pieces, out = np.empty((count, size), "f"), np.empty(size, "f")
        prepared = prepare_all_reduce(group, [list(pieces)], leaves, [out])
        sums = []
        for iteration in range(5):
            pieces[:] = iteration + 1
            for run in prepared:
                run()
            sums.append(set(out.tolist()))
        return sums, count

    for ranks in (1, 2, 3):
        results = local.run(ranks, of)
        total = sum(count for _, count in results)
        for sums_of_rank, _ in results:
            assert sums_of_rank == [
                {float(total * iteration)} for iteration in range(1, 6)
            ]
