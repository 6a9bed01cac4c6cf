"""Test updates of the rows of a table that were looked up against float64."""

import numpy as np
import pytest

import toolkit
from tests.helpers import allocated_by, assert_close
from tests.optimizers import reference
from tests.optimizers.test_optimizers import BASE, make, name_of
from toolkit import constraints, layers, ops, optimizers, regularizers
from toolkit.autodiff.tape import GradientTape
from toolkit.core.slices import slices_of
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, OutOfRangeError
from toolkit.functions.decorator import function
from toolkit.optimizers.rows import rows_of

ROWS, UNITS, RATE, STEPS = 40, 3, 0.0625, 4
# Equal indices, negative indices, and an index of every step.
INDICES = [[7, 7, -1, 39, 0, 2], [1, 0, 7, -40, 7, 7], [5, 5, 5, 5, 5, 5], [0] * 6]
EAGER_AND_TRACED = pytest.mark.parametrize("traced", [False, True])


def lazy(rule):
    """Apply a rule of `reference`, for the table only to rows that have a gradient."""

    def by_row(g, p, state, lr, t, **arguments):
        if len(g) != ROWS:
            return rule(g, p, state, lr, t, **arguments)
        new = p.copy()
        for i in np.flatnonzero(np.any(g.reshape(len(g), -1) != 0, axis=1)):
            slots = state.setdefault(i, {})
            new[i] = rule(g[i], p[i], slots, lr, t, **arguments)
        return new

    return by_row


def weights():
    rng = np.random.default_rng(0)
    table, kernel = rng.normal(size=(ROWS, UNITS)), rng.normal(size=(2, 2))
    return table, kernel, rng.normal(size=(STEPS, 6, UNITS)), rng.normal(size=(2, 2))


def gradients(ws, u):
    """Return dense gradients of each step."""
    gradients_of_tables = []
    for ids, w in zip(INDICES, ws, strict=True):
        g = np.zeros((ROWS, UNITS))
        np.add.at(g, ids, w)
        gradients_of_tables.append([g, u])
    return gradients_of_tables


def train(optimizer, traced, take=lambda table, ids: ops.take(table, ids, axis=0)):
    """Return the Variables and the step after a step with all indices."""
    table, kernel, ws, u = weights()
    vs = [Variable(table, name="table"), Variable(kernel, name="kernel")]
    optimizer.build(vs)

    def step(ids, w):
        with GradientTape() as tape:
            loss = ops.sum(take(vs[0], ids) * w) + ops.sum(vs[1] * u)
            loss = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(loss, vs), vs)
        return loss

    step = function(step) if traced else step
    for ids, w in zip(INDICES, ws, strict=True):
        step(ops.convert_to_tensor(ids), ops.convert_to_tensor(w))
    return vs, step, (ops.convert_to_tensor(ids), ops.convert_to_tensor(w))


def goes_by_rows(step, arguments):
    """Return whether a traced step scatters to the table and computes no larger node.

    Such a step updates the table in place.
    """
    program = step.get_concrete_function(*arguments).program
    large = [
        node
        for node in program.graph.nodes
        if any(y.spec.size >= ROWS * UNITS for y in node.outputs)
    ]
    return program.in_place and {node.op.name for node in large} == {"scatter"}


def scaled(base):
    """Scale the gradients like those of a scaled loss."""
    return {k: v for k, v in base.items() if k != "loss_scale_factor"}


DENSE = {"weight_decay", "gradient_accumulation_steps", "use_ema"}
EXACT = [
    (optimizers.SGD, reference.sgd),
    (optimizers.Adagrad, reference.adagrad),
]


@EAGER_AND_TRACED
@pytest.mark.parametrize("base", BASE, ids=name_of)
@pytest.mark.parametrize("cls, rule", EXACT, ids=name_of)
def test_exact_optimizers(cls, rule, base, traced):
    table, kernel, ws, u = weights()
    vs, step, arguments = train(make(cls, {}, base), traced)
    values, _ = reference.train(
        rule, [table, kernel], gradients(ws, u), RATE, **scaled(base)
    )
    for v, value in zip(vs, values, strict=True):
        assert_close(v, value, factor=10)
    if traced:
        assert goes_by_rows(step, arguments) == DENSE.isdisjoint(base)


