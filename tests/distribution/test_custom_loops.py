"""Test training loops outside of `fit` in jobs of several processes."""

import numpy as np

import toolkit as tk
from tests.comm import ranks
from tests.distribution.jobs import run, run_sizes

LOOP = """
    distribution.set_distribution(distribution.DataParallel(shards=4))
    parallel = distribution.distribution()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(42, 5)).astype("float32")
    y = x.sum(1, keepdims=True)
    batches = tk.data.Dataset.from_tensor_slices((x, y)).shuffle(42, seed=1).batch(8)

    def build():
        tk.utils.set_random_seed(0)
        model = tk.Sequential([
            tk.Input((5,)), layers.Dense(8, activation="relu"),
            layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1),
        ])
        model.compile(tk.optimizers.Adam(0.01), "mse")
        return model

    def train_step(model, optimizer):
        def step(x, y):
            with tk.GradientTape() as tape:
                loss = tk.ops.mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss
        return step

    def refused(call):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            return str(error)
        return ""
"""

TRAINING = """
    digests = []
    for data in (parallel.distribute_dataset(batches), batches):
        model = build()
        step = tk.function(train_step(model, model.optimizer), distribute=True)
        for _ in range(2):
            losses = [float(step(*batch)) for batch in data]
        digests.append([state_of(model), losses])
    tell(digests)
"""


@ranks.for_sizes
def test_one_hash_for_any_number_of_processes(tmp_path, sizes):
    reports = run_sizes(tmp_path, sizes, LOOP + TRAINING)
    # Shuffled orders differ between the two loops of a script, not between processes.
    assert len({str(local) for local, _ in reports}) == 1
    assert len({str(global_batches) for _, global_batches in reports}) == 1


def test_a_last_batch_of_one_row_has_one_hash(tmp_path):
    """Three of four processes have no row of it."""
    text = """
    x, y = x[:33], y[:33]
    trained, looped = build(), build()
    history = trained.fit(x, y, batch_size=8, epochs=2, verbose=0).history
    results = [history, trained.evaluate(x, y, batch_size=8, verbose=0)]
    results.append(digest(trained.predict(x, batch_size=8, verbose=0)))
    rows = tk.data.Dataset.from_tensor_slices((x, y)).batch(8)
    step = tk.function(train_step(looped, looped.optimizer), distribute=True)
    results.append([float(step(*e)) for e in parallel.distribute_dataset(rows)])
    tell([*results, state_of(trained), state_of(looped)])
    """
    (single,) = run(tmp_path, 1, LOOP + text)
    assert run(tmp_path, 4, LOOP + text) == [single] * 4


def test_a_loop_equals_fit(tmp_path):
    text = """
    x, y = x[:40], y[:40]
    one, other = build(), build()
    step = tk.function(train_step(other, other.optimizer), distribute=True)
    one.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    for i in range(0, 40, 8):
        step(x[i : i + 8], y[i : i + 8])
    tell([[w.tolist() for w in m.get_weights()] for m in (one, other)])
    """
    reports = run(tmp_path, 2, LOOP + text)
    assert reports[0] == reports[1]
    for w, v in zip(*reports[0], strict=True):
        np.testing.assert_allclose(w, v, rtol=1e-4, atol=1e-6)


def test_training_apart_is_refused(tmp_path):
    text = """
    model = build()
    step = train_step(model, model.optimizer)
    shared = tk.function(step, distribute=True)
    local = next(iter(parallel.distribute_dataset(batches)))
    messages = [
        refused(lambda: step(*local)),
        refused(lambda: tk.function(step)(*local)),
        refused(lambda: shared(local[0] / 2, local[1])),
        refused(lambda: shared(local[0] / 2, local[1] / 2)),
        refused(lambda: shared(x[rank : rank + 8], y[:8])),
        refused(lambda: shared(x[: 8 + rank], y[: 8 + rank])),
    ]
    model = build()
    step = train_step(model, model.optimizer)
    shared = tk.function(step, distribute=True)
    if rank:
        model.layers[0].kernel.assign(model.layers[0].kernel * 2)
    for _ in range(2):  # a refused call leaves no program
        messages.append(refused(lambda: shared(x[:8], y[:8])))
    shards = batches.unbatch().shard(size, rank).batch(4)
    messages.append(refused(lambda: build().fit(shards, verbose=0)))
    tell(messages)
    """
    for messages in run(tmp_path, 2, LOOP + text):
        eager, plain, one_changed, both_changed, values, shapes = messages[:6]
        *weights, shards = messages[6:]
        for message in (eager, plain):
            assert "adam.apply: each of the 2 processes" in message
            assert "toolkit.function(step, distribute=True)" in message
        assert "step: expected the arrays of one element" in one_changed
        for message in (both_changed, values):
            assert "step: expected the same batch on all processes" in message
        assert "step: expected data of the same length and shapes" in shapes
        assert all("step: expected the same weights" in text for text in weights)
        assert "shard(2, 0) on rank 0" in shards and "remove `shard`" in shards


