"""Test gradient accumulation in jobs: one exchange of gradients for each update."""

import numpy as np
import pytest

import toolkit as tk
from tests.comm import ranks
from tests.distribution import jobs
from toolkit import distribution, layers
from toolkit.distribution import DataParallel
from toolkit.optimizers.accumulators import Accumulator


def run(folder, processes, text, *arguments):
    """Return the reports of a job, which may take long on a busy machine."""
    return jobs.run(folder, processes, text, *arguments, timeout=100, seconds=240)


MODEL = """
    x = np.random.default_rng(0).normal(size=(43, 6)).astype("float32")
    y = x[:, :1].copy()
    parallel = distribution.DataParallel(shards=4)
    distribution.set_distribution(parallel)

    def build(steps=4, rate=0.2, **options):
        tk.utils.set_random_seed(0)
        model = tk.Sequential([
            layers.Dense(24, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(), layers.Dropout(rate), layers.Dense(1),
        ])
        options["gradient_accumulation_steps"] = steps
        model.compile(tk.optimizers.Adam(0.1, **options), "mse")
        return model

    data = dict(batch_size=8, shuffle=False, verbose=0)
"""

TRAINING = """
    found = []
    for options in ({}, {"global_clipnorm": 0.1, "use_ema": True}):
        model = build(**options)
        losses = model.fit(x, y, epochs=2, **data).history["loss"]
        found.append([losses, state_of(model)])  # in the middle of an accumulation
        model.fit(x[:41], y[:41], **data)  # the last batch has rows of one leaf only
        found.append(state_of(model))

    @tk.function(distribute=True)
    def step(x, y):
        with tk.GradientTape() as tape:
            loss = tk.ops.mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    model = build()
    losses = [float(step(x[i : i + 8], y[i : i + 8])) for i in range(0, 43, 8)]
    tell([found, losses, state_of(model)])
"""


@ranks.for_sizes
def test_one_hash_for_any_number_of_processes(tmp_path, sizes):
    limits = {"timeout": 100, "seconds": 240}
    reports = jobs.run_sizes(tmp_path, sizes, MODEL + TRAINING, **limits)
    assert all(report == reports[0] for report in reports)


EXCHANGES = """
    model = build(steps=4)
    model.fit(np.tile(x[:40], 4), y[:40], **data)
    rows = str(model.inspect()).split("exchanged")[1].splitlines()
    tell([row for row in rows if " batch " in row])
"""


def test_gradients_are_exchanged_only_if_they_are_needed(tmp_path):
    for rows in run(tmp_path, 2, MODEL + EXCHANGES):
        assert not any("all_gather" in row for row in rows)
        (gradients,) = [row for row in rows if "all_reduce, if needed" in row]
        assert "dense" in gradients
        sizes = [float(row.split()[2]) for row in rows if row is not gradients]
        # Batch normalization exchanges statistics, and sums of gradients, of 24 units.
        assert sum(sizes) < 0.7 < 1.4 < float(gradients.split()[2])


LOOKUPS = """
    class Lookup(layers.Layer):
        def build(self, shape):
            self.rows = self.add_weight((5000, 8), "uniform")
        def call(self, x):
            return tk.ops.take(self.rows, tk.ops.cast(x, "int32"), axis=0)

    indices = np.random.default_rng(0).integers(0, 5000, (43, 6))
    found = []
    for layer in (lambda: layers.Embedding(5000, 8), Lookup):
        tk.utils.set_random_seed(0)
        model = tk.Sequential([layer(), layers.Flatten(), layers.Dense(1)])
        optimizer = tk.optimizers.Adam(0.1, gradient_accumulation_steps=4)
        model.compile(optimizer, "mse")
        model.fit(indices, y, epochs=2, **data)
        found.append(state_of(model))
    tell(found)
"""


def test_tables_have_one_hash(tmp_path):
    (expected,) = run(tmp_path, 1, MODEL + LOOKUPS)
    assert run(tmp_path, 2, MODEL + LOOKUPS) == [expected] * 2


RESUMED = """
    folder, kind, until = sys.argv[1:]

    class Stop(tk.callbacks.Callback):
        steps = 0
        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            if self.steps == int(until): raise KeyError("stop")

    model = build()
    model.build((None, 6))
    calls = [Stop()]
    if kind == "manager":
        calls.insert(0, distribution.CheckpointManager(folder, save_freq=1))
    if kind == "backup":
        calls.insert(0, tk.callbacks.BackupAndRestore(folder, save_freq=1))
    try:
        model.fit(x, y, epochs=2, callbacks=calls, **data)
        tell(state_of(model))
    except KeyError:
        tell("stopped")
"""


