"""Messages of typical mistakes: they name the cause and the likely fix."""

import re
import warnings

import numpy as np
import pytest

import toolkit
from toolkit import layers, losses, metrics, ops, optimizers
from toolkit.definitions import foreign_names, hints

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
LABELS = np.arange(8) % 3


def small_model(units=3, activation="softmax", shape=(4,)):
    return toolkit.Sequential(
        [toolkit.Input(shape), layers.Dense(units, activation=activation)]
    )


def compiled(loss="mse", **options):
    model = small_model(**options)
    model.compile("sgd", loss)
    return model


def message_of(function):
    with pytest.raises(Exception) as caught:
        function()
    return str(caught.value)


# --- names of other libraries and of earlier versions ------------------------------


def item_assignment(x):
    x[0] = 3.0


TENSORS = {
    "tensor": lambda: ops.ones((2, 2)),
    "variable": lambda: toolkit.Variable([1.0, 2.0]),
    "symbol": lambda: toolkit.Input((2,)),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_name_the_function_for_a_method(kind):
    x = TENSORS[kind]()
    for name, hint in {
        "sum": "ops.sum(x, axis)",
        "mean": "ops.mean(x, axis)",
        "astype": "ops.cast(x, dtype)",
        "view": "ops.reshape(x, newshape)",
        "unsqueeze": "ops.expand_dims(x, axis)",
        "detach": "ops.stop_gradient(x)",
        "backward": "tape.gradient",
    }.items():
        message = message_of(lambda name=name: getattr(x, name))
        assert f"no attribute '{name}'" in message and hint in message
        assert not hasattr(x, name) and name not in dir(x)


@pytest.mark.parametrize("kind", TENSORS)
def test_item_assignment_names_the_operations(kind):
    x = TENSORS[kind]()
    with pytest.raises(
        TypeError, match="does not support item assignment.*ops.scatter"
    ):
        item_assignment(x)
    assert not hasattr(x, "__delitem__")


def test_hints_of_tensors_name_public_functions():
    for hint in foreign_names.TENSORS.values():
        for name in re.findall(r"ops\.(\w+)", hint):
            assert callable(getattr(ops, name))


def test_hints_of_modules_name_public_objects():
    for names in foreign_names.MODULES.values():
        for target in names.values():
            value = toolkit
            for name in re.sub(r"\(.*", "", target).split("."):
                value = getattr(value, name)


def test_hints_are_for_names_that_are_missing():
    for namespace, names in foreign_names.MODULES.items():
        module = toolkit
        for name in namespace.split(".")[1:]:
            module = getattr(module, name)
        for name in names:
            assert not hasattr(module, name) or name in dir(module)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda m: m.fit_generator(None), "use `fit`, which accepts generators"),
        (lambda m: m.predict_classes(X), "use `predict(x).argmax(axis=-1)`"),
        (lambda m: m.parameters(), "use `trainable_variables`"),
        (lambda m: m.state_dict(), "use `get_weights()`"),
        (lambda m: m.layers[0].eval(), "training=False"),
        (lambda m: m.optimizer.lr, "use `learning_rate`"),
        (lambda m: m.optimizer.zero_grad(), "GradientTape"),
        (lambda m: optimizers.Adam(lr=0.1), "'lr'; did you mean 'learning_rate'?"),
        (lambda m: m.optimizer.decay, "use a schedule as `learning_rate`"),
        (lambda m: layers.Dense(out_features=3), "did you mean 'units'?"),
        (lambda m: layers.Dense(3, in_features=3), "in_features: remove it"),
        (lambda m: layers.Conv2D(3, kernel=3), "did you mean 'kernel_size'?"),
        (lambda m: layers.Conv2D(3), "Conv2D: missing argument 'kernel_size'"),
        (lambda m: m.fit(X, X, nb_epoch=3), "did you mean 'epochs'?"),
        (lambda m: m.fit(X, X, workers=3), "since Keras 3"),
        (lambda m: m.compile(criterion="mse"), "did you mean 'loss'?"),
        (lambda m: ops.sum(X, dim=0), "sum: unknown argument 'dim' ... 'axis'"),
        (lambda m: ops.sum(X, axs=0), "did you mean 'axis'?"),
        (lambda m: layers.Conv2d, "no attribute 'Conv2d'; did you mean 'Conv2D'?"),
        (lambda m: layers.Linear, "did you mean toolkit.layers.Dense?"),
        (lambda m: losses.MSELoss, "did you mean toolkit.losses.MeanSquaredError?"),
        (lambda m: ops.reduce_sum, "did you mean toolkit.ops.sum?"),
        (lambda m: toolkit.nn, "did you mean toolkit.layers?"),
        (lambda m: toolkit.callbacks.EarlyStoping, "did you mean 'EarlyStopping'?"),
        (lambda m: toolkit.initializers.HeNorml, "did you mean 'HeNormal'?"),
        (
            lambda m: m.fit(X, X[:, :3], verbose=0)["loss"],
            'use `history.history["loss"]`',
        ),
    ],
)
def test_names_of_other_libraries_have_hints(function, words):
    message = message_of(lambda: function(compiled()))
    assert all(part in message for part in words.split(" ... ")), message