@EAGER_AND_TRACED
@pytest.mark.parametrize("base", [*BASE[:4], BASE[7]], ids=name_of)
@pytest.mark.parametrize("options", [{}, {"beta_1": 0.8, "amsgrad": True}], ids=name_of)
def test_lazy_adam(options, base, traced):
    table, kernel, ws, u = weights()
    vs, step, arguments = train(make(optimizers.LazyAdam, options, base), traced)
    values, _ = reference.train(
        lazy(reference.adam),
        [table, kernel],
        gradients(ws, u),
        RATE,
        **scaled(base),
        **options,
    )
    for v, value in zip(vs, values, strict=True):
        assert_close(v, value, factor=1e4)
    if traced:
        assert goes_by_rows(step, arguments) == DENSE.isdisjoint(base)


def operations(optimizer, **arguments):
    """Return the names of the operations of a traced step."""
    _, step, arguments = train(optimizer, traced=True, **arguments)
    nodes = step.get_concrete_function(*arguments).program.graph.nodes
    return {node.op.name for node in nodes}


def in_two_parts(table, ids):
    """Look up the rows in two calls."""
    return ops.concatenate([ops.take(table, i, axis=0) for i in (ids[:3], ids[3:])])


# The way SGD updates the rows of a batch: it adds a term for each look-up, unless it
# needs the sum of all terms of a row.
TERMS = [
    ({}, {}, True),
    ({"loss_scale_factor": 4.0}, {}, True),
    ({"clipnorm": 1.0}, {}, False),
    ({"global_clipnorm": 1.0}, {}, False),
    ({"clipvalue": 1.0}, {}, False),
    ({}, {"take": in_two_parts}, False),
]


@pytest.mark.parametrize("options, arguments, is_sum", TERMS)
def test_sgd_adds_terms_without_sorting_them(options, arguments, is_sum):
    names_of_operations = operations(optimizers.SGD(RATE, **options), **arguments)
    assert ("argsort" not in names_of_operations) == is_sum


def test_terms_of_a_16_bit_table_are_summed_first():
    table = Variable(np.ones((ROWS, UNITS)), dtype="bfloat16")
    optimizer = optimizers.SGD(2.0**-9)
    with GradientTape() as tape:
        loss = ops.sum(ops.take(table, [3] * 8, axis=0))
    optimizer.apply([tape.gradient(loss, table)], [table])
    # A single term would be rounded away next to 1.
    assert np.asarray(table, "float32")[3].tolist() == [1 - 2.0**-6] * UNITS


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: optimizers.SGD(RATE, momentum=0.9),
        lambda: optimizers.Adam(RATE),
        lambda: optimizers.RMSprop(RATE),
    ],
)
def test_updates_of_all_rows_are_dense(optimizer):
    _, step, arguments = train(optimizer(), traced=True)
    assert not goes_by_rows(step, arguments)


@EAGER_AND_TRACED
@pytest.mark.parametrize("inner", [optimizers.SGD, optimizers.LazyAdam])
def test_loss_scale(inner, traced):
    optimizer = optimizers.LossScaleOptimizer(inner(RATE))
    vs, step, arguments = train(optimizer, traced)
    plain, *_ = train(inner(RATE), traced)
    for v, other in zip(vs, plain, strict=True):
        assert_close(v, other, factor=1e4)
    if traced:
        assert not goes_by_rows(step, arguments)


