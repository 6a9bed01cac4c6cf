"""Test steps of users: their arguments, and weights that they create."""

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers, ops
from toolkit.data import Dataset

X = np.arange(24, dtype="float32").reshape(8, 3)
Y = np.arange(8, dtype="float32").reshape(8, 1)


def form_of(data):
    """Return the structure of a batch, with shapes for its tensors."""
    return tk.tree.map_structure(lambda x: None if x is None else str(x.shape), data)


class Recording(tk.Model):
    """A model whose steps record the structure of their batches."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.inner = layers.Dense(1)
        self.inner.build((None, 3))

    def train_step(self, data):
        self.batches.append(form_of(data))
        return {"loss": sum(ops.sum(x) for x in tk.tree.flatten(data) if x is not None)}

    def test_step(self, data):
        return self.train_step(data)

    def predict_step(self, data):
        self.batches.append(form_of(data))
        return ops.zeros((4, 1))


class Batches(tk.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return X[:4], Y[:4]


A, B = "(4, 3)", "(4, 1)"
FORMS = {
    "an array": ({"x": X}, A),
    "an array and targets": ({"x": X, "y": Y}, (A, B)),
    "a list of arrays": ({"x": [X, X]}, ([A, A],)),
    "a tuple of arrays": ({"x": (X, X)}, ((A, A),)),
    "a dict": ({"x": {"a": X, "b": Y}}, {"a": A, "b": B}),
    "a dict and targets": ({"x": {"a": X}, "y": Y}, ({"a": A}, B)),
    "weights": ({"x": X, "y": Y, "sample_weight": Y[:, 0]}, (A, B, "(4,)")),
    "no targets, weights": ({"x": X, "sample_weight": Y[:, 0]}, (A, None, "(4,)")),
    "elements": ({"x": Dataset.from_tensor_slices(X).batch(4)}, A),
    "elements in tuples": ({"x": Dataset.from_tensor_slices((X,)).batch(4)}, (A,)),
    "pairs": ({"x": Dataset.from_tensor_slices((X, Y)).batch(4)}, (A, B)),
    "dicts": ({"x": Dataset.from_tensor_slices({"a": X}).batch(4)}, {"a": A}),
    "three inputs": ({"x": Dataset.from_tensor_slices((X, X, X)).batch(4)}, (A,) * 3),
    "five parts": ({"x": Dataset.from_tensor_slices((X,) * 5).batch(4)}, (A,) * 5),
    "nests": (
        {"x": Dataset.from_tensor_slices(((X, {"a": Y}), Y)).batch(4)},
        ((A, {"a": B}), B),
    ),
    "a generator": (lambda: {"x": iter([X[:4], X[4:]])}, A),
    "a generator of lists": (lambda: {"x": iter([[X[:4], Y[4:]]])}, (A, B)),
    "a PyDataset": ({"x": Batches()}, (A, B)),
}


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_step_receives_the_data_unchanged(name, run_eagerly):
    arguments, structure = FORMS[name]
    arguments = arguments() if callable(arguments) else arguments
    is_arrays = isinstance(arguments["x"], (np.ndarray, list, tuple, dict))
    batch = {"batch_size": 4} if is_arrays else {}
    model = Recording()
    model.compile("sgd", run_eagerly=run_eagerly)
    model.fit(**arguments, **batch, verbose=0)
    assert set(map(str, model.batches)) == {str(structure)}


@pytest.mark.parametrize("name", ["an array", "a dict", "elements", "three inputs"])
def test_evaluate_and_predict_receive_the_same_data(name):
    arguments, structure = FORMS[name]
    batch = {} if isinstance(arguments["x"], Dataset) else {"batch_size": 4}
    model = Recording()
    model.compile("sgd")
    model.evaluate(**arguments, **batch, verbose=0)
    model.predict(**arguments, **batch, verbose=0)
    assert set(map(str, model.batches)) == {str(structure)}


def test_unknown_batch_parts_need_a_custom_step():
    model = tk.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="received 5 components"):
        model.fit(Dataset.from_tensor_slices((X,) * 5).batch(4), verbose=0)


def test_weights_created_in_a_step_are_trained():
    class Encoding(tk.Model):
        """A model whose `call` uses only some of the weights."""

        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = layers.Dense(2), layers.Dense(3)

        def call(self, x):
            return self.encoder(x)

        def train_step(self, data):
            with tk.GradientTape() as tape:
                error = self.decoder(self(data)) - data
                loss = ops.mean(error * error)
            weights = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, weights), weights, strict=True)
            )
            return {"loss": loss}

    model = Encoding()
    model.compile(tk.optimizers.Adam(0.01))
    losses = model.fit(X, epochs=40, batch_size=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert len(model.trainable_variables) == 4 and model.optimizer.built


def test_batch_sizes_of_batches_are_not_used():
    model = tk.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    for data in (Dataset.from_tensor_slices((X, Y)).batch(4), Batches()):
        with pytest.warns(UserWarning, match="batch_size=64 is ignored"):
            model.fit(data, batch_size=64, verbose=0)
    with pytest.warns(UserWarning, match="batch_size=2 is ignored"):
        model.evaluate(Batches(), batch_size=2, verbose=0)


def test_losses_and_metrics_match_the_operands_of_the_step():
    class Explained(tk.Model):
        """A model of two outputs whose loss uses one output."""

        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(1)

        def call(self, x):
            y = self.inner(x)
            return y, ops.abs(y)

        def train_step(self, data):
            x, y = data
            with tk.GradientTape() as tape:
                result, _ = self(x)
                loss = self.compute_loss(x, y, result)
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return self.compute_metrics(x, y, result)

        def test_step(self, data):
            x, y = data
            return self.compute_metrics(x, y, self(x)[0])

    model = Explained()
    model.compile("adam", "mse", metrics=["mae"])
    with pytest.warns(UserWarning, match="does not update the metric 'loss'"):
        history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert sorted(history) == ["loss", "mae"] and history["mae"][1] > 0
    result = np.abs(np.asarray(model(X)[0]) - Y).mean()
    logs = model.evaluate(X, Y, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["mae"], result, rtol=1e-5)


def test_step_may_call_the_model_with_more_than_x():
    class Triplets(tk.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(2)

        def call(self, inputs):
            a, b, c = map(self.inner, inputs)
            return ops.sum(ops.square(a - b)) - ops.sum(ops.square(a - c))

        def train_step(self, data):
            with tk.GradientTape() as tape:
                loss = ops.square(self(data))
            weights = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"distance": loss}

    model = Triplets()
    model.compile("adam")
    data = Dataset.from_tensor_slices((X, X + 1, X * 2)).batch(4)
    distances = model.fit(data, epochs=3, verbose=0).history["distance"]
    assert distances[-1] < distances[0]


def test_errors_in_a_call_are_raised_by_the_step():
    class Wrong(tk.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(2)

        def call(self, x):
            return ops.reshape(self.inner(x), (5, 7))

        def train_step(self, data):
            return {"loss": ops.sum(self(data))}

    model = Wrong()
    model.compile("adam")
    with pytest.raises(ValueError, match="reshape: cannot reshape"):
        model.fit(X, verbose=0)


@pytest.mark.parametrize("uses_own_loss", [False, True])
def test_returned_loss_of_a_step_is_in_the_history(uses_own_loss):
    class Model(tk.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(1)
            if uses_own_loss:
                self.tracker = tk.metrics.Mean(name="loss")

        def call(self, x):
            return self.inner(x)

        def train_step(self, data):
            loss = ops.sum(data[1])
            if uses_own_loss:
                self.tracker.update_state(loss)
                return {"loss": self.tracker.result()}
            return {"loss": loss}

    model = Model()
    model.compile("sgd", "mse")
    losses = model.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history["loss"]
    assert losses == [14.0 if uses_own_loss else 22.0]


@pytest.mark.parametrize("metrics", [None, ["mae"]])
def test_old_names_of_loss_and_metrics_work_with_a_warning(metrics):
    class Model(tk.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(1)

        def call(self, x):
            return self.inner(x)

        def test_step(self, data):
            x, y = data
            loss = self.compiled_loss(y, self(x))
            self.compiled_metrics.update_state(y, self(x))
            return {"found": loss, **(self.get_metrics_result() if metrics else {})}

    model = Model()
    model.compile("sgd", "mse", metrics=metrics)
    with pytest.warns(DeprecationWarning, match="compiled_(loss|metrics)` is dep"):
        logs = model.evaluate(X, Y, verbose=0, return_dict=True)
    error = np.asarray(model(X)) - Y
    np.testing.assert_allclose(logs["found"], (error**2).mean(), rtol=1e-5)
    if metrics:
        np.testing.assert_allclose(logs["mae"], abs(error).mean(), rtol=1e-5)


@pytest.mark.parametrize("updates", [False, True])
def test_a_step_that_does_not_update_the_loss_metric_warns(updates):
    class Custom(tk.Model):
        """A model whose step uses `compute_metrics`."""

        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tk.GradientTape() as tape:
                outputs = self(x, training=True)
                loss = self.compute_loss(x, y, outputs)
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            for metric in self.metrics if updates else ():
                if metric.name == "loss":
                    metric.update_state(loss, sample_weight=len(x))
            return self.compute_metrics(x, y, outputs)

    model = Custom()
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32") * 5
    if not updates:
        with pytest.warns(UserWarning, match=r"metric 'loss'.*update_state\(loss\)"):
            model.fit(x, y, verbose=0)
        return
    history = model.fit(x, y, verbose=0).history
    assert history["loss"][0] > 0 and history["mae"][0] > 0