def test_subclasses_can_define_hinted_names():
    class Own(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.parameters = 3

        def train(self):
            return "trained"

    model = Own()
    assert (model.parameters, model.train()) == (3, "trained")
    assert "parameters" in dir(model) and "eval" not in dir(model)


# --- names of choices -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "suggestion"),
    [
        (
            lambda: losses.get("sparse_crossentropy"),
            "'sparse_categorical_crossentropy'",
        ),
        (lambda: losses.get("binary_cross_entropy"), "'binary_crossentropy'"),
        (lambda: losses.get("rmse"), "'mse'"),
        (lambda: metrics.get("acuracy"), "'accuracy'"),
        (lambda: metrics.get("f1"), "'f1_score'"),
        (lambda: optimizers.get("adm"), "'adam'"),
        (lambda: toolkit.activations.get("lrelu"), "'leaky_relu'"),
        (lambda: toolkit.initializers.get("xavier"), "'glorot_uniform'"),
    ],
)
def test_suggestion_precedes_the_list(function, suggestion):
    message = message_of(function)
    assert message.index(f"did you mean {suggestion}") < message.index("xpected one of")


def test_list_of_choices_has_each_object_once():
    message = message_of(lambda: losses.get("nonsense"))
    assert "'mean_squared_error'" in message and "'mse'" in message
    assert "MeanSquaredError" not in message and "'MSE'" not in message


def test_several_choices_can_be_suggested():
    message = message_of(lambda: losses.get("categorical_entropy"))
    assert "'categorical_crossentropy'" in message
    assert hints.closest("crossentropy", ["a_crossentropy", "b_crossentropy"]) == [
        "a_crossentropy",
        "b_crossentropy",
    ]


# --- losses and labels ------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "units", "y", "words"),
    [
        (
            "sparse_categorical_crossentropy",
            3,
            np.eye(3)[LABELS],
            "one-hot targets use loss='categorical_crossentropy' ... y.argmax(axis=-1)",
        ),
        (
            "categorical_crossentropy",
            3,
            LABELS,
            "use loss='sparse_categorical_crossentropy' ... to_categorical(y, 3)",
        ),
        (
            "categorical_hinge",
            3,
            LABELS[:, None],
            "use loss='sparse_categorical_crossentropy'",
        ),
        (
            "binary_crossentropy",
            3,
            LABELS,
            "one unit with 'sigmoid' ... loss='sparse_categorical_crossentropy'",
        ),
        ("mse", 3, LABELS, "one unit in the last layer ... sparse_categorical"),
        (
            losses.CategoricalCrossentropy(),
            3,
            LABELS,
            "use loss='sparse_categorical_crossentropy'",
        ),
        (
            "sparse_categorical_crossentropy",
            3,
            LABELS + 1,
            "labels from 0 to 2 ... from 1 to 3 ... subtract 1",
        ),
        (
            "sparse_categorical_crossentropy",
            2,
            LABELS,
            "labels from 0 to 1 ... from 0 to 2; use one unit per class",
        ),
        (
            "sparse_categorical_crossentropy",
            1,
            LABELS % 2,
            "one unit ... loss='binary_crossentropy' and 'sigmoid'",
        ),
    ],
)
def test_wrong_loss_for_the_labels_names_the_other_loss(loss, units, y, words):
    activation = "sigmoid" if units == 1 else "softmax"
    model = compiled(loss, units=units, activation=activation)
    message = message_of(lambda: model.fit(X, y, verbose=0))
    assert all(part in message for part in words.split(" ... ")), message


def test_outputs_with_extra_axes_name_flatten():
    model = compiled("sparse_categorical_crossentropy", shape=(5, 4))
    message = message_of(lambda: model.fit(np.ones((8, 5, 4)), LABELS, verbose=0))
    assert "Add layers.Flatten" in message


