"""Test `fit` and related methods: numbers, sample order, traces, interrupts."""

import signal
import warnings

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, layers, ops
from toolkit.callbacks import Callback, LambdaCallback
from toolkit.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 5)).astype("float32")
Y = RNG.normal(size=(20, 3)).astype("float32")


@pytest.fixture
def float64():
    toolkit.config.set_floatx("float64")
    yield
    toolkit.config.set_floatx("float32")


def linear(loss="mse", **arguments):
    model = Sequential([Input((5,)), layers.Dense(3)])
    model.compile("sgd", loss, **arguments)
    return model


def small_batches(n=4):
    return [(X[5 * i : 5 * i + 5], Y[5 * i : 5 * i + 5]) for i in range(n)]


# --- the same numbers as NumPy --------------------------------------------------------


def forward(w, x):
    z = x @ w[0] + w[1]
    h = np.maximum(z, 0)
    return z, h, h @ w[2] + w[3]


def gradients(w, x, y, weights):
    """Return gradients of the mean weighted squared error of a two-layer MLP."""
    z, h, out = forward(w, x)
    g = 2 * (out - y) / out.size * weights[:, None]
    gh = (g @ w[2].T) * (z > 0)
    return [x.T @ gh, gh.sum(0), h.T @ g, g.sum(0)]


def sgd(w, g, state, rate=0.125, momentum=0.9):
    for i in range(len(w)):
        state[i] = momentum * state.get(i, 0) - rate * g[i]
        w[i] = w[i] + state[i]