@pytest.mark.parametrize("kind", ["manager", "backup"])
def test_a_stop_between_two_updates_changes_no_bit(tmp_path, kind):
    text, folder = MODEL + RESUMED, str(tmp_path / "saved")
    assert run(tmp_path, 3, text, folder, kind, "7") == ["stopped"] * 3
    reports = run(tmp_path, 2, text, folder, kind, "-1")
    (expected,) = run(tmp_path, 1, text, folder, "none", "-1")
    assert reports == [expected] * 2


SAVED = """
    model = build(rate=0)
    model.fit(x[:16], y[:16], **data)  # half of an accumulation
    distribution.Checkpoint(model).save("half")
    model.save("half.keras")
    model.save("half.h5")
    model.fit(x[:16], y[:16], **data)
    model.save("complete.keras")
    tell(0)
"""

LOADED = """
    import warnings
    warnings.simplefilter("ignore")
    if sys.argv[1] == "none":
        distribution.set_distribution(None)
    elif sys.argv[1] != "4":
        parallel = distribution.DataParallel(shards=int(sys.argv[1]))
        distribution.set_distribution(parallel)
    found = []
    for kind in ("half", "half.keras", "half.h5"):
        if kind == "half":
            model = build(rate=0)
            model.build((None, 6))
            distribution.Checkpoint(model).restore("half")
        else:
            model = tk.saving.load_model(kind)
        model.fit(x[:16], y[:16], **data)
        found.append([np.asarray(w).tolist() for w in model.get_weights()])
    tell(found)
"""


def test_stored_gradients_are_complete_in_any_job(tmp_path):
    run(tmp_path, 2, MODEL + SAVED)
    (expected,) = run(tmp_path, 1, MODEL + LOADED, "4")
    for processes, shards in ((2, "4"), (1, "none"), (1, "2"), (2, "3")):
        for weights in run(tmp_path, processes, MODEL + LOADED, shards):
            for kind, values in zip(("half", "keras", "h5"), weights, strict=True):
                for w, v in zip(values, expected[0], strict=True):
                    np.testing.assert_allclose(w, v, 1e-4, 1e-5, err_msg=kind)
    model = tk.saving.load_model(tmp_path / "complete.keras")
    shapes = [v.shape for v in model.optimizer.variables if isinstance(v, Accumulator)]
    assert shapes == [w.shape for w in model.trainable_variables]


SCALED = """
    tk.utils.set_random_seed(0)
    model = tk.Sequential([layers.Dense(4, activation="relu"), layers.Dense(1)])
    inner = tk.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    scaled = tk.optimizers.LossScaleOptimizer(inner, 2.0**10)
    model.compile(scaled, "mse")
    batches = x[:40].copy()
    batches[8] = np.inf  # in the second batch
    model.fit(batches, y[:40], **data)
    tell([state_of(model), int(inner._iterations), float(scaled.dynamic_scale)])
"""


def test_a_step_without_finite_gradients_is_skipped(tmp_path):
    reports = run(tmp_path, 1, MODEL + SCALED) + run(tmp_path, 2, MODEL + SCALED)
    assert reports[0] == reports[1] == reports[2]
    assert reports[0][1:] == [4, 2.0**9]


def test_elastic_and_sharded_optimizers_store_the_sum_of_all_processes():
    assert DataParallel(shards=4).num_accumulated_leaves(tk.Variable([1.0])) == 4
    sharded = DataParallel(shards=4, shard_optimizer=True)
    assert sharded.num_accumulated_leaves(tk.Variable([1.0])) == 1


def test_the_sums_of_leaves_are_values_of_one_process_too():
    with DataParallel(shards=4).scope():
        model = tk.Sequential([tk.Input((2,)), layers.Dense(1)])
        model.compile(tk.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse")
        x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
        model.train_on_batch(x, y)
        (kernel, _) = (v for v in model.optimizer.variables if "gradient" in v.path)
        assert kernel.shape == (4, 2, 1)
        kernel.assign(np.ones((2, 1)))  # the sum of all leaves
        assert kernel.numpy().sum() == 2 and kernel.numpy()[0].sum() == 2
    assert distribution.distribution() is None
    before = model.get_weights()[0]
    model.train_on_batch(x, y)  # outside of the distribution
    assert np.any(model.get_weights()[0] != before) and not np.any(kernel.numpy())