def test_ignored_class_can_be_out_of_range():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    compiled(loss).fit(X, np.where(LABELS == 2, 255, LABELS), verbose=0)


# --- data -------------------------------------------------------------------------


def spoiled(array, value=np.nan):
    array = array.copy()
    array[5, 0] = value
    return array


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (
            spoiled(X),
            X[:, :3],
            "x contains NaN or infinity in 1 of 8 rows, first in row 5, column 0;",
        ),
        (X, spoiled(X[:, :3], np.inf), "y contains NaN or infinity in 1 of 8 rows"),
        (X * 1e30, X[:, :3], "look for a logarithm ... The data is finite"),
    ],
)
def test_nonfinite_loss_looks_at_the_data(x, y, words):
    model = compiled("mse", activation=None)
    message = message_of(lambda: model.fit(x, y, verbose=0))
    assert all(part in message for part in words.split(" ... ")), message


def test_nonfinite_input_names_the_key_and_the_index():
    named = {name: toolkit.Input((2, 2), name=name) for name in ("first", "second")}
    outputs = layers.Dense(3)(layers.Flatten()(layers.Add()([*named.values()])))
    model = toolkit.Model(named, outputs)
    model.compile("sgd", "mse")
    first, second = np.zeros((2, 8, 2, 2), "float32")
    second[6, 1, 0] = np.inf
    data = {"first": first, "second": second}
    message = message_of(lambda: model.fit(data, X[:, :3], verbose=0))
    assert (
        "x['second'] contains NaN or infinity in 1 of 8 rows, first in row 6" in message
    )
    assert "at index (6, 1, 0)" in message


class Batches(toolkit.utils.PyDataset):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = slice(2 * index, 2 * index + 2)
        return self.x[rows], X[rows, :3]


def from_generator(x):
    spec = toolkit.data.TensorSpec((None, 4), "float32")
    target = toolkit.data.TensorSpec((None, 3), "float32")
    return toolkit.data.Dataset.from_generator(
        lambda: (Batches(x)[i] for i in range(4)), output_signature=(spec, target)
    )


FOUND = "in batch 2 (counted from 0), x contains NaN or infinity in 1 of 2 rows, first "
FOUND += "in row 1, column 0; remove"
UNREAD = "Only the last batch was checked, and it is finite."
SOURCES = {
    "slices": (lambda x: samples(x, X[:, :3]).batch(2), FOUND, "The data is finite."),
    "PyDataset": (Batches, FOUND, "The data is finite."),
    "generator": (lambda x: (Batches(x)[i] for i in range(4)), UNREAD, UNREAD),
    "from_generator": (from_generator, UNREAD, UNREAD),
    "iterator": (lambda x: iter(samples(x, X[:, :3]).batch(2)), UNREAD, UNREAD),
    "mapped": (
        lambda x: samples(x, X[:, :3]).map(lambda a, b: (a * 2, b)).cache().batch(2),
        FOUND,
        "The data is finite.",
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_nonfinite_loss_reads_the_batches_again(kind):
    source, found, finite = SOURCES[kind]
    model = compiled(activation=None)
    message = message_of(lambda: model.fit(source(spoiled(X)), verbose=0))
    assert found in message
    message = message_of(lambda: compiled(activation=None).fit(source(X * 1e30)))
    assert "first loss does not depend on the learning rate" in message
    assert message.endswith(finite), message


def test_the_search_for_nan_does_not_change_later_epochs():
    def orders(x):
        visited = []
        data = samples(x, X[:, :3]).shuffle(8, seed=3).batch(8)
        recorder = toolkit.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: visited.append(data.get_state()["passes"])
        )
        model = compiled(activation=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(data, epochs=3, verbose=0, callbacks=[recorder])
        return visited, next(iter(data))[0].tolist()

    visited, rows = orders(spoiled(X))
    expected, expected_rows = orders(X)
    assert visited == expected
    changed = [a for a, b in zip(rows, expected_rows, strict=True) if a != b]
    assert len(changed) == 1  # the spoiled row


def samples(*arrays):
    return toolkit.data.Dataset.from_tensor_slices(arrays)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda m: m.fit(samples(X, LABELS), verbose=0), "add .batch(32)"),
        (lambda m: m.predict(samples(X), verbose=0), "add .batch(32) to a data set"),
        (lambda m: m.predict(X[0], verbose=0), "pass x[None] for one sample"),
        (
            lambda m: m.fit(X, list(LABELS), verbose=0),
            "8 numbers; convert it by np.arr",
        ),
        (lambda m: m.predict([1.0, 2.0], verbose=0), "convert it by np.array(x)"),
        (
            lambda m: m.fit([[1, 2, 3, 4], [1, 2]], LABELS[:2], verbose=0),
            "lists with lengths from 2 to 4 ... toolkit.utils.pad_sequences(x)",
        ),
        (
            lambda m: m.fit(np.array([[1, "4"]], object), LABELS[:1], verbose=0),
            "'4' of type str at index (0, 1) ... .astype('float32')",
        ),
        (
            lambda m: m.fit(np.array([[1, 2], [3]], object), LABELS[:2], verbose=0),
            "toolkit.utils.pad_sequences",
        ),
        (lambda m: m.fit(X[:, :3], LABELS, verbose=0), "has the shape (3,), the Input"),
        (lambda m: m.fit(LABELS, X, verbose=0), "x and y seem to be swapped"),
        (
            lambda m: m.fit(samples(X).batch(2), validation_split=0.2),
            "toolkit.utils.split_dataset(x, right_size=0.2)",
        ),
        (
            lambda m: m.fit(samples(X, X).batch(2), batch_size=4),
            "is ignored ... .batch(4)",
        ),
        (
            lambda m: m.fit(
                X, X[:, :3], verbose=0, callbacks=[toolkit.callbacks.EarlyStopping]
            ),
            "an instance, EarlyStopping(...)",
        ),
        (
            lambda m: m.set_weights([X]),
            "kernel (4, 3) ... received 1, of shapes [(8, 4)]",
        ),
    ],
)
def test_wrong_data_has_a_fix(function, words):
    message = message_of(lambda: function(compiled("mse")))
    assert all(part in message for part in words.split(" ... ")), message


