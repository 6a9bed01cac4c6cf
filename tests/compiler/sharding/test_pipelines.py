"""Steps cut into stages, on virtual ranks: near to one program, and the same bits."""

import numpy as np
import pytest

import toolkit as tk
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


class Tied(layers.Layer):
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
    last = layers.Dense(50, "softmax", name=f"layer_{depth}")
    return tk.Sequential([*first, *hidden, last])


def gpt(depth):
    tokens = tk.Input((6,), dtype="int32")
    embedding = layers.Embedding(50, 16, mask_zero=True, name="layer_0_embedding")
    x = embedding(tokens)
    for i in range(depth):
        x = Block(f"layer_{i}")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return tk.Model(tokens, layers.Dense(50, "softmax", name=f"layer_{depth}")(x))


def tied(depth):
    tokens = tk.Input((6,), dtype="int32")
    embedding = layers.Embedding(50, 16, name="layer_0")
    x = embedding(tokens)
    for i in range(1, depth + 1):
        x = layers.Dense(16, "relu", name=f"layer_{i}")(x)
    x = layers.GlobalAveragePooling1D()(x)
    head = Tied(embedding)
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
    function, leaves = make[kind]()._function_for(batch)
    concrete = function.get_concrete_function(*leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return concrete, arrays + [np.array(v) for v in concrete.variables]


def cut(concrete, stages, count):
    """The pipeline of a step, and which variables the last outputs are for."""
    graph, batch = concrete.graph, len(concrete.graph.inputs) - len(concrete.variables)
    layouts = [Split(0)] * batch + [None] * len(concrete.variables)

    def why(node):
        path = node.origin.removesuffix("gradient")
        return f"layer {path}" if path else None

    step = micro_batches(graph, layouts, batch, count, why, TARGET)

    def stage_of(variable):
        path = variable.path
        for v in concrete.variables:
            if f"/{v.path.replace('/', '_')}_" in path:
                path = v.path
        return stages.of(path)

    given = step.first.inputs[batch : len(graph.inputs)]
    pairs = zip(given, map(stage_of, concrete.variables), strict=True)
    owners = {x: stage for x, stage in pairs if stage is not None}
    takers = [None] * concrete.fetched + [stage_of(v) for v in concrete.written]
    return pipeline(graph, step, stages, owners, takers, "step"), owners, takers


def whole(concrete, arrays):
    program = compile_program(concrete.graph, TARGET)
    return [np.array(y) for y in Executable(program)(arrays)]


def on_ranks(found, owners, arrays, ranks):
    """Return the results of each rank. A rank receives only its own variables."""
    places = [stage * ranks // found.stages for stage in range(found.stages)]

    def compute(group):
        mine = [
            array
            if owners.get(x) is None or places[owners[x]] == group.rank
            else np.empty(0, array.dtype)
            for x, array in zip(found.step.first.inputs, arrays, strict=False)
        ]
        run = StagedExecutable(found, TARGET, group, places)
        outs = [None] * len(found.step.first.outputs)
        return run(mine, outs)

    results = local.run(ranks, compute)
    return results, places


NETWORKS = {"mlp": mlp, "gpt": gpt, "tied": tied}


@pytest.mark.parametrize("name, stages, rows, count", [
    ("mlp", 3, 12, 4),
    ("mlp", 4, 13, 5),
    ("mlp", 2, 3, 8),
    ("gpt", 3, 10, 4),
    ("gpt", 2, 8, 1),
    ("tied", 3, 9, 4),
])  # fmt: skip
@pytest.mark.one_in(3)
def test_bits_are_those_of_one_rank(name, stages, rows, count):
    tk.utils.set_random_seed(0)
    concrete, arrays = concrete_step(NETWORKS[name](3), rows)
    found, owners, takers = cut(concrete, stages_of(stages, 3), count)
    for piece in found.pieces.along.values():
        for graph in piece.graphs.values():
            graph.verify()
    (alone,), _ = on_ranks(found, owners, arrays, 1)
    names = ["logs"] * concrete.fetched + [v.path for v in concrete.written]
    for path, a, b in zip(names, whole(concrete, arrays), alone, strict=True):
        if a.dtype.kind == "f" and "key_bias" not in path and "key/bias" not in path:
            scale = float(np.abs(a).max(initial=1e-6))
            bar = 1e-4 if name == "gpt" else 1e-5
            assert np.abs(a - b).max(initial=0) <= bar * scale, path
    for ranks in range(2, stages + 1):
        results, places = on_ranks(found, owners, arrays, ranks)
        for rank, outputs in enumerate(results):
            for path, taker, a, b in zip(names, takers, alone, outputs, strict=True):
                if taker is None or places[taker] == rank:
                    assert a.tobytes() == b.tobytes(), path


def test_evaluation_goes_forward_only():
    concrete, arrays = concrete_step(mlp(3), 11, "test")
    found, owners, _ = cut(concrete, stages_of(3, 3), 4)
    assert sorted(found.pieces.along) == [0, 1, 2]
    results, _ = on_ranks(found, owners, arrays, 3)
    expected = whole(concrete, arrays)
    for outputs in results:
        for a, b in zip(expected, outputs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", range(1, 9))
def test_nothing_waits_in_a_circle(stages, count):
    """No rank blocks, although a send waits until it is received."""
    concrete = step_of_mlp(8)
    found, _, _ = cut(concrete, stages_of(stages, 3), count)
    for ranks in range(1, stages + 1):
        places = [stage * ranks // stages for stage in range(stages)]
        tasks = [[] for _ in range(ranks)]
        for number, what in enumerate(found.order):
            if isinstance(what, Move):
                for rank in {places[what.source], places[what.target]}:
                    tasks[rank].append((number, what))
            else:
                tasks[places[what.piece.stage]].append((number, what))
        while any(tasks):
            fronts = [own[0] for own in tasks if own]
            over = {
                number
                for number, what in fronts
                if not isinstance(what, Move)
                or places[what.source] == places[what.target]
                or sum(other == number for other, _ in fronts) == 2
            }
            assert over
            for own in tasks:
                if own and own[0][0] in over:
                    del own[0]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", range(1, 9))
def test_few_micro_batches_are_kept(stages, count):
    found, _, _ = cut(step_of_mlp(8), stages_of(stages, 3), count)
    for stage in range(stages - 1):
        pieces = found.pieces.along
        ahead, back = pieces[stage], pieces[2 * stages - 2 - stage]
        flying, most = set(), 0
        for what in found.order:
            if not isinstance(what, Move) and what.piece is ahead:
                flying.add(what.micro_batch)
            if not isinstance(what, Move) and what.piece is back:
                flying.remove(what.micro_batch)
            most = max(most, len(flying))
        assert most == min(stages - stage, count)


STEPS = {}


def step_of_mlp(rows):
    if rows not in STEPS:
        STEPS[rows] = concrete_step(mlp(3), rows)[0]
    return STEPS[rows]


def test_only_the_values_between_stages_move():
    found, _, _ = cut(step_of_mlp(8), stages_of(2, 3), 4)
    moves = [what for what in found.order if isinstance(what, Move)]
    along = [what for what in moves if what.micro_batch is not None]
    assert len(along) == 8  # forward and back, for each micro-batch
    assert all(len(what.values) == 1 for what in along)
    assert all(what.values[0].spec.shape == (2, 11) for what in along)
    first = str(along[0])
    assert first.startswith("stage 0 to stage 1, ") and "layer_1" in first
    assert first.endswith("micro-batch 0")
    (last,) = (what for what in moves if what.micro_batch is None)
    assert all(y.spec.size <= 2 for y in last.values)


def refused(model, stages, match, **options):
    concrete, _ = concrete_step(model, 8, **options)
    with pytest.raises(UnsupportedError, match=match):
        cut(concrete, stages, 4)


def test_statistics_of_the_batch_are_refused():
    dense = [layers.Dense(50, name=f"layer_{i}") for i in range(2)]
    model = tk.Sequential([dense[0], layers.BatchNormalization(name="norm"), dense[1]])
    refused(model, stages_of(2, 1), "layer .*norm")


def test_layers_against_the_order_of_stages_are_refused():
    stages = Stages([("layer_0", 1), ("layer_[123]", 0)], 2)
    refused(mlp(3), stages, "layer .*layer_1' is of stage 0, but reads what .*layer_0")


class Looping(layers.Layer):
    def __init__(self):
        super().__init__(name="looping")
        self.one = layers.Dense(8, name="layer_0")
        self.other = layers.Dense(8, name="layer_1")

    def call(self, x):
        return ops.fori_loop(0, 3, lambda _, x: self.other(self.one(x)), x)


def test_a_loop_over_stages_is_refused():
    model = tk.Sequential([layers.Dense(8, name="layer_0_in"), Looping()])
    model.add(layers.Dense(50, name="layer_1_out"))
    concrete, _ = concrete_step(model, 8, "test")
    with pytest.raises(UnsupportedError, match="holds layers of several: .*layer_0"):
        cut(concrete, stages_of(2, 1), 4)


@pytest.mark.parametrize("split", [Split(0), Split(1), Split(1, 2), Split(0, 2, 3)])
def test_rows(split):
    shape = [3, 4]
    shape[split.axis] = split.major * 5 * split.minor
    array = np.arange(np.prod(shape)).reshape(shape)
    found = np.empty_like(array)
    for rows in (range(2), range(2, 5)):
        part = rows_of(array, split, rows)
        assert part.shape[split.axis] == split.major * len(rows) * split.minor
        put_rows(found, split, rows, part)
    np.testing.assert_array_equal(found, array)
