"""Steps cut into stages, on virtual ranks: near to one program, and the same bits."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import concrete_function
from toolkit import layers, ops
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.layouts import Split
from toolkit.compiler.sharding.micro_batches import micro_batches
from toolkit.compiler.sharding.pipelines import Move, pipeline
from toolkit.compiler.sharding.staged import StagedExecutable, put_rows, rows_of
from toolkit.compiler.sharding.stages import Stages
from toolkit.errors import UnsupportedError

TARGET = Target(get_backend("numpy"), rows_independent=True)


class TiedHead(layers.Layer):
    """Scores of the words of an Embedding, by its weights."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, x):
        return ops.softmax(x @ ops.transpose(self.embedding.embeddings))


class Block(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.supports_masking = True
        self.attention = layers.MultiHeadAttention(2, 8, dropout=0.1)
        self.dense, self.norm = layers.Dense(16), layers.LayerNormalization()

    def call(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, use_causal_mask=True)
        return x + self.dense(ops.gelu(x))


def mlp(depth):
    first = [layers.Dropout(0.2), layers.Dense(12, "relu", name="layer_0")]
    hidden = [layers.Dense(10 + i, "gelu", name=f"layer_{i}") for i in range(1, depth)]
    head = layers.Dense(50, "softmax", name=f"layer_{depth}")
    return tk.Sequential([*first, *hidden, head])


def gpt(depth):
    tokens = tk.Input((6,), dtype="int32")
    embedding = layers.Embedding(50, 16, mask_zero=True, name="layer_0_embedding")
    x = embedding(tokens)
    for i in range(depth):
        x = Block(f"layer_{i}")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return tk.Model(tokens, layers.Dense(50, "softmax", name=f"layer_{depth}")(x))


def tied_gpt(depth):
    tokens = tk.Input((6,), dtype="int32")
    embedding = layers.Embedding(50, 16, name="layer_0")
    x = embedding(tokens)
    for i in range(1, depth + 1):
        x = layers.Dense(16, "relu", name=f"layer_{i}")(x)
    x = layers.GlobalAveragePooling1D()(x)
    head = TiedHead(embedding)
    head.name = f"layer_{depth}_head"
    return tk.Model(tokens, head(x))


def stages_of(count, depth):
    """Distribute `depth` layers and the embedding evenly over `count` stages."""
    pairs = [(rf"layer_{i}(_.*)?", i * count // (depth + 1)) for i in range(depth + 1)]
    return Stages(pairs, count)


def concrete_step(model, rows, kind="train", **options):
    """A traced step of a model, and the arrays that it is called with."""
    random = np.random.default_rng(0)
    is_text = "int" in str(model.inputs[0].dtype) if model.built else False
    x = random.integers(0, 50, (rows, 6)).astype("int32")
    x = x if is_text else random.random((rows, 8), "float32")
    y = random.integers(0, 50, rows).astype("int32")
    options = {"optimizer": "adam", "metrics": ["accuracy"], **options}
    model.compile(loss="sparse_categorical_crossentropy", jit_compile=True, **options)
    model.train_on_batch(x, y)
    batch = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    make = {"train": model.make_train_function, "test": model.make_test_function}
    concrete, arrays = concrete_function(make[kind](), batch)
    return concrete, arrays + [np.array(v) for v in concrete.variables]


def split_step(concrete, stages, count):
    """The pipeline of a step, and which variables the last outputs are for."""
    graph, batch = concrete.graph, len(concrete.graph.inputs) - len(concrete.variables)
    layouts = [Split(0)] * batch + [None] * len(concrete.variables)

    def stage_path_of(node):
        path = node.origin.removesuffix("gradient")
        return f"layer {path}" if path else None

    step = micro_batches(graph, layouts, batch, count, stage_path_of, TARGET)

    def stage_of(variable):
        path = variable.path
        for v in concrete.variables:
            if f"/{v.path.replace('/', '_')}_" in path:
                path = v.path
        return stages.of(path)

    stored = step.first.inputs[batch : len(graph.inputs)]
    owner_pairs = zip(stored, map(stage_of, concrete.variables), strict=True)
    owners = {x: stage for x, stage in owner_pairs if stage is not None}
    receivers = [None] * concrete.num_outputs + [
        stage_of(v) for v in concrete.written_variables
    ]
    return pipeline(graph, step, stages, owners, receivers, "step"), owners, receivers


def run_unsplit(concrete, arrays):
    program = compile_program(concrete.graph, TARGET)
    return [np.array(y) for y in Executable(program)(arrays)]


def run_on_ranks(pipeline, owners, arrays, ranks):
    """Return the results of each rank. A rank receives only its own variables."""
    ranks_of_stages = [
        stage * ranks // pipeline.stages for stage in range(pipeline.stages)
    ]

    def compute(group):
        local_arrays = [
            array
            if owners.get(x) is None or ranks_of_stages[owners[x]] == group.rank
            else np.empty(0, array.dtype)
            for x, array in zip(pipeline.step.first.inputs, arrays, strict=False)
        ]
        run = StagedExecutable(pipeline, TARGET, group, ranks_of_stages)
        outs = [None] * len(pipeline.step.first.outputs)
        return run(local_arrays, outs)

    results = local.run(ranks, compute)
    return results, ranks_of_stages


NETWORKS = {"mlp": mlp, "gpt": gpt, "tied": tied_gpt}


@pytest.mark.parametrize("name, stages, rows, count", [
    ("mlp", 3, 12, 4),
    ("mlp", 4, 13, 5),
    ("mlp", 2, 3, 8),
    ("gpt", 3, 10, 4),
    ("gpt", 2, 8, 1),
    ("tied", 3, 9, 4),
])  # fmt: skip
@pytest.mark.one_in(3)
def test_stages_have_the_bits_of_one_rank(name, stages, rows, count):
    tk.utils.set_random_seed(0)
    concrete, arrays = concrete_step(NETWORKS[name](3), rows)
    pipeline, owners, receivers = split_step(concrete, stages_of(stages, 3), count)
    for piece in pipeline.pieces.along.values():
        for graph in piece.graphs.values():
            graph.verify()
    (single,), _ = run_on_ranks(pipeline, owners, arrays, 1)
    names = ["logs"] * concrete.num_outputs + [
        v.path for v in concrete.written_variables
    ]
    for path, a, b in zip(names, run_unsplit(concrete, arrays), single, strict=True):
        if a.dtype.kind == "f" and "key_bias" not in path and "key/bias" not in path:
            scale = float(np.abs(a).max(initial=1e-6))
            tolerance = 1e-4 if name == "gpt" else 1e-5
            assert np.abs(a - b).max(initial=0) <= tolerance * scale, path
    for ranks in range(2, stages + 1):
        results, ranks_of_stages = run_on_ranks(pipeline, owners, arrays, ranks)
        for rank, outputs in enumerate(results):
            for path, receiver, a, b in zip(
                names, receivers, single, outputs, strict=True
            ):
                if receiver is None or ranks_of_stages[receiver] == rank:
                    assert a.tobytes() == b.tobytes(), path


def test_evaluation_has_only_forward_stages():
    concrete, arrays = concrete_step(mlp(3), 11, "test")
    pipeline, owners, _ = split_step(concrete, stages_of(3, 3), 4)
    assert sorted(pipeline.pieces.along) == [0, 1, 2]
    results, _ = run_on_ranks(pipeline, owners, arrays, 3)
    expected = run_unsplit(concrete, arrays)
    for outputs in results:
        for a, b in zip(expected, outputs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", range(1, 9))
def test_ranks_have_no_deadlock(stages, count):
    """No rank blocks, although a send waits until it is received."""
    concrete = step_of_mlp(8)
    pipeline, _, _ = split_step(concrete, stages_of(stages, 3), count)
    for ranks in range(1, stages + 1):
        ranks_of_stages = [stage * ranks // stages for stage in range(stages)]
        tasks = [[] for _ in range(ranks)]
        for number, task in enumerate(pipeline.order):
            if isinstance(task, Move):
                for rank in {
                    ranks_of_stages[task.source],
                    ranks_of_stages[task.target],
                }:
                    tasks[rank].append((number, task))
            else:
                tasks[ranks_of_stages[task.piece.stage]].append((number, task))
        while any(tasks):
            next_tasks = [rank_tasks[0] for rank_tasks in tasks if rank_tasks]
            finished = {
                number
                for number, task in next_tasks
                if not isinstance(task, Move)
                or ranks_of_stages[task.source] == ranks_of_stages[task.target]
                or sum(other == number for other, _ in next_tasks) == 2
            }
            assert finished
            for rank_tasks in tasks:
                if rank_tasks and rank_tasks[0][0] in finished:
                    del rank_tasks[0]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", range(1, 9))
def test_few_micro_batches_are_in_flight(stages, count):
    pipeline, _, _ = split_step(step_of_mlp(8), stages_of(stages, 3), count)
    for stage in range(stages - 1):
        pieces = pipeline.pieces.along
        forward, back = pieces[stage], pieces[2 * stages - 2 - stage]
        in_flight, peak = set(), 0
        for task in pipeline.order:
            if not isinstance(task, Move) and task.piece is forward:
                in_flight.add(task.micro_batch)
            if not isinstance(task, Move) and task.piece is back:
                in_flight.remove(task.micro_batch)
            peak = max(peak, len(in_flight))
        assert peak == min(stages - stage, count)


STEPS = {}


def step_of_mlp(rows):
    if rows not in STEPS:
        STEPS[rows] = concrete_step(mlp(3), rows)[0]
    return STEPS[rows]


def test_only_the_values_between_stages_move():
    pipeline, _, _ = split_step(step_of_mlp(8), stages_of(2, 3), 4)
    moves = [task for task in pipeline.order if isinstance(task, Move)]
    activations = [task for task in moves if task.micro_batch is not None]
    assert len(activations) == 8  # forward and back, for each micro-batch
    assert all(len(task.values) == 1 for task in activations)
    assert all(task.values[0].spec.shape == (2, 11) for task in activations)
    first = str(activations[0])
    assert first.startswith("stage 0 to stage 1, ") and "layer_1" in first
    assert first.endswith("micro-batch 0")
    (last_move,) = (task for task in moves if task.micro_batch is None)
    assert all(y.spec.size <= 2 for y in last_move.values)


def assert_refused(model, stages, match, **options):
    concrete, _ = concrete_step(model, 8, **options)
    with pytest.raises(UnsupportedError, match=match):
        split_step(concrete, stages, 4)


def test_statistics_of_the_batch_are_refused():
    dense = [layers.Dense(50, "softmax", name=f"layer_{i}") for i in range(2)]
    model = tk.Sequential([dense[0], layers.BatchNormalization(name="norm"), dense[1]])
    assert_refused(model, stages_of(2, 1), "layer .*norm")


def test_layers_in_another_order_than_stages_are_refused():
    stages = Stages([("layer_0", 1), ("layer_[123]", 0)], 2)
    assert_refused(
        mlp(3), stages, "layer .*layer_1' of stage 0 reads a result of .*layer_0"
    )


class LoopOverStages(layers.Layer):
    def __init__(self):
        super().__init__(name="looping")
        self.first = layers.Dense(8, name="layer_0")
        self.second = layers.Dense(8, name="layer_1")

    def call(self, x):
        return ops.fori_loop(0, 3, lambda _, x: self.second(self.first(x)), x)


def test_a_loop_over_stages_is_refused():
    model = tk.Sequential([layers.Dense(8, name="layer_0_in"), LoopOverStages()])
    model.add(layers.Dense(50, "softmax", name="layer_1_out"))
    concrete, _ = concrete_step(model, 8, "test")
    with pytest.raises(
        UnsupportedError, match="contains layers of several stages: .*layer_0"
    ):
        split_step(concrete, stages_of(2, 1), 4)


@pytest.mark.parametrize("split", [Split(0), Split(1), Split(1, 2), Split(0, 2, 3)])
def test_rows(split):
    shape = [3, 4]
    shape[split.axis] = split.major * 5 * split.minor
    array = np.arange(np.prod(shape)).reshape(shape)
    actual = np.empty_like(array)
    for rows in (range(2), range(2, 5)):
        rows_of_part = rows_of(array, split, rows)
        assert rows_of_part.shape[split.axis] == split.major * len(rows) * split.minor
        put_rows(actual, split, rows, rows_of_part)
    np.testing.assert_array_equal(actual, array)