def pairs(count=16):
    return samples(np.ones((count, 4), "float32"), np.ones((count, 3), "float32"))


def none(*row):
    return False


EMPTY = {
    "drop_remainder": (
        lambda: pairs().batch(32, drop_remainder=True).prefetch(1),
        "batch(32, drop_remainder=True) drops all 16 elements ... a smaller batch",
    ),
    "take": (lambda: pairs().take(0).batch(4), "the stage take of ... of 16 elements"),
    "skip": (lambda: pairs().batch(4).skip(9).repeat(), "the stage skip of ... of 4"),
    "window": (
        lambda: (
            pairs()
            .window(32, drop_remainder=True)
            .flat_map(lambda a, b: toolkit.data.Dataset.zip((a.batch(2), b.batch(2))))
        ),
        "the stage window of <Dataset from_tensor_slices > window > flat_map>",
    ),
    "filter": (
        lambda: pairs().filter(none).batch(4),
        "filter > batch> these stages can remove all elements: filter; list(",
    ),
    "filter and drop": (
        lambda: pairs().filter(none).batch(4, drop_remainder=True),
        "can remove all elements: filter, batch;",
    ),
    "shard": (lambda: pairs().shard(40, 30).batch(4), "the stage shard of"),
    "generator": (lambda: iter(()), "the data is empty"),
    "arrays": (lambda: X[:0], "at least one sample; received empty arrays"),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_empty_data_names_the_stage(kind, method):
    make, words = EMPTY[kind]
    model = compiled()
    message = message_of(lambda: getattr(model, method)(make(), verbose=0))
    assert message.startswith(f"{method}: expected at least one "), message
    assert all(part in message for part in words.split(" ... ")), message


def test_empty_validation_data_is_named():
    model, y = compiled(), X[:, :3]
    empty = pairs().take(0).batch(4)
    message = message_of(lambda: model.fit(X, y, validation_data=empty, verbose=0))
    assert message.startswith("fit: validation_data: expected at least one batch;")
    unknown = pairs().filter(none).batch(4)
    with pytest.warns(UserWarning, match="^validation_data: .* filter; .* no results"):
        model.fit(X, y, validation_data=unknown, verbose=0, epochs=2)


def test_a_test_step_without_logs_is_not_empty_validation():
    class Silent(toolkit.Sequential):
        def test_step(self, data):
            return {}

    model = Silent([toolkit.Input((4,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, X[:, :3], validation_data=(X, X[:, :3]), verbose=0)


def test_validation_split_without_samples_has_the_figures():
    model = compiled()
    message = message_of(
        lambda: model.fit(X[:3], X[:3, :3], validation_split=0.9, verbose=0)
    )
    assert "validation_split=0.9: 0 and 3 samples" in message


def test_more_steps_than_arrays_have_names_the_batch_size():
    message = message_of(
        lambda: compiled().fit(
            X, X[:, :3], batch_size=4, steps_per_epoch=9, verbose=0, epochs=2
        )
    )
    assert "after 2 of 9 steps: 8 samples in batches of 4 are 2 steps; omit" in message


def test_missing_validation_data_is_named_once():
    stopping = toolkit.callbacks.EarlyStopping("val_loss")
    with pytest.warns(UserWarning, match="pass validation_data") as caught:
        compiled().fit(X, X[:, :3], epochs=3, verbose=0, callbacks=[stopping])
    assert len(caught) == 1


def test_wrong_key_of_inputs_is_named():
    a, b = toolkit.Input((4,), name="a"), toolkit.Input((4,), name="b")
    model = toolkit.Model({"a": a, "b": b}, layers.Add()([a, b]))
    message = message_of(lambda: model.predict({"a": X, "c": X}, verbose=0))
    assert "missing: 'b'" in message and "unexpected: 'c'" in message


# --- layers -----------------------------------------------------------------------

IMAGE = (28, 28)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda: small_stack(IMAGE, layers.Conv2D(2, 3)),
            "(batch, height, width, channels) ... Input((28, 28, 1)) ... -1",
        ),
        (
            lambda: small_stack(
                IMAGE, layers.MaxPooling2D(data_format="channels_first")
            ),
            "(batch, channels, height, width) ... Input((1, 28, 28)) ... x, 1)",
        ),
        (lambda: small_stack((4,), layers.Conv1D(2, 3)), "Input((4, 1))"),
        (lambda: layers.Conv2D(2, 3)(np.ones((28, 28, 3))), "x[None] is a batch"),
        (
            lambda: small_stack((5, 3), layers.LSTM(4, name="first"), layers.LSTM(4)),
            "'first' returns only its last step ... return_sequences=True",
        ),
        (
            lambda: small_stack(
                (5, 3),
                layers.Bidirectional(layers.GRU(4), name="both"),
                layers.Conv1D(4, 1),
            ),
            "'both' returns only its last step ... return_sequences=True",
        ),
        (
            lambda: small_stack(
                (5, 3), layers.LSTM(4), layers.TimeDistributed(layers.Dense(2))
            ),
            "TimeDistributed ... return_sequences=True",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 2)(X, np.ones((8, 5, 4))),
            "MultiHeadAttention ... return_sequences=True",
        ),
        (
            lambda: layers.LSTM(4)(X),
            "(batch, steps, features) ... np.expand_dims(x, -1)",
        ),
        (lambda: toolkit.Input(4), "a tuple of integers; received 4 ... shape=(4,)"),
        (
            lambda: small_model(shape=(8, 4)).predict(X, verbose=0),
            "has no batch axis ... use Input((4,))",
        ),
        (lambda: layers.Dropout(50), "did you mean 0.5?"),
        (lambda: small_stack((4,), layers.Flatten), "an instance, Flatten(...)?"),
        (
            lambda: layers.Concatenate(axis=0)(
                [toolkit.Input((4,)), toolkit.Input((5,))]
            ),
            "did you mean axis=1?",
        ),
        (
            lambda: twice(layers.Dense(3), (2, 4), (2, 5)),
            "created for the extent 4 along axis -1; use another Dense layer",
        ),
        (
            lambda: twice(layers.Conv1D(3, 1), (2, 6, 4), (2, 6, 5)),
            "extent 4 along axis -1; use another Conv1D layer ... change the input",
        ),
        *(
            (
                lambda cls=cls: cls()([toolkit.Input((6, 4)), toolkit.Input((6, 5))]),
                "along axis -1 the extents are 4 and 5 ... Dense(4) before the other "
                "input ... Concatenate joins",
            )
            for cls in (layers.Add, layers.Subtract, layers.Multiply, layers.Average)
        ),
        (
            lambda: layers.Embedding(10, 2, name="words")(np.array([[3, 12]])),
            "Embedding 'words': expected indices in [0, 10); received 12 ... "
            "input_dim=13 or more",
        ),
        (lambda: layers.Embedding(10, 2)(np.array([[3, -1]])), "indices from 0 on"),
        (lambda: small_stack((10,), layers.Reshape((3, 4))), "did you mean (5, 2)?"),
        (lambda: small_stack((10,), layers.Reshape((2, 4))), "did you mean (2, 5)?"),
        (  # found without a search of all extents
            lambda: small_stack((7,), layers.Reshape((2**40, 2**40))),
            "they do not fit target_shape",
        ),
        (
            lambda: small_stack((7,), layers.Reshape((3, 4))),
            "extents whose product is 7",
        ),
        (lambda: disconnected(), "add 'missing' to the inputs"),
        (lambda: layers.Dense(3).count_params(), "`build(input_shape)`"),
        (lambda: WithForward()(X), "Rename `forward` to `call`"),
        (
            lambda: optimizers.Adam().apply([None], [toolkit.Variable(1.0)]),
            "with GradientTape() as tape",
        ),
        (
            lambda: compiled(lambda t, p: np.mean(np.square(t - p))).fit(X, X[:, :3]),
            "ops.mean instead of np.mean",
        ),
    ],
)
def test_wrong_layers_have_a_fix(function, words):
    message = message_of(function)
    assert all(part in message for part in words.split(" ... ")), message