@EAGER_AND_TRACED
def test_non_finite_step_changes_no_variable(traced):
    v = Variable(np.ones((ROWS, UNITS), "float32"))
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(1.0))
    optimizer.build([v])

    def step(w):
        with GradientTape() as tape:
            loss = ops.sum(ops.take(v, [1, 2], axis=0) * w)
        optimizer.apply([tape.gradient(loss, v)], [v])

    (function(step) if traced else step)(ops.convert_to_tensor(np.inf, "float32"))
    assert_close(v, np.ones((ROWS, UNITS)))


# The use of the table in the loss, and whether its gradient is known to be rows.
USES = [
    (lambda v, i: ops.take(v, i, axis=0), True),
    (lambda v, i: ops.take(v, ops.reshape(i, (2, 3)), axis=0), True),
    (lambda v, i: ops.take(v, i, axis=0) * ops.take(v, i[::-1], axis=0), True),
    (lambda v, i: ops.take(v, i, axis=0) @ ops.transpose(v), False),
    (lambda v, i: ops.take(v, i, axis=0) + regularizers.L2(0.1)(v), False),
    (lambda v, i: ops.take(ops.square(v), i, axis=0), False),
    (lambda v, i: ops.take(v, i % UNITS, axis=1), False),
]


@EAGER_AND_TRACED
@pytest.mark.parametrize("use, is_known", USES)
def test_gradients_are_dense_tensors(use, is_known, traced):
    v, ids = Variable(weights()[0]), ops.convert_to_tensor(INDICES[0])
    gradients_seen = []

    def gradient(ids, exact=False):
        with GradientTape() as tape:
            loss = ops.sum(ops.square(use(v * 1.0 if exact else v, ids)))
        g = tape.gradient(loss, v)
        gradients_seen.append(bool(slices_of(g)))
        assert g.ndim == 2
        return g

    g = (function(gradient) if traced else gradient)(ids)
    assert_close(g, gradient(ids, exact=True), factor=10)
    assert gradients_seen == [is_known, False]


def test_rows_contain_each_index_once():
    v = Variable(np.ones((5, 1)))
    with GradientTape() as tape:
        y = ops.take(v, [3, -2, 0, 3], axis=0) * [[1.0], [2.0], [4.0], [8.0]]
    gradient = tape.gradient(y, v)
    rows = rows_of(slices_of(gradient), gradient)
    assert rows.indices.tolist() == [3, -2, 0, 3]
    assert sorted(rows.values.tolist()) == [[0.0], [0.0], [4.0], [11.0]]
    assert ops.take(rows.values, rows.positions).tolist() == [11.0, 11.0, 4.0, 11.0]


def test_step_reads_the_rows_of_a_table_once():
    _, step, arguments = train(optimizers.SGD(RATE), traced=True)
    nodes = step.get_concrete_function(*arguments).program.graph.nodes
    table = (ROWS, UNITS)
    reads = [n for n in nodes if n.inputs and n.inputs[0].spec.shape == table]
    assert [n.op.name for n in reads] == ["gather", "scatter"]


def test_gradient_is_computed_on_access():
    v = Variable(np.ones((100_000, 2), "float32"))

    def gradient():
        with GradientTape() as tape:
            y = ops.sum(ops.take(v, [3, 3, 0], axis=0))
        return tape.gradient(y, v)

    gradient()
    g, peak = allocated_by(gradient)
    assert g.shape == v.shape
    assert peak < v.numpy().nbytes / 2
    assert_close((g + 1)[:5], [[2, 2], [1, 1], [1, 1], [3, 3], [1, 1]])


@EAGER_AND_TRACED
@pytest.mark.parametrize("shape", [(8,), (8, 0), (8, 2, 3), (8, 2)])
def test_tables_of_any_rank(shape, traced):
    v = Variable(np.ones(shape))
    optimizer = optimizers.SGD(0.5)
    optimizer.build([v])

    def step(wide, narrow):
        with GradientTape() as tape:
            loss = ops.sum(ops.take(v, wide, axis=0)) + ops.sum(
                ops.take(v, narrow, axis=0)
            )
        optimizer.apply([tape.gradient(loss, v)], [v])

    step = function(step) if traced else step
    step(ops.convert_to_tensor([5], "int64"), ops.convert_to_tensor(-3, "int32"))
    expected = np.ones(shape)
    expected[5] = 0
    assert_close(v, expected)