def adam(w, g, state, rate=2**-7, b1=0.9, b2=0.999, epsilon=1e-7):
    t = state["t"] = state.get("t", 0) + 1
    for i in range(len(w)):
        m, v = state.get(i, (0, 0))
        m, v = b1 * m + (1 - b1) * g[i], b2 * v + (1 - b2) * g[i] ** 2
        state[i] = m, v
        scale = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
        w[i] = w[i] - scale * m / (np.sqrt(v) + epsilon)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "make, update",
    [
        (lambda: toolkit.optimizers.SGD(0.125, momentum=0.9), sgd),
        (lambda: toolkit.optimizers.Adam(2**-7), adam),
    ],
    ids=["sgd", "adam"],
)
def test_training_equals_numpy(float64, make, update, weighted):
    model = Sequential(
        [Input((5,)), layers.Dense(7, activation="relu"), layers.Dense(3)]
    )
    model.compile(make(), "mse")
    w = [v.astype("float64") for v in model.get_weights()]
    x, y = X.astype("float64"), Y.astype("float64")
    sample_weight = RNG.uniform(0.5, 2, 20) if weighted else None
    factors = np.ones(20) if sample_weight is None else sample_weight
    history = model.fit(
        *(x, y),
        batch_size=8,
        epochs=3,
        shuffle=False,
        verbose=0,
        sample_weight=sample_weight,
    )
    state, losses = {}, []
    for _ in range(3):
        total = 0.0
        for rows in (slice(0, 8), slice(8, 16), slice(16, 20)):
            errors = ((forward(w, x[rows])[2] - y[rows]) ** 2).mean(-1)
            total += (errors * factors[rows]).sum()
            update(w, gradients(w, x[rows], y[rows], factors[rows]), state)
        losses.append(total / 20)
    np.testing.assert_allclose(history.history["loss"], losses, rtol=1e-6)
    for actual, expected in zip(model.get_weights(), w, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_eager_and_compiled_steps_agree(jit_compile):
    results = []
    for arguments in ({"run_eagerly": True}, {"jit_compile": jit_compile}):
        toolkit.random.set_random_seed(3)
        model = linear(metrics=["mae"], **arguments)
        history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
        results.append((model.get_weights(), history.history))
    for a, b in zip(results[0][0], results[1][0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    for name, values in results[0][1].items():
        np.testing.assert_allclose(values, results[1][1][name], rtol=1e-5)


def test_ragged_last_batches_are_weighted_by_their_size():
    model = linear(metrics=["mae"])
    expected = np.abs(model.predict(X, verbose=0) - Y).mean()
    loss, mae = model.evaluate(X, Y, batch_size=7, verbose=0)
    assert mae == pytest.approx(expected, rel=1e-5)
    assert loss == pytest.approx(((model(X).numpy() - Y) ** 2).mean(), rel=1e-5)


def test_predict_shapes():
    model = linear()
    for batch_size in (1, 6, 7, 20, 64):
        predictions = model.predict(X, batch_size=batch_size, verbose=0)
        np.testing.assert_allclose(predictions, model(X), rtol=1e-5, atol=1e-6)
    a = Input((5,))
    several_outputs = Model(a, {"twice": a * 2.0, "pair": (a, layers.Dense(2)(a))})
    predictions = several_outputs.predict(X, batch_size=8, verbose=0)
    np.testing.assert_allclose(predictions["twice"], 2 * X)
    assert predictions["pair"][0].shape == (20, 5)
    assert predictions["pair"][1].shape == (20, 2)
    assert type(several_outputs.predict_on_batch(X[:3])["twice"]) is np.ndarray


class Watcher(toolkit.callbacks.Callback):
    """A callback that makes a run watched."""


# Data of one batch, or data to be refused.
ONE_BATCH = {
    "a few": X[:3],
    "all": X,
    "wider floats": X.astype("float64"),
    "integers": np.arange(10).reshape(2, 5),
    "a view": X[::2, ::-1],
    "none": X[:0],
    "a scalar": np.array(1.0),
    "text": np.array(["a", "b"]),
    "objects": np.array([None, 1.0], object),
    "another width": X[:, :2],
}


@pytest.mark.parametrize("name", ONE_BATCH)
def test_single_batch_prediction_equals_a_watched_run(name):
    model, x = linear(), ONE_BATCH[name]
    outputs = []
    for callbacks in (None, [Watcher()]):
        try:
            outputs.append(model.predict(x, verbose=0, callbacks=callbacks))
        except Exception as error:
            outputs.append((type(error), str(error)))
    if isinstance(outputs[1], tuple):
        assert outputs[0] == outputs[1]
    else:
        assert outputs[0].dtype == outputs[1].dtype
        np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_predictions_are_copies(run_eagerly):
    inputs = Input((5,))
    model = Model(inputs, inputs)
    model.compile(run_eagerly=run_eagerly)
    for predictions in (model.predict(X, verbose=0), model.predict_on_batch(X)):
        assert not np.shares_memory(predictions, X)
        predictions[:] = 0  # and can be written to


def test_regularizers_and_added_losses_are_part_of_the_loss():
    class Added(layers.Layer):
        def call(self, x):
            self.add_loss(ops.mean(ops.square(x)))
            return x

    dense = layers.Dense(3, kernel_regularizer=toolkit.regularizers.L2(0.1))
    model = Sequential([Input((5,)), dense, Added()])
    model.compile("sgd", "mse")
    outputs = model(X).numpy()
    kernel = dense.kernel.numpy()
    expected = ((outputs - Y) ** 2).mean() + 0.1 * (kernel**2).sum()
    expected += (outputs**2).mean()
    assert model.evaluate(X, Y, batch_size=20, verbose=0) == pytest.approx(expected)


def test_class_weights():
    labels = np.array([0, 1, 2, 1] * 5)
    class_weight = {0: 2.0, 2: 0.5}
    weights = np.array([2.0, 1.0, 0.5, 1.0] * 5)
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = linear(loss)
    start = model.get_weights()
    results = []
    for arguments in ({"class_weight": class_weight}, {"sample_weight": weights}):
        model.set_weights(start)
        history = model.fit(X, labels, shuffle=False, verbose=0, **arguments)
        results.append((history.history["loss"], model.get_weights()))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(a, b)
    one_hot = np.eye(3, dtype="float32")[labels]
    model = linear(toolkit.losses.CategoricalCrossentropy(from_logits=True))
    model.set_weights(start)
    repeated = model.fit(
        X, one_hot, shuffle=False, verbose=0, class_weight=class_weight
    )
    assert repeated.history["loss"] == pytest.approx(results[0][0], rel=1e-5)
    model.set_weights(start)
    single = model.train_on_batch(X, one_hot, class_weight=class_weight)
    assert single == pytest.approx(results[0][0][0], rel=1e-5)


def test_masks_weight_the_loss():
    inputs = Input((3,), dtype="int32")
    x = layers.Embedding(5, 2, mask_zero=True)(inputs)
    model = Model(inputs, x)
    model.compile("sgd", "mse")
    tokens, y = np.array([[1, 2, 0]]), np.zeros((1, 3, 2), "float32")
    table = model.get_weights()[0]
    expected = (table[[1, 2]] ** 2).mean()
    assert model.evaluate(tokens, y, verbose=0) == pytest.approx(expected, rel=1e-5)


# --- one graph ------------------------------------------------------------------------


def test_step_is_traced_once_per_signature():
    traces = []

    class Counting(layers.Layer):
        def call(self, x):
            traces.append(x.shape)
            return x

    model = Sequential([Input((5,)), Counting(), layers.Dense(3)])
    model.compile("adam", "mse", metrics=["mae"])
    traces.clear()
    model.fit(X[:16], Y[:16], batch_size=4, epochs=3, verbose=0)
    assert traces.count((4, 5)) <= 2  # one to infer shapes, one for the graph
    assert model.train_function.trace_count == 1
    model.fit(X[:18], Y[:18], batch_size=4, epochs=2, verbose=0)
    assert model.train_function.trace_count == 2  # the ragged last batch


def test_complete_step_is_one_program():
    model = linear(metrics=["mae"])
    model.fit(X, Y, batch_size=20, verbose=0)
    inspection = model.inspect()
    text = str(inspection)
    assert "train_step" in text
    assert inspection.peak_bytes > 0
    assert "matmul" in text
    assert "predict_step" in str(model.inspect(X[:4]))


def test_batches_share_memory_with_unshuffled_arrays():
    batches = []

    class Spy(Model):
        def train_step(self, data):
            batches.append(data[0].numpy())
            return {"loss": ops.convert_to_tensor(0.0)}

    inputs = Input((5,))
    model = Spy(inputs, inputs)
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert all(np.shares_memory(batch, X) for batch in batches)


# --- order and seeds ------------------------------------------------------------------


def order_of(epochs=1, **arguments):
    orders = []

    class Spy(Model):
        def train_step(self, data):
            orders.extend(data[0].numpy()[:, 0].tolist())
            return {"loss": ops.convert_to_tensor(0.0)}

    inputs = Input((1,))
    model = Spy(inputs, inputs)
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.arange(10, dtype="float32")[:, None]
    model.fit(x, x, batch_size=4, epochs=epochs, verbose=0, **arguments)
    return orders


def test_shuffling_is_seeded():
    toolkit.random.set_random_seed(5)
    first = order_of(epochs=2)
    assert sorted(first[:10]) == sorted(first[10:]) == list(range(10))
    assert first[:10] != first[10:]
    assert first[:10] != list(range(10))
    toolkit.random.set_random_seed(5)
    assert order_of(epochs=2) == first
    assert order_of(shuffle=False) == list(range(10))
    batches = order_of(shuffle="batch")
    assert [sorted(batches[i : i + 4]) for i in (0, 4, 8)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_same_seed_same_bits():
    def run():
        toolkit.random.set_random_seed(7)
        model = Sequential(
            [Input((5,)), layers.Dense(8), layers.Dropout(0.3), layers.Dense(3)]
        )
        model.compile("adam", "mse")
        model.fit(X, Y, batch_size=6, epochs=3, verbose=0)
        return model.get_weights()

    for a, b in zip(run(), run(), strict=True):
        np.testing.assert_array_equal(a, b)


# --- other kinds of data --------------------------------------------------------------


class Batches:
    """A sequence of batches with a hook at the end of epochs."""

    def __init__(self):
        self.calls = []

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.calls.append(i)
        return small_batches()[i]

    def on_epoch_end(self):
        self.calls.append("end")


@pytest.mark.parametrize(
    ("epochs", "steps", "expected"),
    [
        (2, None, ["B", 0, 1, 2, 3, "E", "B", 4, 5, 6, 7, "E"]),
        (2, 2, ["B", 0, 1, "E", "B", 2, 3, "E"]),
        (2, 3, ["B", 0, 1, 2, "E", "B", 3, "E"]),
        (3, 1, ["B", 0, "E", "B", 1, "E", "B", 2, "E"]),
    ],
)
def test_hooks_run_at_the_start_and_end_of_epochs(epochs, steps, expected):
    calls = []

    class Told(toolkit.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return small_batches()[i]

        def on_epoch_begin(self):
            calls.append("B")

        def on_epoch_end(self):
            calls.append("E")

    class Counted(toolkit.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            calls.append(sum(isinstance(call, int) for call in calls))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the data ran out")
        linear().fit(
            Told(),
            epochs=epochs,
            steps_per_epoch=steps,
            callbacks=[Counted()],
            shuffle=False,
            verbose=0,
        )
    assert calls == expected


def test_all_kinds_of_data_train_equally():
    losses = []
    for x, y in (
        (X, Y),
        (ops.convert_to_tensor(X), ops.convert_to_tensor(Y)),
        (X.astype("float64"), Y.astype("float64")),
        (iter(small_batches()), None),
        ((batch for batch in small_batches()), None),
        (Batches(), None),
    ):
        toolkit.random.set_random_seed(0)
        model = linear()
        batch_size = 5 if y is not None else None
        history = model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    assert all(loss == losses[0] for loss in losses)


def test_sequences_of_batches_are_shuffled_and_notified_of_epochs():
    toolkit.random.set_random_seed(1)
    model, batches = linear(), Batches()
    model.fit(batches, epochs=2, verbose=0)
    assert batches.calls[4] == batches.calls[9] == "end"
    assert sorted(batches.calls[:4]) == sorted(batches.calls[5:9]) == [0, 1, 2, 3]
    assert model.predict(batches, verbose=0).shape == (20, 3)


def test_iterables_are_restarted_each_epoch():
    class Data:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(small_batches())

    data, model = Data(), linear()
    model.fit(data, epochs=3, verbose=0)
    assert data.passes == 3


def test_steps_per_epoch_continues_after_the_last_batch():
    batches = []

    def generator():
        i = 0
        while True:
            batches.append(i)
            yield small_batches()[i % 4]
            i += 1

    model = linear()
    history = model.fit(generator(), steps_per_epoch=3, epochs=2, verbose=0)
    assert batches == [0, 1, 2, 3, 4, 5]
    assert len(history.history["loss"]) == 2
    assert model.evaluate(generator(), steps=2, verbose=0) > 0
    assert model.predict(generator(), steps=2, verbose=0).shape == (10, 3)


def test_exhausted_data_stops_training_with_a_warning():
    model = linear()
    with pytest.warns(UserWarning, match="ran out after 1 of 3 steps"):
        history = model.fit(
            iter(small_batches()), steps_per_epoch=3, epochs=5, verbose=0
        )
    assert len(history.history["loss"]) == 2
    with pytest.warns(UserWarning, match="ran out after 0"):
        history = model.fit(iter(small_batches()), epochs=5, verbose=0)
    assert len(history.history["loss"]) == 1


def test_dicts_and_lists_of_arrays():
    a, b = Input((5,), name="a"), Input((5,), name="b")
    model = Model({"a": a, "b": b}, [layers.Dense(3)(a + b), layers.Dense(1)(b)])
    model.compile("sgd", "mse")
    y = [Y, Y[:, :1]]
    history = model.fit({"a": X, "b": X}, y, batch_size=8, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    predictions = model.predict({"b": X, "a": X}, batch_size=8, verbose=0)
    assert [array.shape for array in predictions] == [(20, 3), (20, 1)]
    weights = [np.ones(20), np.zeros(20)]
    logs = model.evaluate(
        *({"a": X, "b": X}, y), sample_weight=weights, return_dict=True, verbose=0
    )
    assert logs["loss"] == pytest.approx(((predictions[0] - Y) ** 2).mean(), rel=1e-4)


def test_class_weights_of_existing_batches():
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
    labels = np.array([0, 1, 2, 1, 0] * 4)
    batches = [(X[i : i + 5], labels[i : i + 5]) for i in range(0, 20, 5)]
    model = linear(loss)
    start, losses = model.get_weights(), []
    for x, y in ((iter(batches), None), (X, labels)):
        model.set_weights(start)
        size = None if y is None else 5
        arguments = {"class_weight": {1: 3.0}, "shuffle": False, "verbose": 0}
        history = model.fit(x, y, batch_size=size, **arguments)
        losses.append(history.history["loss"])
    assert losses[0] == losses[1]


class Endless:
    num_batches = None

    def __getitem__(self, i):
        return small_batches()[i % 4]


class EndlessWithLength(Endless):
    def __len__(self):
        return 4


@pytest.mark.parametrize("kind", [Endless, EndlessWithLength])
def test_infinite_sequences_need_steps(kind):
    model = linear()
    history = model.fit(kind(), steps_per_epoch=5, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    assert int(model.optimizer.iterations) == 10


def test_packing_and_unpacking_batches():
    unpack = toolkit.utils.unpack_x_y_sample_weight
    pack = toolkit.utils.pack_x_y_sample_weight
    assert unpack("x") == unpack(("x",)) == ("x", None, None)
    assert unpack(["x", "y"]) == ("x", "y", None)
    assert unpack(("x", "y", "w")) == ("x", "y", "w")
    assert pack("x") == "x"
    assert pack(["x"]) == (["x"],)
    assert pack("x", "y") == ("x", "y")
    assert pack("x", "y", "w") == ("x", "y", "w")


def test_subclassed_model_is_built_explicitly_or_by_fit():
    class Net(Model):
        def __init__(self):
            super().__init__()
            self.parts = {"a": layers.Dense(3), "b": [layers.Dense(3)]}

        def call(self, inputs, training=None):
            return self.parts["a"](inputs["x"]) + self.parts["b"][0](inputs["y"])

    model = Net()
    model.build({"x": (None, 5), "y": (None, 5)})
    assert model.built
    assert len(model.trainable_weights) == 4
    model = Net()
    model.compile("sgd", "mse")
    model.fit({"x": X, "y": X}, Y, batch_size=8, verbose=0)
    assert model.count_params() == 2 * (5 * 3 + 3)


# --- validation -----------------------------------------------------------------------


def test_validation_split_takes_the_last_samples():
    model = linear()
    model.compile(toolkit.optimizers.SGD(0.0), "mse")
    history = model.fit(X, Y, validation_split=0.25, verbose=0, epochs=2)
    outputs = model(X).numpy()
    losses = ((outputs - Y) ** 2).mean(-1)
    assert history.history["loss"][0] == pytest.approx(losses[:15].mean(), rel=1e-5)
    assert history.history["val_loss"][0] == pytest.approx(losses[15:].mean(), rel=1e-5)


def test_validation_data_weights_frequency_and_steps():
    model = linear()
    weights = np.ones(20)
    history = model.fit(X, Y, validation_data=(X, Y, weights), verbose=0)
    assert set(history.history) == {"loss", "val_loss"}
    arguments = {"validation_data": (X, Y), "epochs": 4, "verbose": 0}
    history = model.fit(X, Y, validation_freq=2, **arguments)
    assert len(history.history["val_loss"]) == 2
    history = model.fit(X, Y, validation_freq=[1, 2, 4], **arguments)
    assert len(history.history["val_loss"]) == 3
    epochs = []
    count = LambdaCallback(on_test_batch_end=lambda batch, logs: epochs.append(batch))
    model.fit(
        *(X, Y),
        validation_steps=2,
        validation_batch_size=4,
        callbacks=[count],
        **arguments,
    )
    assert epochs == [0, 1] * 4
    model.fit(X, Y, validation_data=Batches(), verbose=0)


# --- single steps ---------------------------------------------------------------------


def test_single_batches():
    model = linear(metrics=["mae"])
    before = model.get_weights()
    loss, mae = model.test_on_batch(X, Y)
    assert loss == pytest.approx(((model(X).numpy() - Y) ** 2).mean(), rel=1e-5)
    logs = model.train_on_batch(X, Y, return_dict=True)
    assert logs["loss"] == pytest.approx(loss, rel=1e-5)
    assert set(logs) == {"loss", "mae"}
    assert mae == pytest.approx(logs["mae"], rel=1e-5)
    assert not np.array_equal(before[0], model.get_weights()[0])
    weights = np.arange(20, dtype="float32")
    errors = ((model(X).numpy() - Y) ** 2).mean(-1)
    results, _ = model.test_on_batch(X, Y, sample_weight=weights)
    assert results == pytest.approx((errors * weights).mean(), rel=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(X), model(X), rtol=1e-5)


# --- overriding -----------------------------------------------------------------------


def test_overriding_train_step_and_metrics():
    class Custom(Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)
            self.tracker = toolkit.metrics.Mean(name="my_loss")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with toolkit.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x))
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply(gradients, self.trainable_weights)
            self.tracker.update_state(loss)
            return {"my_loss": self.tracker.result()}

        @property
        def metrics(self):
            return [self.tracker]

    model = Custom()
    model.compile("sgd", "mse")
    history = model.fit(X, Y, epochs=3, verbose=0)
    assert list(history.history) == ["my_loss"]
    losses = history.history["my_loss"]
    assert losses[2] < losses[0]


def test_overriding_compute_loss_and_compute_metrics():
    class Custom(Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return ops.mean(ops.abs(y - y_pred))

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            return {**super().compute_metrics(x, y, y_pred, sample_weight), "two": 2.0}

    inputs = Input((5,))
    model = Custom(inputs, layers.Dense(3)(inputs))
    model.compile(toolkit.optimizers.SGD(0.0))
    history = model.fit(X, Y, batch_size=20, verbose=0)
    expected = np.abs(model(X).numpy() - Y).mean()
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)
    assert history.history["two"] == [2.0]


def test_stateless_compute_loss_changes_no_variable():
    model = linear()
    model.fit(X, Y, verbose=0)
    before = [v.numpy() for v in model.metrics_variables]
    loss, (trainable, _, metrics) = model.stateless_compute_loss(
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
        [v.value for v in model.metrics_variables],
        y=Y,
        y_pred=model(X),
    )
    assert float(loss) == pytest.approx(((model(X).numpy() - Y) ** 2).mean(), rel=1e-5)
    assert len(trainable) == 2
    assert len(metrics) == len(before)
    for v, value in zip(model.metrics_variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)


def test_frozen_layers_do_not_change():
    frozen = layers.Dense(4, trainable=False)
    model = Sequential([Input((5,)), frozen, layers.Dense(3)])
    model.compile("sgd", "mse")
    before = frozen.get_weights()
    model.fit(X, Y, verbose=0)
    for a, b in zip(before, frozen.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_freezing_after_compile_warns():
    model = Sequential([Input((5,)), layers.Dense(4), layers.Dense(3)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    model.layers[0].trainable = False
    before = model.layers[0].get_weights()
    with pytest.warns(UserWarning, match=r"compile\(\) again"):
        model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(before[0], model.layers[0].get_weights()[0])


def test_steps_per_execution_calls_callbacks_less_often():
    steps = []

    class Spy(Callback):
        def on_train_batch_begin(self, batch, logs=None):
            steps.append(("begin", batch))

        def on_train_batch_end(self, batch, logs=None):
            steps.append(("end", batch))

    model = linear(steps_per_execution=2)
    model.fit(X, Y, batch_size=5, callbacks=[Spy()], verbose=0)
    assert steps == [("begin", 0), ("end", 1), ("begin", 2), ("end", 3)]
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("steps", [2, 3])
def test_steps_are_rounded_up_to_full_executions(steps):
    model = linear(steps_per_execution=2)
    model.fit(X, Y, batch_size=2, steps_per_epoch=steps, verbose=0)
    assert int(model.optimizer.iterations) == 2 * -(-steps // 2)


def test_last_execution_may_have_fewer_steps():
    model = linear(steps_per_execution=2)
    model.fit(X[:15], Y[:15], batch_size=5, steps_per_epoch=3, verbose=0)
    assert int(model.optimizer.iterations) == 3


def test_mixed_precision_scales_the_loss():
    toolkit.dtype_policies.set_dtype_policy("mixed_float16")
    try:
        model = Sequential(
            [Input((5,)), layers.Dense(4), layers.Dense(3, dtype="float32")]
        )
        model.compile("sgd", "mse")
    finally:
        toolkit.dtype_policies.set_dtype_policy("float32")
    assert isinstance(model.optimizer, toolkit.optimizers.LossScaleOptimizer)
    losses = model.fit(X, Y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.layers[0].kernel.dtype == "float32"


# --- interrupts and invalid numbers ---------------------------------------------------


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_interrupt_keeps_model_and_history(run_eagerly):
    events = []

    class Interrupt(Callback):
        def on_train_batch_end(self, batch, logs=None):
            if len(self.model.history.history.get("loss", ())) == 2 and batch == 1:
                raise KeyboardInterrupt

        def on_train_end(self, logs=None):
            events.append("end")

    model = linear(run_eagerly=run_eagerly)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=5, epochs=9, callbacks=[Interrupt()], verbose=0)
    assert events == ["end"]
    assert len(model.history.history["loss"]) == 2
    assert int(model.optimizer.iterations) == 2 * 4 + 2
    model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("delay", [0.03, 0.1, 0.17])
def test_signal_during_a_step_leaves_complete_steps(run_eagerly, delay):
    def make():
        toolkit.random.set_random_seed(9)
        model = Sequential([Input((5,)), layers.Dense(16), layers.Dense(3)])
        model.compile("adam", "mse", run_eagerly=run_eagerly)
        return model

    model = make()
    model.fit(X[:4], Y[:4], verbose=0)  # so that the signal arrives after the trace
    signal.signal(signal.SIGALRM, signal.default_int_handler)

    def set_alarm(epoch, logs):  # on a busy machine the first epoch may start late
        if epoch == 0:
            signal.setitimer(signal.ITIMER_REAL, delay)

    alarm = LambdaCallback(on_epoch_end=set_alarm)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:4], Y[:4], epochs=10**6, verbose=0, callbacks=[alarm])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    steps = int(model.optimizer.iterations)
    assert steps - 1 - len(model.history.history["loss"]) in (0, 1)
    continued = make()
    continued.fit(X[:4], Y[:4], epochs=steps, verbose=0)
    for a, b in zip(model.get_weights(), continued.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_error_in_a_step_changes_no_variable(run_eagerly):
    class Fails(Model):
        fail = True

        def train_step(self, data):
            logs = super().train_step(data)
            if self.fail:
                raise RuntimeError("after the update")
            return logs

    inputs = Input((5,))
    model = Fails(inputs, layers.Dense(3)(inputs))
    model.compile("adam", "mse", run_eagerly=run_eagerly)
    before = model.get_weights()
    with pytest.raises(RuntimeError, match="after the update"):
        model.fit(X, Y, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(model.optimizer.iterations) == 0
    model.fail = False
    model.fit(X, Y, verbose=0)
    assert int(model.optimizer.iterations) == 1


def test_nan_loss_warns_once_with_the_step():
    y = Y.copy()
    y[12] = np.nan
    model = linear()
    with pytest.warns(UserWarning, match="since step 3") as record:
        model.fit(X, y, batch_size=5, epochs=3, shuffle=False, verbose=0)
    assert len(record) == 1


def test_no_trainable_weights_warns():
    model = Sequential([Input((5,)), layers.Dense(5, trainable=False)])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="no trainable weights"):
        model.fit(X, X, verbose=0)


# --- state as values ------------------------------------------------------------------


def test_state_trees():
    model = Sequential([Input((4,)), layers.Dense(2, name="head")], name="net")
    optimizer = toolkit.optimizers.Adam(name="adam")
    model.compile(optimizer, "mse", metrics=["mae"])
    x, y = np.ones((4, 4)), np.ones((4, 2))
    model.fit(x, y, verbose=0)
    tree = model.get_state_tree("numpy_array")
    assert sorted(tree["trainable_variables"]["net"]["head"]) == ["bias", "kernel"]
    assert sorted(tree["metrics_variables"]) == ["loss", "mean_absolute_error"]
    assert tree["optimizer_variables"]["adam"]["iteration"] == 1
    before = model.predict(x, verbose=0)
    model.fit(x, y, epochs=2, verbose=0)
    model.set_state_tree(tree)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert int(model.optimizer.iterations) == 1
    with pytest.warns(UserWarning, match="no variables tail"):
        model.set_state_tree({"trainable_variables": {"tail": 1}})
    with pytest.raises(ArgumentError, match="value_format"):
        model.get_state_tree("list")


def test_callbacks_of_predict_receive_all_outputs_of_a_group():
    model = Sequential([Input((1,)), layers.Dense(1)])
    model.compile(steps_per_execution=2)
    outputs = []

    class Watch(toolkit.callbacks.Callback):
        def on_predict_batch_end(self, batch, logs=None):
            outputs.append(len(logs["outputs"]))

    model.predict(np.ones((5, 1)), batch_size=2, verbose=0, callbacks=[Watch()])
    assert outputs == [4, 1]


def test_losses_without_metrics_keep_their_values():
    model = Sequential([Input((1,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    weights = [v.value for v in model.trainable_variables]
    x = np.ones((2, 1), "float32")
    outputs, _ = model.stateless_call(weights, [], x)
    loss, after = model.stateless_compute_loss(weights, [], [], x, x, outputs)
    expected = np.mean((model.predict(x, verbose=0) - x) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert len(after) == 3
