"""Test gradient accumulation in jobs: one exchange of gradients for each update."""

from tests.distribution.jobs import needs_mpi, run

MODEL = """
    x = np.random.default_rng(0).normal(size=(43, 6)).astype("float32")
    y = x[:, :1].copy()
    parallel = distribution.DataParallel(shards=4)
    distribution.set_distribution(parallel)

    def build(steps=4, **options):
        tk.utils.set_random_seed(0)
        model = tk.Sequential([
            layers.Dense(24, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1),
        ])
        options["gradient_accumulation_steps"] = steps
        model.compile(tk.optimizers.Adam(0.1, **options), "mse")
        model.build((None, 6))
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


def reports_of(folder, text, *arguments):
    """Return the reports of all processes of jobs with 1 to 4 processes."""
    found = []
    for processes in (1, 2, 3, 4):
        path = folder / str(processes)
        path.mkdir()
        found += run(path, processes, MODEL + text, *arguments)
    return found


@needs_mpi
def test_one_hash_for_any_number_of_processes(tmp_path):
    first, *others = reports_of(tmp_path, TRAINING)
    assert len(others) == 9 and all(report == first for report in others)


EXCHANGES = """
    model = build(steps=4)
    model.fit(x[:40], y[:40], **data)
    rows = str(model.inspect()).split("exchanged")[1].splitlines()
    tell([row for row in rows if "all_" in row])
"""


@needs_mpi
def test_gradients_are_exchanged_only_if_they_are_needed(tmp_path):
    for rows in run(tmp_path, 2, MODEL + EXCHANGES):
        assert not any("all_gather" in row for row in rows)
        (gradients,) = [row for row in rows if "all_reduce, if needed" in row]
        assert "dense" in gradients
        sizes = [float(row.split()[2]) for row in rows if row is not gradients]
        # Statistics of batch normalization, the loss, and gradients that depend on them
        assert sum(sizes) < 1.2 < float(gradients.split()[2])