@pytest.mark.parametrize("cls", [optimizers.SGD, optimizers.LazyAdam])
@EAGER_AND_TRACED
def test_no_look_ups_change_no_row(cls, traced):
    v = Variable(np.ones((5, 2)))
    optimizer = cls(1.0)
    optimizer.build([v])

    def step(ids):
        with GradientTape() as tape:
            loss = ops.sum(ops.take(v, ids, axis=0))
        optimizer.apply([tape.gradient(loss, v)], [v])

    (function(step) if traced else step)(ops.zeros((0,), "int32"))
    assert_close(v, np.ones((5, 2)))


@EAGER_AND_TRACED
def test_invalid_index_changes_no_row(traced):
    v = Variable(np.ones((ROWS, 2)))
    optimizer = optimizers.LazyAdam(1.0)
    optimizer.build([v])

    def step(ids):
        with GradientTape() as tape:
            loss = ops.sum(ops.take(v, ids, axis=0))
        optimizer.apply([tape.gradient(loss, v)], [v])

    step = function(step) if traced else step
    with pytest.raises(OutOfRangeError, match="40"):
        step(ops.convert_to_tensor([1, ROWS]))
    assert_close(v, np.ones((ROWS, 2)))
    assert int(optimizer.iterations) == 0


def test_custom_update_receives_dense_gradients():
    shapes = []

    class Own(optimizers.SGD):
        def update(self, g, p, slots, lr, step):
            shapes.append(g.shape)
            return super().update(g, p, slots, lr, step)

    class OwnStep(optimizers.LazyAdam):
        def update_step(self, gradient, variable, learning_rate):
            shapes.append(gradient.shape)

    for cls in (Own, OwnStep):
        train(cls(1.0), traced=False)
    assert set(shapes) == {(ROWS, UNITS), (2, 2)}


def test_table_without_weight_decay_is_updated_by_rows():
    optimizer = optimizers.SGD(RATE, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["table"])
    _, step, arguments = train(optimizer, traced=True)
    assert goes_by_rows(step, arguments)


def test_constraint_is_applied():
    v = Variable(np.ones((ROWS, 2)))
    v.constraint = constraints.NonNeg()
    with GradientTape() as tape:
        loss = ops.sum(ops.take(v, [1], axis=0))
    optimizers.LazyAdam(2.0).apply([tape.gradient(loss, v)], [v])
    assert_close(v.numpy()[:3], [[1, 1], [0, 0], [1, 1]])


def test_sums_over_steps_are_refused():
    with pytest.raises(ArgumentError, match="gradient_accumulation_steps"):
        optimizers.LazyAdam(gradient_accumulation_steps=2)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_embedding_in_a_model(dtype):
    """Update by rows in any policy, with equal bits for any number of threads."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 400, (2, 256, 1)).astype("int32")
    goal = rng.normal(size=(256, 8)).astype("float32")

    def trained(threads):
        toolkit.config.set_num_threads(threads)
        toolkit.utils.set_random_seed(1)
        table = layers.Embedding(4000, 8, mask_zero=True, dtype=dtype)
        model = toolkit.Sequential(
            [table, layers.GlobalAveragePooling1D(), layers.Dense(8)]
        )
        model.compile(optimizers.LazyAdam(0.01), "mse")
        losses = []
        for batch in ids:
            model.fit(batch, goal, batch_size=64, shuffle=False, verbose=0)
            losses.append(table.get_weights()[0])
        return losses

    try:
        (one, two), repeated = trained(1), trained(2)
    finally:
        toolkit.config.set_num_threads(None)
    changed = np.flatnonzero(np.any(one != two, axis=1))
    assert set(changed) == set(ids[1].reshape(-1))
    np.testing.assert_array_equal(repeated, (one, two))
