"""Test sparse updates of tables in jobs: bytes, bits, and values in float64."""

import numpy as np
import pytest

from tests.comm import ranks
from tests.distribution.embedding_steps import (
    UNITS,
    gradient_step,
    in_two_parts,
    once,
    train,
    update_in_place,
    variables_of,
)
from tests.distribution.jobs import run, run_sizes
from tests.optimizers import reference
from tests.optimizers.test_optimizers import BASE, ROWS as OPTIMIZERS, make, name_of
from tests.optimizers.test_rows import lazy, scaled
from toolkit import ops, optimizers
from toolkit.errors import OutOfRangeError

# The table has the number of rows of `test_rows`, so that `lazy` recognizes it.
ROWS, RATE, SLOTS = 40, 0.0625, 3
BATCHES = (2, 3, 1, 3)  # the number of rows of each batch; fewer rows than ranks, too
CLIPS = [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.7}, {"loss_scale_factor": 4.0}]
# Ids and rows of the largest batch, in bytes.
ROW_BYTES = 3 * SLOTS * (UNITS + 1) * 4
WHOLE = {"weight_decay", "gradient_accumulation_steps", "use_ema"}


def batches(rng, rows=ROWS, counts=BATCHES, dtype="int32"):
    """Ids with duplicates and negative ids, gradients of rows, and of a kernel."""
    result = []
    for count in counts:
        ids = rng.integers(-rows, rows, (count, SLOTS))
        ids[:, :1] = ids[:1, :1]
        w, u = rng.normal(size=(count, SLOTS, UNITS)), rng.normal(size=(count, 2, 2))
        result.append((ids.astype(dtype), w.astype("float32"), u.astype("float32")))
    return result


def dense_gradients(batches, rows=ROWS):
    """Gradients of the table and of the kernel in float64, for each batch."""
    result = []
    for ids, w, u in batches:
        table = np.zeros((rows, UNITS))
        np.add.at(table, ids, w.astype("float64"))
        result.append([table, u.astype("float64").sum(0)])
    return result


def weights(rng, rows=ROWS):
    return rng.normal(size=(rows, UNITS)), rng.normal(size=(2, 2))


def trained(optimizer, take=once, ranks=3, seed=0, table_dtype="float32", **options):
    """Train the table and the kernel on virtual ranks.

    Returns:
        The variables, the `Result` of a rank, and the start values with the batches.
    """
    rng = np.random.default_rng(seed)
    table, kernel = weights(rng)
    data = batches(rng, **options)
    variables = variables_of(table, kernel, optimizer, table_dtype)
    results = train(gradient_step(variables, optimizer, take), data, ranks)
    assert len({result.digest for result in results}) == 1
    return variables, results[0], (table, kernel, data)


def expected_of(rule, start, arguments):
    table, kernel, data = start
    values, _ = reference.train(
        rule, [table, kernel], dense_gradients(data), RATE, **arguments
    )
    return values


def assert_equal_to_float64(optimizer, rule, arguments, **options):
    variables, result, start = trained(optimizer, **options)
    rule = lazy(rule) if optimizer.lazy else rule
    for v, value in zip(variables, expected_of(rule, start, arguments), strict=True):
        scale = 1 + np.abs(value).max()
        np.testing.assert_allclose(result.of(v), value, rtol=1e-3, atol=1e-4 * scale)
    return result


def lamb(g, p, state, lr, t):
    """Lamb for gradients with zeros: their direction is 0 / 0 without an epsilon."""
    with np.errstate(invalid="ignore"):
        d = np.nan_to_num(p - reference.adam(g, p, state, 1.0, t, epsilon=0.0))
    v = np.sqrt(state["v"] / (1 - 0.999**t))
    d = d * v / (v + 1e-7)
    return p - lr * np.linalg.norm(p) / np.linalg.norm(d) * d


@pytest.mark.parametrize("take", [once, in_two_parts])
@pytest.mark.parametrize(
    "cls, arguments, rule",
    [row for row in OPTIMIZERS if callable(row[2])],
    ids=name_of,
)
def test_every_optimizer_equals_float64(cls, arguments, rule, take):
    rule = lamb if cls is optimizers.Lamb else rule
    assert_equal_to_float64(make(cls, arguments, {}), rule, arguments, take=take)


RULES = [
    (optimizers.SGD, reference.sgd),
    (optimizers.Adagrad, reference.adagrad),
    (optimizers.LazyAdam, reference.adam),
    (optimizers.Adam, reference.adam),
]


