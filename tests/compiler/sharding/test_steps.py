"""Whole training steps on virtual ranks: near to one process, and the same bits."""

import hashlib

import numpy as np
import pytest

import toolkit
from tests.compiler.sharding.virtual import Split, local_graph, shard_of
from tests.helpers import concrete_function
from toolkit import layers, ops
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.layouts import MeshAxis
from toolkit.compiler.sharding.programs import ShardedExecutable
from toolkit.errors import RankLostError
from toolkit.inspection import inspect_program
from toolkit.ir import Kind

LEAVES = 4


def mlp():
    return toolkit.Sequential(
        [
            layers.Dense(24, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(16, activation="gelu"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def cnn():
    return toolkit.Sequential(
        [
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ]
    )


def lstm():
    return toolkit.Sequential(
        [
            layers.Embedding(50, 12),
            layers.LSTM(10),
            layers.Dense(5, activation="softmax"),
        ]
    )


def transformer():
    tokens = toolkit.Input((6,), dtype="int32")
    x = layers.Embedding(50, 16)(tokens)
    x = x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(x)
    x = layers.GlobalAveragePooling1D()(x)
    return toolkit.Model(tokens, layers.Dense(5, activation="softmax")(x))


def average():
    return toolkit.Sequential(
        [
            layers.Embedding(50, 12),
            layers.GlobalAveragePooling1D(),
            layers.Dense(5, activation="softmax"),
        ]
    )


def images(random, count):
    return random.random((count, 8, 8, 3), "float32")


def vectors(random, count):
    return random.random((count, 12), "float32")


def tokens(random, count):
    return random.integers(0, 50, (count, 6)).astype("int32")


NETWORKS = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, images),
    "lstm": (lstm, tokens),
    "transformer": (transformer, tokens),
}
ROW_UPDATES = {"by rows": (average, tokens)}


def step_of(name, rows):
    """The graph of a training step, its arrays, and the names of its results."""
    concrete, arrays = concrete_of(name, rows)
    names = [v.path for v in concrete.written_variables]
    return concrete.graph, arrays, ["logs"] * concrete.num_outputs + names


def concrete_of(name, rows):
    """The function of a training step, and its arrays."""
    build, make = (NETWORKS | ROW_UPDATES)[name]
    toolkit.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = build()
    x = make(random, rows)
    y = random.integers(0, 5, rows).astype("int32")
    options = {"metrics": ["accuracy"], "jit_compile": True}
    optimizer = "lazyadam" if name in ROW_UPDATES else "adam"
    model.compile(optimizer, "sparse_categorical_crossentropy", **options)
    model.train_on_batch(x, y)
    batch = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    concrete, arrays = concrete_function(model.make_train_function(), batch)
    arrays += [np.array(v) for v in concrete.variables]
    return concrete, arrays


def compiled(graph, arrays):
    target = Target(get_backend("numpy"), rows_independent=True)
    program = compile_program(graph, target)
    return [np.array(y) for y in Executable(program)(arrays)]


def run_on_ranks(graph, arrays, ranks):
    """Return the results of each rank, and the number of its collectives."""
    layouts = [Split(0)] * 2 + [None] * (len(arrays) - 2)

    def compute(group):
        axis = MeshAxis("batch", group, LEAVES, even=False)
        local = local_graph(graph, axis, layouts)
        local_arrays = [
            shard_of(*pair, axis) for pair in zip(arrays, layouts, strict=True)
        ]
        return compiled(local, local_arrays), [
            node.op.name for node in local.nodes if node.op.kind is Kind.COLLECTIVE
        ]

    return local.run(ranks, compute)


def digest(arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("name", NETWORKS)
def test_sharded_step_is_close_to_one_process(name):
    graph, arrays, names = step_of(name, 8)
    expected = compiled(graph, arrays)
    for outputs, _ in run_on_ranks(graph, arrays, 3):
        for path, y, result in zip(names, expected, outputs, strict=True):
            # The gradient of a key's bias is noise, which Adam scales to a full step.
            if (
                y.dtype.kind == "f"
                and "key/bias" not in path
                and "key_bias" not in path
            ):
                scale = float(np.abs(y).max(initial=1e-6))
                assert np.abs(y - result).max(initial=0) <= 1e-4 * scale, path


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [3, 8, 13, 16])
@pytest.mark.one_in(4)
def test_bits_do_not_depend_on_the_number_of_ranks(name, rows):
    graph, arrays, _ = step_of(name, rows)
    digests = {
        digest(outputs)
        for ranks in (1, 2, 3, 4)
        for outputs, _ in run_on_ranks(graph, arrays, ranks)
    }
    assert len(digests) == 1


def test_bits_of_row_updates_do_not_depend_on_the_number_of_ranks():
    graph, arrays, _ = step_of("by rows", 13)
    expected = compiled(graph, arrays)
    (one_rank, *_), (three_ranks, *_) = (
        run_on_ranks(graph, arrays, ranks) for ranks in (1, 3)
    )
    assert digest(one_rank[0]) == digest(three_ranks[0])
    for y, result in zip(expected, one_rank[0], strict=True):
        np.testing.assert_allclose(result, y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name, count", [("mlp", 1), ("lstm", 1), ("transformer", 1)])
def test_all_sums_of_a_step_are_one_collective(name, count):
    graph, arrays, _ = step_of(name, 8)
    for _, collectives in run_on_ranks(graph, arrays, 2):
        assert collectives == ["all_reduce"] * count


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.one_in(4)
def test_batches_that_leave_ranks_without_rows(name, rows):
    graph, arrays, names = step_of(name, rows)
    expected = compiled(graph, arrays)
    results = [outputs for outputs, _ in run_on_ranks(graph, arrays, 4)]
    assert len(set(map(digest, results))) == 1
    for path, y, result in zip(names, expected, results[0], strict=True):
        if y.dtype.kind == "f":
            np.testing.assert_allclose(result, y, 1e-3, 1e-5, err_msg=path)


def test_sharded_fit_is_reproducible_and_close_to_plain_fit():
    def trained(shards):
        toolkit.utils.set_random_seed(1)
        random = np.random.default_rng(0)
        x, y = vectors(random, 50), random.integers(0, 5, 50)
        model = mlp()
        model.compile("sgd", "sparse_categorical_crossentropy")
        parallel = toolkit.distribution.DataParallel(shards=shards)
        with parallel.scope():
            model.fit(x, y, batch_size=16, epochs=2, verbose=0)
            return [*map(np.array, model.variables), model.predict(x, verbose=0)]

    sharded, repeated, plain = trained(4), trained(4), trained(1)
    assert digest(sharded) == digest(repeated) != digest(plain)
    for a, b in zip(sharded, plain, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


class Failing:
    """A group that has lost a rank."""

    rank, size, is_remote = 0, 2, True

    def all_to_all(self, *arguments):
        raise RankLostError("rank 1 is lost")


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_variables_are_updated_in_place_after_all_collectives(name):
    pytest.importorskip("llvmlite")
    concrete, arrays = concrete_of(name, 8)
    first = concrete.num_outputs
    input_of = {id(v): 2 + i for i, v in enumerate(concrete.variables)}
    updated_inputs = [input_of.get(id(v)) for v in concrete.written_variables]
    updates = [(first + i, number) for i, number in enumerate(updated_inputs)]
    layouts = [Split(0)] * 2 + [None] * (len(arrays) - 2)

    def compute(group):
        def program_on(group):
            axis = MeshAxis("batch", group, LEAVES, even=False)
            local = local_graph(concrete.graph, axis, layouts)
            options = {"updates": updates, "rows_independent": True}
            target = Target(get_backend("numpy"), **options)
            return axis, Executable(compile_program(local, target))

        axis, step = program_on(group)
        assert step.program.in_place
        local_arrays = [shard_of(*p, axis) for p in zip(arrays, layouts, strict=True)]
        expected = [np.array(y) for y in step(local_arrays)[first:]]
        variables = [np.array(a) for a in local_arrays[2:]]
        destinations = [
            np.empty_like(y) if n is None else variables[n - 2]
            for n, y in zip(updated_inputs, expected, strict=True)
        ]
        if group.rank == 0:
            _, failing_step = program_on(Failing())
            before = [a.tobytes() for a in variables]
            with pytest.raises(RankLostError):
                failing_step.update(local_arrays[:2], [*variables, *destinations])
            assert [a.tobytes() for a in variables] == before
        unfinished_step = ShardedExecutable(step.program, [], Failing().all_to_all)
        before = [a.tobytes() for a in variables]
        with pytest.raises(RankLostError):
            unfinished_step.update(local_arrays[:2], [*variables, *destinations])
        assert [a.tobytes() for a in variables] == before
        step.update(local_arrays[:2], [*variables, *destinations])
        return [a.tobytes() for a in destinations] == [a.tobytes() for a in expected]

    assert local.run(2, compute) == [True, True]


def test_inspection_shows_exchanged_values_with_their_layers():
    graph, arrays, _ = step_of("cnn", 8)
    layouts = [Split(0)] * 2 + [None] * (len(arrays) - 2)

    def inspect_text(group):
        axis = MeshAxis("batch", group, LEAVES, even=False)
        program = compile_program(
            local_graph(graph, axis, layouts), Target(get_backend("numpy"))
        )
        text = str(inspect_program("step", program, ()))
        return text[text.index("exchanged:") : text.index("arena:")]

    for text in local.run(2, inspect_text):
        rows = text.strip().splitlines()[2:]
        assert len(rows) == 4  # mean, variance, and for their gradients; then the rest
        assert "/batch_normalization" in rows[0]
        assert all("batch" in row and "all_reduce" in row for row in rows)