def test_other_arguments(tmp_path):
    text = """
    @tk.function(distribute=True)
    def total(x, factor, table, flag=False, name=""):
        return tk.ops.sum(x) * factor + tk.ops.sum(table) * flag

    @tk.function(distribute=True)
    def last(table, x):
        return tk.ops.sum(x) * tk.ops.sum(table)

    table = np.arange(3, dtype="float32")
    element = next(iter(parallel.distribute_dataset(batches)))[0]
    constant = tk.function(lambda x: tk.ops.sum(x) * (rank + 2), distribute=True)
    tell([
        [float(total(v, 2.0, table, flag=True, name="a")) for v in (x[:8], element)],
        float(last(table, np.ones((8, 2), "float32"))),
        refused(lambda: last(table, element)),
        refused(lambda: last(x=element, table=table)),
        refused(lambda: total(x[:8], 2.0 + rank, table)),
        refused(lambda: constant(x[:8])),
    ])
    """
    single, *reports = run(tmp_path, 1, LOOP + text) + run(tmp_path, 2, LOOP + text)
    for values, product, first, named, numbers, constants in reports:
        assert [values, product] == single[:2]
        for message in (first, named):
            assert "last: expected the rows of a batch before other arrays" in message
        assert "2.0, (3,) float32" in numbers and "3.0, (3,) float32" in numbers
        assert "differs between ranks" in constants and "of [3.0]" in constants


def test_rows_of_one_process_and_settings_that_differ_are_refused(tmp_path):
    text = """
    local = parallel.distribute_dataset(batches)
    element = next(iter(local))
    messages = [
        refused(lambda: build().train_on_batch(*element)),
        refused(lambda: build().predict_on_batch(element[0] * 2)),
        refused(lambda: build().fit(local.take(2), verbose=0)),
        refused(lambda: build().fit((batch for batch in local), verbose=0)),
    ]
    model = build()
    step = tk.function(train_step(model, model.optimizer), distribute=True)
    step(*element)
    model.optimizer.learning_rate = 0.02
    step(*element)
    model.optimizer.learning_rate = 0.01 * (1 + rank)
    messages.append(refused(lambda: step(*element)))
    distribution.set_distribution(distribution.DataParallel(auto_shard_dataset=False))
    model = build()
    model.compile("adam", "mse", run_eagerly=True)
    messages.append(refused(lambda: model.fit(x[:8], y[:8], verbose=0)))
    tell(messages)
    """
    for messages in run(tmp_path, 2, LOOP + text):
        *rows, settings, eager = messages
        assert all("expected all rows of a batch" in message for message in rows)
        assert "learning_rate with the first values [0.01" in settings
        assert "`fit` without run_eagerly=True" in eager


def test_weights_that_one_process_assigns_are_refused(tmp_path):
    text = """
    element = next(iter(parallel.distribute_dataset(batches)))

    def training(distribute=True):
        model = build()
        step = tk.function(train_step(model, model.optimizer), distribute=distribute)
        return model, model.layers[0].kernel, step

    def double(kernel):
        kernel.assign(kernel * 2)

    compiled = tk.function(double)
    messages = []
    for assign in (double, lambda kernel: compiled(kernel)):
        model, kernel, step = training()
        step(*element)
        before = kernel.numpy()
        if rank:
            assign(kernel)
        for _ in range(2):  # also the next call
            messages.append(refused(lambda: step(*element)))
        if rank:
            kernel.assign(before)
        step(*element)  # equal values again
        double(kernel)
        step(*element)
    model, kernel, step = training()
    model.train_on_batch(x[:8], y[:8])
    if rank:
        double(kernel)
    messages.append(refused(lambda: model.train_on_batch(x[:8], y[:8])))
    messages.append(refused(lambda: model.predict(x[:8], verbose=0)))
    model, kernel, step = training()
    once = lambda epoch, logs: double(kernel) if rank and not epoch else None
    calls = [tk.callbacks.LambdaCallback(on_epoch_begin=once)]
    train = lambda: model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=calls)
    messages.append(refused(train))
    tell(messages)
    """
    first, second = run(tmp_path, 2, LOOP + text)
    assert first == second
    for message in first:
        assert "expected the same weights" in message and "/kernel with" in message
    assert [m.partition(":")[0] for m in first] == [
        *["step"] * 4,
        *["train_on_batch", "predict", "fit"],
    ]


def test_an_array_with_the_rows_of_one_process_is_refused_by_all(tmp_path):
    text = """
    @tk.function(distribute=True)
    def total(x, table):
        return tk.ops.sum(x) * tk.ops.sum(table)

    data = tk.data.Dataset.from_tensor_slices(np.ones((10, 5), "float32")).batch(10)
    element = next(iter(parallel.distribute_dataset(data)))
    tables = [np.ones(n, "float32") for n in (2, 3, 5, 10, 4)]
    tell([len(element), [refused(lambda: total(element, t)) for t in tables]])
    """
    reports = run(tmp_path, 3, LOOP + text)
    counts = [count for count, _ in reports]
    assert len(set(counts)) > 1, "the test needs different shares"
    for _, messages in reports:
        assert messages == reports[0][1]
        for number, message in zip((2, 3, 5, 10, 4), messages, strict=True):
            is_refused = number in (*counts, 10)
            assert ("arrays of one element" in message) == is_refused, message