@pytest.mark.parametrize("base", BASE, ids=name_of)
@pytest.mark.parametrize("cls, rule", RULES, ids=name_of)
def test_every_option_equals_float64(cls, rule, base):
    if cls is optimizers.LazyAdam and not WHOLE.isdisjoint(base):
        pytest.skip("rows without a gradient would change by the option alone")
    optimizer = make(cls, {}, base)
    result = assert_equal_to_float64(optimizer, rule, scaled(base))
    assert "all_gather" in "+".join(result.collective_names)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("seed", range(4))
def test_ids_of_any_dtype(seed, dtype):
    options = {"seed": seed, "dtype": dtype, "counts": (seed, 4, 0, 3)}
    for cls, rule in RULES:
        assert_equal_to_float64(make(cls, {}, {}), rule, {}, **options)


@pytest.mark.parametrize("options", CLIPS, ids=name_of)
@pytest.mark.parametrize(
    "cls", [optimizers.SGD, optimizers.Adagrad, optimizers.LazyAdam]
)
def test_rows_are_exchanged_and_updated_in_place(cls, options):
    for take in (once, in_two_parts):
        table, result, _ = trained(cls(RATE, **options), take)
        assert result.exchanged_bytes <= ROW_BYTES + 100  # with the kernel and the loss
        assert result.large_nodes(ROWS * UNITS) == {"scatter"}
        assert result.large_constants(ROWS) == []
        assert result.program.in_place
        # The ids, the rows and all sums are one message.
        assert result.collective_names == ["all_reduce+all_gather"]


def test_optimizers_of_all_rows_exchange_rows():
    for optimizer in (optimizers.Adam(RATE), optimizers.SGD(RATE, momentum=0.9)):
        _, result, _ = trained(optimizer)
        assert result.exchanged_bytes <= ROW_BYTES + 100


def test_many_lookups_exchange_the_table():
    """The shapes of the batch decide: 30 lookups of a table with 40 rows."""
    _, result, _ = trained(optimizers.Adam(RATE), counts=(10,))
    assert result.collective_names == ["all_reduce"]


def tied(table, ids):
    """Look up rows, and multiply them by the table."""
    rows = ops.take(table, ids, axis=0)
    return rows @ ops.transpose(table) @ ops.stop_gradient(table)


def scaled_loss(rate):
    return optimizers.LossScaleOptimizer(optimizers.Adagrad(rate), initial_scale=4.0)


