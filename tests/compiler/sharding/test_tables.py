"""Test lookups and updates of rows in shards of a table, on virtual ranks."""

import numpy as np
import pytest

from tests.compiler.sharding.test_steps import compiled, digest
from tests.compiler.sharding.test_weights import assert_near_expected, run_sharded
from tests.compiler.sharding.virtual import Split, run, run_on_ranks
from toolkit import ops, optimizers
from toolkit.autodiff.tape import GradientTape
from toolkit.core.tensor import bind
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.distribution import DataParallel
from toolkit.errors import OutOfRangeError
from toolkit.functions.decorator import function
from toolkit.ir import Kind
from toolkit.ops.index import scatter_p

ROWS, UNITS, BATCH = 400, 4, 8


def replicated(path, shape):
    return None


def shard_slots(path, shape):
    return Split(0) if shape[:1] == (ROWS,) and path != "table" else None


def shard_all(path, shape):
    return Split(0) if shape[:1] == (ROWS,) else None


@pytest.fixture(
    scope="module",
    params=[optimizers.SGD, optimizers.Adagrad, optimizers.LazyAdam, optimizers.Adam],
)
def step(request):
    """A traced step, its arrays, and the results of the whole graph."""
    random, optimizer = np.random.default_rng(0), request.param(0.1)
    table = Variable(random.normal(size=(ROWS, UNITS)), dtype="float32", name="table")
    kernel = Variable(random.normal(size=(UNITS, 2)), dtype="float32", name="kernel")
    optimizer.build([table, kernel])

    def train(ids, y):
        with GradientTape() as tape:
            rows = ops.mean(ops.take(table, ids, axis=0), axis=1)
            loss = ops.mean(ops.square(rows @ kernel - y))
        optimizer.apply(tape.gradient(loss, [table, kernel]), [table, kernel])
        return loss

    ids = random.integers(-ROWS, ROWS, (BATCH, 3)).astype("int32")
    ids[:, 0] = ids[0, 0]
    y = random.normal(size=(BATCH, 2)).astype("float32")
    with DataParallel(shards=4).scope():
        batch = map(ops.convert_to_tensor, (ids, y))
        concrete = function(train).get_concrete_function(*batch)
    arrays = [ids, y, *map(np.array, concrete.variables)]
    return concrete, arrays, compiled(concrete.graph, arrays)


@pytest.mark.parametrize("has_batch_axis", [True, False])
def test_sharded_tables_change_no_bits(step, has_batch_axis):
    digests = set()
    for rule in (replicated, shard_slots, shard_all):
        for ranks in (1, 2, 4, *([3] if has_batch_axis else [])):
            outputs, _, _ = run_sharded(step, rule, ranks, has_batch_axis)
            assert_near_expected(step, outputs)
            digests.add(digest(outputs))
    assert len(digests) == 1


def traced(function, *arrays):
    with Trace("test") as trace:
        values = [trace.placeholder(ops.convert_to_tensor(x).spec) for x in arrays]
        return trace.finish([function(*values)])


def exchanged_nbytes(graph):
    collectives = [n for n in graph.nodes if n.op.kind is Kind.COLLECTIVE]
    return sum(y.spec.nbytes for n in collectives for y in n.outputs[:-1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_lookups_in_shards_are_exact(dtype, index_dtype):
    table = np.random.default_rng(0).normal(size=(ROWS, UNITS)) * 100
    table = table.astype(dtype) * np.array(-0.0 if dtype != "int32" else 1, dtype)
    ids = np.array([[0, 399, -1], [-400, 100, 99]], index_dtype)
    graph = traced(lambda x, i: ops.take(x, i, axis=0), table, ids)
    for ranks in (2, 3):
        results = run_on_ranks(graph, [table, ids], [Split(0), None], ranks, leaves=4)
        for (rows,), local in results:
            assert rows.tobytes() == table[ids].tobytes()  # also the sign of a zero
            assert exchanged_nbytes(local) == rows.nbytes


# Ids of all shards, with duplicates; ids of one shard; no ids.
IDS = [[0, 399, -1, 5, 0, 200, 0], [399, 398, 399], [0], [], [150, -400]]


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize("ids", IDS, ids=str)
def test_updates_of_shards_are_exact(mode, ids):
    random = np.random.default_rng(0)
    table = random.normal(size=(ROWS, UNITS)).astype("float32")
    table[::50] = -0.0
    ids = np.array(ids, "int32")
    updates = random.normal(size=(len(ids), UNITS)).astype("float32")
    arrays = [table, ids, updates]

    def update(x, i, u):
        return bind(scatter_p, x, i, u, axis=0, mode=mode) * 1.0

    graph = traced(update, *arrays)
    (expected,) = run(graph, arrays)
    for ranks in (2, 4):
        layouts = [Split(0), None, None]
        for (result,), local in run_on_ranks(graph, arrays, layouts, ranks, leaves=4):
            assert result.tobytes() == expected.tobytes()
            assert exchanged_nbytes(local) == table.nbytes  # of the whole result


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1, 2**30])
def test_indices_out_of_range_are_refused(wrong):
    table = np.ones((ROWS, UNITS), "float32")
    ids = np.array([3, wrong], "int32")
    lookup = traced(lambda x, i: ops.take(x, i, axis=0), table, ids)
    with pytest.raises(OutOfRangeError, match=str(wrong)):
        run_on_ranks(lookup, [table, ids], [Split(0), None], 2, leaves=4)
    updates = np.ones((2, UNITS), "float32")
    for mode in ("set", "add"):
        update = traced(
            lambda x, i, u, mode=mode: bind(scatter_p, x, i, u, axis=0, mode=mode),
            table,
            ids,
            updates,
        )
        layouts = [Split(0), None, None]
        with pytest.raises(OutOfRangeError, match=str(wrong)):
            run_on_ranks(update, [table, ids, updates], layouts, 2, leaves=4)


def test_many_lookups_gather_the_table():
    table, ids = np.ones((ROWS, UNITS), "float32"), np.zeros(ROWS, "int32")
    graph = traced(lambda x, i: ops.take(x, i, axis=0), table, ids)
    for (rows,), local in run_on_ranks(graph, [table, ids], [Split(0), None], 2, 4):
        assert rows.shape == (ROWS, UNITS)
        assert [n.op.name for n in local.nodes] == ["all_gather", "gather"]


@pytest.mark.parametrize("mode", [None, "set", "add"])
def test_tables_that_are_sharded_by_columns_exchange_no_rows(mode):
    random = np.random.default_rng(0)
    table = random.normal(size=(ROWS, UNITS)).astype("float32")
    ids = np.array([0, 399, -1, 5, 0], "int32")
    arrays, layouts = [table, ids], [Split(1), None]
    if mode is None:
        graph = traced(lambda x, i: ops.take(x, i, axis=0), *arrays)
    else:
        arrays.append(random.normal(size=(len(ids), UNITS)).astype("float32"))
        layouts.append(None)
        graph = traced(
            lambda x, i, u: bind(scatter_p, x, i, u, axis=0, mode=mode), *arrays
        )
    (expected,) = run(graph, arrays)
    for (result,), local in run_on_ranks(graph, arrays, layouts, 2, leaves=2):
        np.testing.assert_array_equal(result, expected)
        assert exchanged_nbytes(local) == result.nbytes  # of the whole result