OPERANDS = np.ones((2, 3)), np.ones((4, 3)), np.ones((2, 4)), np.ones((5, 2))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda a, b, c, d: ops.matmul(a, b),
            "ops.matmul(x1, ops.swapaxes(x2, -1, -2))",
        ),
        (
            lambda a, b, c, d: ops.matmul(a, c),
            "ops.matmul(ops.swapaxes(x1, -1, -2), x2)",
        ),
        (lambda a, b, c, d: ops.matmul(a, d), "did you mean ops.matmul(x2, x1)?"),
        (lambda a, b, c, d: ops.matmul(b, d), "the extents are 3 and 5"),
        (lambda a, b, c, d: ops.dot(a, b), "ops.tensordot(x1, x2, (1, 1))"),
        (lambda a, b, c, d: ops.add(a, c), "along axis -1 the extents are 3 and 4"),
        (lambda a, b, c, d: ops.add(a, d), "along axis -2 the extents are 2 and 5"),
        (
            lambda a, b, c, d: ops.multiply(np.ones(4), b),
            "ops.expand_dims(x, -1) appends the missing axes of (4,)",
        ),
        (
            lambda a, b, c, d: ops.subtract(np.ones((4, 3, 2)), np.ones(4)),
            "ops.expand_dims(x, (-2, -1)) appends",
        ),
        (
            lambda a, b, c, d: ops.stack([a, b]),
            "stack: ... (2, 3) and (4, 3) ... ops.pad",
        ),
        (
            lambda a, b, c, d: ops.reshape(a, (4, 2)),
            "(2, 3) of 6 elements into (4, 2) of 8; did you mean (3, 2)?",
        ),
        (
            lambda a, b, c, d: ops.reshape(a, (4, -1)),
            "(2, 3) of 6 elements into (4, -1); choose extents whose product is 6",
        ),
    ],
)
def test_wrong_shapes_have_a_fix(function, words):
    message = message_of(lambda: function(*OPERANDS))
    assert all(part in message for part in words.split(" ... ")), message