CASES = {
    "sgd": (optimizers.SGD, {}),
    "clipped": (lambda rate: optimizers.SGD(rate, global_clipnorm=0.1), {}),
    "clipped rows": (lambda rate: optimizers.Adagrad(rate, clipnorm=0.1), {}),
    "momentum": (lambda rate: optimizers.SGD(rate, momentum=0.9), {}),
    "adam": (optimizers.Adam, {"dtype": "int64"}),
    "averages": (lambda rate: optimizers.SGD(rate, use_ema=True), {}),
    "decay": (lambda rate: optimizers.Adagrad(rate, weight_decay=0.1), {}),
    "lazy": (optimizers.LazyAdam, {}),
    "several lookups": (optimizers.Adagrad, {"take": in_two_parts}),
    "tied": (optimizers.Adagrad, {"take": tied}),
    "bfloat16": (optimizers.LazyAdam, {"table_dtype": "bfloat16"}),
    "float16": (optimizers.SGD, {"table_dtype": "float16"}),
    "dense bfloat16": (
        optimizers.Adam,
        {"table_dtype": "bfloat16", "counts": (10, 14)},
    ),
    "loss scale": (scaled_loss, {}),
    "many": (optimizers.LazyAdam, {"counts": (12, 20, 7)}),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_do_not_depend_on_the_number_of_ranks(name):
    create, options = CASES[name]
    digests = set()
    for size in (1, 2, 3, 4):
        _, result, _ = trained(create(RATE), ranks=size, **options)
        digests.add(result.digest)
    assert len(digests) == 1


def test_an_index_out_of_range_changes_no_row_on_any_rank():
    """No rank reads rows before the update: the gradient does not depend on them."""
    pytest.importorskip("llvmlite")
    table, kernel = weights(np.random.default_rng(0))
    optimizer = optimizers.SGD(RATE)
    variables = variables_of(table, kernel, optimizer)
    batch = batches(np.random.default_rng(0), counts=(3,))[0]
    step = gradient_step(variables, optimizer, returns_loss=False)
    ids_of_one_rank = batch[0][2]
    ids_of_one_rank[2] = ROWS
    for is_unchanged in update_in_place(step, batch, 2, OutOfRangeError):
        assert is_unchanged


MODELS = """
    distribution.set_distribution(distribution.DataParallel(shards=4))
    rng = np.random.default_rng(0)
    x = rng.integers(1, 400, (34, 8)).astype("int32")  # the last batch of 16 has 2 rows
    y = rng.normal(size=(34, 5)).astype("float32")
    optimizers, ops = tk.optimizers, tk.ops

    def flat(ids, **options):
        rows = layers.Embedding(400, 16, **options)(ids)
        return layers.Flatten()(rows)

    def two_lookups(ids):
        table = layers.Embedding(400, 16)
        return ops.add(*(ops.sum(table(i), 1) for i in (ids, ids // 2)))

    def masked(ids):
        rows = layers.Embedding(400, 16, mask_zero=True)(ids * (ids % 3 > 0))
        return layers.GlobalAveragePooling1D()(rows)

    def tied(ids):
        table = layers.ReversibleEmbedding(400, 16)
        return table(ops.mean(table(ids), 1), reverse=True)

    def trained(optimizer, body=flat):
        tk.utils.set_random_seed(0)
        ids = tk.Input((8,), dtype="int32")
        model = tk.Model(ids, layers.Dense(5)(body(ids)))
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=16, verbose=0)
        return state_of(model)

    found = {
        "sgd": trained(optimizers.SGD(0.1)),
        "global_clipnorm": trained(optimizers.Adagrad(0.1, global_clipnorm=0.01)),
        "momentum": trained(optimizers.SGD(0.1, momentum=0.9)),
        "adagrad": trained(optimizers.Adagrad(0.1)),
        "lazyadam": trained(optimizers.LazyAdam(0.1)),
        "loss scale": trained(optimizers.LossScaleOptimizer(optimizers.Adagrad(0.1))),
        "accumulation": trained(optimizers.SGD(0.1, gradient_accumulation_steps=2)),
        "two lookups": trained(optimizers.Adagrad(0.1), two_lookups),
        "masked": trained(optimizers.LazyAdam(0.1), masked),
        "tied": trained(optimizers.Adagrad(0.1), tied),
        "mixed": trained(
            optimizers.Adagrad(0.1), lambda ids: flat(ids, dtype="mixed_float16")
        ),
    }

    table = tk.Variable(rng.normal(size=(400, 3)).astype("float32"))
    optimizer = optimizers.SGD(0.1)
    optimizer.build([table])

    @tk.function(distribute=True)
    def step(ids, w):
        with tk.GradientTape() as tape:
            loss = ops.sum(ops.take(table, ids, axis=0) * w)
        optimizer.apply([tape.gradient(loss, table)], [table])
        return loss

    for rows in (9, 2, 9):
        losses = step(x[:rows], np.ones((rows, 8, 3), "float32"))
    found["loop"] = digest(table, losses)
    tell(found)
"""


@ranks.for_sizes
def test_one_hash_for_any_number_of_processes(tmp_path, sizes):
    reports = run_sizes(tmp_path, sizes, MODELS, timeout=120, seconds=300)
    for report in reports:
        assert report == reports[0]


def test_a_job_equals_one_process(tmp_path):
    text = """
    if size > 1:
        distribution.set_distribution(distribution.DataParallel())
    rng = np.random.default_rng(0)
    x = rng.integers(0, 10000, (40, 8)).astype("int32")
    y = rng.normal(size=(40, 5)).astype("float32")
    weights = []
    for optimizer in (tk.optimizers.SGD(0.1), tk.optimizers.Adagrad(0.1)):
        tk.utils.set_random_seed(0)
        model = tk.Sequential([layers.Embedding(10000, 4), layers.Flatten()])
        model.add(layers.Dense(5))
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
        weights += [w[:200].tolist() for w in model.get_weights()]
        step = model.make_train_function()
        report = str(step.inspect())
    tell([weights, report])
    """
    (weights, _), *reports = run(tmp_path, 1, text) + run(tmp_path, 2, text)
    for other, report in reports:
        for w, v in zip(weights, other, strict=True):
            np.testing.assert_allclose(v, w, rtol=1e-4, atol=1e-6)
        exchanged = report[report.index("exchanged:") : report.index("arena:")]
        (gather,) = [line for line in exchanged.splitlines() if "all_gather" in line]
        # 16 rows with 8 ids: 128 ids, and 128 rows of 4 numbers.
        assert f" {128 * 20 / 1e3:.1f} " in gather and "embedding" in gather