def test_updates_by_hand_are_refused(tmp_path):
    text = """
    model = build()
    variables = model.trainable_variables

    def step(x, y):
        with tk.GradientTape() as tape:
            loss = tk.ops.mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, variables)
        for v, g in zip(variables, gradients):
            v.assign_sub(0.1 * g)

    before = digest(*model.variables)
    element = next(iter(parallel.distribute_dataset(batches)))
    messages = [
        refused(lambda: step(*element)),
        refused(lambda: step(*element)),
        refused(lambda: tk.function(step)(*element)),
    ]
    assert digest(*model.variables) == before, "no weight has changed"
    model.set_weights(model.get_weights())  # these values are no updates
    variables[0].assign(variables[0] * 2)
    shared = tk.function(step, distribute=True)
    for element in parallel.distribute_dataset(batches):
        shared(*element)
    tell([messages, digest(*variables)])
    """
    first, second = run(tmp_path, 2, LOOP + text)
    assert first == second
    for message in first[0]:
        assert "dense/kernel.assign: each of the 2 processes" in message
        assert "toolkit.function(step, distribute=True)" in message


def test_rows_that_a_script_divides_are_refused(tmp_path):
    """Each process would drop most of its rows, because it takes its part of them."""
    text = """
    x, y = x[:40], y[:40]
    Dataset = tk.data.Dataset

    class Local(tk.utils.PyDataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            rows = slice(index * 4, index * 4 + 4)
            return x[rank::size][rows], y[rank::size][rows]

    def generate():
        for first in range(0, 40, 8):
            yield x[first + rank : first + 8 : size], y[first + rank : first + 8 : size]

    numbers = Dataset.range(40)
    rows = Dataset.from_tensor_slices((x, y))
    local_numbers = numbers.filter(lambda i: i % size == rank)
    filtered = local_numbers.map(lambda i: (x[int(i)], y[int(i)])).batch(4)
    sliced = Dataset.from_tensor_slices((x[rank::size], y[rank::size])).batch(4)
    model = build()
    shared = tk.function(train_step(model, model.optimizer), distribute=True)

    def loop(data):
        for element in parallel.distribute_dataset(data):
            shared(*element)

    tell([
        refused(lambda: build().fit(generate(), verbose=0)),
        refused(lambda: build().fit(Local(), verbose=0)),
        refused(lambda: build().fit(filtered, verbose=0)),
        refused(lambda: build().fit(sliced, verbose=0)),
        refused(lambda: build().fit(sliced.map(lambda *row: row), verbose=0)),
        refused(lambda: build().evaluate(filtered, verbose=0)),
        refused(lambda: build().predict(sliced.map(lambda x, y: x), verbose=0)),
        refused(lambda: build().train_on_batch(x[rank:8:size], y[rank:8:size])),
        refused(lambda: loop(filtered)),
        refused(lambda: loop(sliced)),
        refused(lambda: loop(rows.shard(size, rank).batch(4))),
        refused(lambda: build().fit(rows.batch(4), verbose=0)),
        refused(lambda: loop(rows.batch(4))),
    ])
    """
    assert run(tmp_path, 1, LOOP + text) == [[""] * 13]
    for *messages, fit, loop in run(tmp_path, 2, LOOP + text):
        assert fit == loop == ""
        for message in messages:
            assert "expected the same rows in the same order" in message, message
            assert "remove `shard`" in message and "auto_shard_dataset=False" in message


def test_a_custom_loop_without_a_distribution_warns_once(tmp_path):
    text = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        v = tk.Variable(1.0)
        optimizer = tk.optimizers.SGD(0.1)
        optimizer.build([v])
        for _ in range(2):
            optimizer.apply_gradients([(tk.ops.ones(()), v)])
    tell([str(w.message) for w in caught])
    """
    first, second = run(tmp_path, 2, text)
    assert second == [] and len(first) == 1
    assert "sgd.apply: each of the 2 processes of this job" in first[0]


def test_a_job_without_a_distribution_warns_once(tmp_path):
    text = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = np.ones((8, 5), "float32")
        model = network()
        model.fit(x, x[:, :1], verbose=0)
        model.fit(x, x[:, :1], verbose=0)
    tell([str(w.message) for w in caught])
    """
    first, second = run(tmp_path, 2, text)
    assert second == []
    assert len(first) == 1 and "each of the 2 processes of this job" in first[0]
    assert "set_distribution" in first[0]


def test_distribute_has_no_effect_in_one_process():
    @tk.function(distribute=True)
    def double(x, times=2):
        return x * times

    assert double(tk.ops.ones(3)).tolist() == [2, 2, 2]
    assert double(tk.ops.ones(3), times=3).tolist() == [3, 3, 3]