def test_the_fix_of_a_reshape_does_not_contain_a_stand_in_for_an_unknown_extent():
    x = toolkit.Input((5, 3))
    message = message_of(lambda: ops.reshape(x, (4, 7)))
    assert "mean" not in message, message


def twice(layer, *shapes):
    for shape in shapes:
        layer(np.ones(shape, "float32"))


class WithForward(layers.Layer):
    def forward(self, x):
        return x


def small_stack(shape, *members):
    return toolkit.Sequential([toolkit.Input(shape), *members])


def disconnected():
    x, y = toolkit.Input((2,)), toolkit.Input((2,), name="missing")
    return toolkit.Model(x, layers.Dense(2)(y))


# --- files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "save",
    [
        lambda model, path: model.save(f"{path}.keras"),
        lambda model, path: model.save_weights(f"{path}.weights.h5"),
        lambda model, path: model.save_weights(f"{path}.safetensors"),
    ],
)
def test_missing_folder_is_named(save, tmp_path):
    folder = tmp_path / "no" / "such"
    message = message_of(lambda: save(small_model(), folder / "model"))
    assert f"the folder {str(folder)!r} does not exist; create it" in message
    assert ".tmp" not in message


class Unregistered(layers.Layer):
    def call(self, x):
        return x * 2


def test_unregistered_class_is_named(tmp_path):
    path = tmp_path / "model.keras"
    small_stack((2,), Unregistered()).save(path)
    with pytest.raises(ValueError) as caught:
        toolkit.models.load_model(path)
    message = str(caught.value)
    assert "custom_objects={'Unregistered': Unregistered}" in message
    assert "of module 'keras'" not in message
