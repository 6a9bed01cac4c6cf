"""Test steps of models with layers that run in Python, such as layers on strings."""

import threading
import time

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.errors import ArgumentError, HostCallError

WORDS = ["red", "green", "blue"]
ROWS = 12
rng = np.random.default_rng(0)
TEXTS = np.array([" ".join(rng.choice([*WORDS, "x"], n % 4 + 1)) for n in range(ROWS)])
COLORS = rng.choice([*WORDS, "x"], (ROWS, 1))
CODES = rng.integers(0, 9, (ROWS, 2))
NUMBERS = rng.standard_normal((ROWS, 2)).astype("float32")
Y = rng.integers(0, 2, (ROWS, 1)).astype("float32")


def text_layer():
    return layers.TextVectorization(vocabulary=WORDS, output_sequence_length=3)


def lookup():
    return layers.StringLookup(vocabulary=WORDS)


def mean_embedding(ids):
    return layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(ids))


def functional():
    x = layers.Input((), dtype="string")
    return toolkit.Model(x, layers.Dense(1)(mean_embedding(text_layer()(x))))


def several_inputs():
    color = layers.Input((1,), dtype="string", name="color")
    numbers = layers.Input((2,), name="numbers")
    features = ops.concatenate([mean_embedding(lookup()(color)), numbers], 1)
    return toolkit.Model([color, numbers], layers.Dense(1)(features))


def sequential():
    head = [layers.Embedding(9, 4), layers.Flatten(), layers.Dense(1)]
    return toolkit.Sequential([layers.Input((), dtype="string"), text_layer(), *head])


def without_input():
    return toolkit.Sequential(
        [text_layer(), layers.Embedding(9, 4), layers.Flatten(), layers.Dense(1)]
    )


def nested():
    x = layers.Input((), dtype="string")
    return toolkit.Model(x, layers.Dense(1)(layers.Dense(3)(functional()(x))))


def two_branches():
    x = layers.Input((), dtype="string")
    ids = text_layer()(x)
    a, b = mean_embedding(ids), layers.Flatten()(layers.Embedding(9, 2)(ids))
    return toolkit.Model(x, layers.Dense(1)(layers.concatenate([a, b])))


class Subclassed(toolkit.Model):
    def __init__(self):
        super().__init__()
        self.ids = text_layer()
        self.embedding = layers.Embedding(9, 4)
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(ops.mean(self.embedding(self.ids(x)), 1))


def hashed_numbers():
    x = layers.Input((2,), dtype="int64")
    return toolkit.Model(x, layers.Dense(1)(mean_embedding(layers.Hashing(9)(x + 1))))


def hashed_integers():
    x = layers.Input((2,), dtype="int64")
    ids = layers.IntegerLookup(
        vocabulary=[1, 2], num_oov_indices=3, oov_method="farmhash"
    )(x)
    return toolkit.Model(x, layers.Dense(1)(mean_embedding(ids)))


def feature_space():
    space = toolkit.utils.FeatureSpace(
        {
            "color": "string_categorical",
            "size": "float_normalized",
            "code": "integer_hashed",
        },
        crosses=[("color", "code")],
        crossing_dim=5,
    )
    space.adapt(TABLE)
    encoded = space.get_encoded_features()
    return toolkit.Model(space.get_inputs(), layers.Dense(1)(encoded))


class WithSpace(toolkit.Model):
    def __init__(self):
        super().__init__()
        self.space = toolkit.utils.FeatureSpace(
            {"color": "string_hashed", "size": "float", "code": "integer_hashed"}
        )
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(self.space(x))


TABLE = {"color": COLORS, "size": NUMBERS[:, :1], "code": CODES[:, :1]}
MODELS = {
    "functional": (functional, TEXTS),
    "several inputs": (several_inputs, [COLORS, NUMBERS]),
    "sequential": (sequential, TEXTS),
    "without an Input": (without_input, TEXTS),
    "nested": (nested, TEXTS),
    "two branches": (two_branches, TEXTS),
    "subclassed": (Subclassed, TEXTS),
    "hashed numbers": (hashed_numbers, CODES),
    "hashed integers": (hashed_integers, CODES),
    "FeatureSpace": (feature_space, TABLE),
    "FeatureSpace in a class": (WithSpace, TABLE),
}


def compiled(make, rate=0.125, **options):
    toolkit.utils.set_random_seed(0)
    model = make()
    options = {"optimizer": toolkit.optimizers.SGD(rate), "loss": "mse", **options}
    model.compile(metrics=["mae"], **options)
    return model


def run_all(model, x):
    """Return the results of all methods, and the weights after them."""
    fit = model.fit(x, Y, batch_size=4, epochs=2, verbose=0, validation_data=(x, Y))
    results = [
        *fit.history.values(),
        model.train_on_batch(x, Y),
        model.test_on_batch(x, Y),
        model.predict_on_batch(x),
        model.evaluate(x, Y, batch_size=5, verbose=0),
        model.predict(x, batch_size=5, verbose=0),
    ]
    return [*map(np.asarray, results), *model.get_weights()]


@pytest.mark.parametrize("name", MODELS)
def test_program_computes_the_values_of_the_eager_step(name):
    make, x = MODELS[name]
    model = compiled(make)
    results = run_all(model, x)
    eager_results = run_all(compiled(make, run_eagerly=True), x)
    for expected, result in zip(eager_results, results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    for step in (model.train_function, model.test_function, model.predict_function):
        assert step.trace_count and not step.reason
    assert "kernel" in str(model.inspect())


def exact():
    """Return a model whose first step has no rounding: all its numbers are dyadic."""
    x = layers.Input((), dtype="string")
    ids = layers.TextVectorization(vocabulary=WORDS, output_sequence_length=4)(x)
    y = layers.Flatten()(layers.Embedding(9, 2, name="table")(ids))
    model = toolkit.Model(x, layers.Dense(1)(y))
    model.set_weights([rng.integers(-4, 5, w.shape) / 4 for w in model.get_weights()])
    return model


def test_step_has_the_bits_of_the_eager_step():
    weights = exact().get_weights()
    results = []
    for run_eagerly in (True, False):
        model = compiled(exact, run_eagerly=run_eagerly)
        model.set_weights(weights)
        losses = model.train_on_batch(TEXTS[:4], Y[:4])
        results.append([*losses, *model.get_weights()])
    for expected, result in zip(*results, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_results_have_the_bits_of_the_model_on_ids():
    def on_ids():
        x = layers.Input((3,), dtype="int64")
        return toolkit.Model(x, layers.Dense(1)(mean_embedding(x)))

    results = run_all(compiled(functional, optimizer="adam"), TEXTS)
    ids = np.asarray(text_layer()(TEXTS))
    expected = run_all(compiled(on_ids, optimizer="adam"), ids)
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_have_the_layers_and_the_weights(tmp_path):
    model = compiled(several_inputs)
    x = [COLORS, NUMBERS]
    model.fit(x, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = toolkit.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
    loaded.train_on_batch(x, Y), model.train_on_batch(x, Y)
    for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("pipeline", ["data set", "generator", "sequence"])
def test_batches_of_pipelines(pipeline):
    data = toolkit.data.Dataset.from_tensor_slices((TEXTS, Y)).batch(4)

    class Batches(toolkit.utils.PyDataset):
        num_batches = 3

        def __getitem__(self, index):
            rows = slice(4 * index, 4 * index + 4)
            return TEXTS[rows], Y[rows]

    batches = {"data set": data, "generator": iter(list(data)), "sequence": Batches()}
    model = compiled(functional)
    model.fit(batches[pipeline], verbose=0, shuffle=False)
    expected = compiled(functional)
    expected.fit(TEXTS, Y, batch_size=4, verbose=0, shuffle=False)
    assert model.train_function.trace_count == 1
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_thread_of_a_pipeline_runs_layers_on_strings(method):
    threads = []

    def standardize(texts):
        threads.append(threading.current_thread().name)
        time.sleep(0.006)  # slow enough for a thread
        return texts

    def slow():
        x = layers.Input((), dtype="string")
        ids = layers.TextVectorization(
            vocabulary=WORDS, standardize=standardize, output_sequence_length=3
        )
        return toolkit.Model(x, layers.Dense(1)(mean_embedding(ids(x))))

    texts, y = np.tile(TEXTS, 4), np.tile(Y, (4, 1))
    batches = toolkit.data.Dataset.from_tensor_slices((texts, y)).batch(4).prefetch(2)
    model, other = compiled(slow), compiled(functional)
    for kind in ("MainThread", "data"):  # the second pass knows that they are slow
        threads.clear()
        result, expected = (
            getattr(x, method)(batches, verbose=0) for x in (model, other)
        )
        assert any(name.startswith(kind) for name in threads)
        if method == "fit":
            result, expected = result.history["loss"], expected.history["loss"]
        np.testing.assert_array_equal(result, expected)


def test_error_in_the_thread_of_a_pipeline_is_raised_by_the_step():
    words = np.array(["red"] * 40 + ["unknown"])
    layer = layers.StringLookup(vocabulary=WORDS, num_oov_indices=0)
    x = layers.Input((1,), dtype="string")
    model = toolkit.Model(x, layers.Flatten()(layers.Embedding(9, 1)(layer(x))))
    batches = toolkit.data.Dataset.from_tensor_slices(words[:, None]).batch(1)
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"OOV values \['unknown'\]"):
            model.predict(batches, verbose=0)


def test_new_vocabulary_is_used():
    model = compiled(functional)
    before = model.predict(TEXTS, verbose=0)
    vectorization = next(x for x in model.layers if hasattr(x, "set_vocabulary"))
    vectorization.set_vocabulary(WORDS[::-1])
    after = model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(after, np.asarray(model(TEXTS)), atol=1e-6)
    assert not np.allclose(before, after)


def test_rare_lengths_of_texts_run_once_as_python_code():
    def any_length():
        x = layers.Input((), dtype="string")
        ids = layers.TextVectorization(vocabulary=WORDS)(x)
        return toolkit.Model(x, layers.Dense(1)(mean_embedding(ids)))

    texts = np.array([" ".join(["red"] * n) for n in range(1, 9)])
    y = np.ones((8, 1), "float32")
    model = compiled(any_length)
    model.fit(texts, y, batch_size=1, shuffle=False, verbose=0)
    assert model.train_function.trace_count == 5
    with pytest.warns(UserWarning, match="output_sequence_length"):
        model.fit(texts, y, batch_size=1, shuffle=False, verbose=0)
    assert model.train_function.trace_count == 8 and not model.train_function.reason
    expected = compiled(any_length, run_eagerly=True)
    expected.fit(texts, y, batch_size=1, epochs=2, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_many_lengths_of_texts_evict_no_program():
    def any_length():
        x = layers.Input((), dtype="string")
        ids = layers.TextVectorization(vocabulary=WORDS)(x)
        return toolkit.Model(x, mean_embedding(ids))

    model = compiled(any_length)
    texts = np.array([" ".join(["red"] * n) for n in range(1, 71)])
    with pytest.warns(UserWarning, match="output_sequence_length"):
        for _ in range(3):
            results = model.predict(texts, batch_size=1, verbose=0)
    assert model.predict_function.trace_count == 64
    np.testing.assert_allclose(results, np.repeat(results[:1], 70, 0), rtol=1e-5)
    assert model.inspect(texts[-1:]) is not None


# --- functions ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["functional", "sequential", "nested", "subclassed"])
def test_model_in_a_function(name):
    make, x = MODELS[name]
    model = compiled(make)
    expected = [np.asarray(model(x[:n])) for n in (4, 4, 3)]
    call = toolkit.function(lambda x: model(x) + 1.0)
    for rows, y in zip((x[:4], x[:4], x[:3]), expected, strict=True):
        np.testing.assert_allclose(call(rows), y + 1.0, rtol=1e-6)
    assert call.trace_count == 2


def test_strings_of_a_function_can_move():
    layer = lookup()

    @toolkit.function
    def double(x):
        return layer(ops.reshape(x[::2], (-1,))) * 2, ops.shape(x)[0]

    for x in (COLORS, COLORS[::-1]):
        np.testing.assert_array_equal(double(x)[0], layer(x[::2, 0]) * 2)
    assert double.trace_count == 1


def test_width_of_results_causes_a_retrace():
    layer = layers.TextVectorization(vocabulary=WORDS)
    call = toolkit.function(lambda x: layer(x) + 1)
    for texts in (["red"], ["red blue"], ["blue"], ["x green"]):
        x = np.array(texts)
        np.testing.assert_array_equal(call(x), np.asarray(layer(x)) + 1)
    assert call.trace_count == 2


def test_many_widths_of_results_are_reported():
    layer = layers.TextVectorization(vocabulary=WORDS)
    call = toolkit.function(lambda x: layer(x) + 1)
    with pytest.warns(UserWarning, match="layer in Python .*output_sequence_length"):
        for n in range(1, 8):
            call(np.array([" ".join(["red"] * n)]))


def test_call_after_a_shape_can_depend_on_the_shape():
    """Equal shapes of different calls do not select the wrong program."""
    words, fixed = layers.TextVectorization(vocabulary=WORDS), text_layer()
    letters = layers.TextVectorization(vocabulary=["a", "b"], split="character")

    def branch(x):
        y = fixed(x) if words(x).shape[1] < 3 else letters(x)
        return y * 1.0, ops.ones(()) * y.shape[1]

    call = toolkit.function(branch)
    for text in ("red", "a b", "a b a", "b b abbb", "a a abab"):
        x = np.array([text])
        for result, y in zip(call(x), branch(x), strict=True):
            np.testing.assert_array_equal(result, y)


@pytest.mark.parametrize("convert", [np.array, ops.convert_to_tensor])
def test_number_of_selected_strings_causes_a_retrace(convert):
    call = toolkit.function(lambda x: ops.ones(()) * x[x == "a"].shape[0])
    for words, count in (("aba", 2), ("abb", 1), ("bbb", 0), ("baa", 2)):
        assert float(call(convert(list(words)))) == count
    assert call.trace_count == 3


def test_layer_runs_only_for_the_shape_that_selects_it():
    words = layers.TextVectorization(vocabulary=WORDS)
    strict = layers.StringLookup(vocabulary=WORDS, num_oov_indices=0)
    call = toolkit.function(
        lambda x: strict(x) if words(x).shape[1] == 1 else words(x)[:, 0]
    )
    assert call(np.array(["red"])).tolist() == [strict("red")]
    for _ in range(2):
        assert call(np.array(["x red"])).tolist() == [1]
    with pytest.raises(ArgumentError, match="OOV"):
        call(np.array(["x"]))


def test_layer_runs_once_in_each_call():
    texts = []
    layer = layers.TextVectorization(
        vocabulary=WORDS, standardize=lambda x: texts.extend(x) or x
    )
    call = toolkit.function(lambda x: layer(x) + 1)
    inputs = [np.array([" ".join(["red"] * n)]) for n in (1, 2, 3)]
    for _ in range(2):
        texts.clear()
        for x in inputs:
            call(x)
    assert texts == [x[0] for x in inputs]


def test_operand_with_a_known_value():
    layer = layers.HashedCrossing(50)

    def cross(x):
        return layer((x, ops.arange(x.shape[0]) + 1))

    call = toolkit.function(cross)
    for x in (np.array(["a", "b"]), np.array(["b", "c"])):
        np.testing.assert_array_equal(call(x), cross(x))


def test_function_that_reads_string_tensors_fixes_them():
    @toolkit.function
    def total(x):
        return ops.ones(()) * sum(map(len, x.tolist()))

    for words, length in ((["a", "bc"], 3), (["abcd", "e"], 5)):
        assert float(total(ops.convert_to_tensor(words))) == length


@pytest.mark.parametrize(
    "read",
    [
        lambda x: {"red": 2.0, b"red": 2.0}.get(x[0], 1.0),
        lambda x: 2.0 if x[:1] else 1.0,
        lambda x: 2.0 if x[0] in {"red", b"red"} else 1.0,
    ],
    ids=["dict", "truth", "set"],
)
def test_python_code_cannot_compare_strings_by_identity(read):
    call = toolkit.function(lambda x: ops.ones(()) * read(x))
    with pytest.raises(HostCallError, match="strings have no values"):
        call(np.array(["red", "blue"]))


def test_strings_of_another_call_are_refused():
    strings, layer = [], lookup()

    @toolkit.function
    def call(x):
        strings.append(x)
        return layer(strings[0])

    call(np.array(["red"]))
    with pytest.raises(HostCallError, match="belong to another call"):
        call(np.array(["red", "blue"]))


def test_scalars_of_numpy_are_constants():
    layer = lookup()
    call = toolkit.function(lambda x: layer(x) + 1)
    for x in (np.str_("red"), np.bytes_(b"blue"), np.str_("blue")):
        assert int(call(x)) == int(layer(x)) + 1


def test_branch_that_calls_a_layer():
    layer = layers.Hashing(9)

    @toolkit.function
    def choose(x, is_hashed):
        return ops.cond(is_hashed, lambda: layer(x), lambda: x)

    x = np.arange(4)
    np.testing.assert_array_equal(choose(x, np.array(True)), layer(x))
    np.testing.assert_array_equal(choose(x, np.array(False)), x)


def test_result_of_a_program_cannot_be_an_input():
    layer = layers.Hashing(9, name="h")
    scale = toolkit.Variable(2.0)
    with pytest.raises(HostCallError, match="Hashing 'h'.*depends on weights"):
        toolkit.function(lambda x: layer(x * scale))(np.ones(3))


def test_concrete_function_has_no_calls_in_python():
    layer = layers.Hashing(9, name="h")
    call = toolkit.function(lambda x: layer(x))
    with pytest.raises(HostCallError, match="Hashing 'h': the layer runs in Python"):
        call.get_concrete_function(np.arange(3))


# --- steps that run as Python code ----------------------------------------------------


class Reading(Subclassed):
    def call(self, x):
        if "red" in x.tolist()[0]:
            return super().call(x)
        return super().call(x[::-1])


class Splitting(Subclassed):
    def call(self, x):
        return super().call(np.char.lower(x.astype(str)))


class Formatting(Subclassed):
    def call(self, x):
        return super().call(np.array([f"{text} red" for text in x]))


class Indexing(Subclassed):
    def call(self, x):
        kinds = {"U": "red", "O": "blue"}
        return super().call(np.array([kinds[x.dtype.kind]] * len(x)))


class Uncompiled(layers.Layer):
    supports_jit = False

    def call(self, x):
        return x * 1.0


def uncompiled():
    return toolkit.Sequential([layers.Dense(1), Uncompiled(name="slow")])


def inverted():
    x = layers.Input((), dtype="string")
    y = layers.Embedding(9, 2, trainable=False)(text_layer()(x))
    hashed = layers.Hashing(9, name="again")(layers.Flatten()(y))
    return toolkit.Model(x, layers.Dense(1)(ops.cast(hashed, "float32")))


@pytest.mark.parametrize(
    "make, x, reason",
    [
        (Reading, TEXTS, "strings have no values"),
        (Splitting, TEXTS, "strings have no values"),
        (Formatting, TEXTS, "strings have no values"),
        (Indexing, TEXTS, "'str' object has no attribute 'kind'"),
        (uncompiled, NUMBERS, "the layer 'slow' .Uncompiled. does not support"),
        (inverted, TEXTS, "Hashing 'again': .* depends on weights"),
    ],
    ids=["reads", "splits", "formats", "reads dtype", "uncompiled", "needs weights"],
)
def test_warning_once_if_a_step_runs_as_python_code(make, x, reason):
    model = compiled(make)
    with pytest.warns(UserWarning, match=f"steps run as Python code.*{reason}") as log:
        results = run_all(model, x)
    assert len([w for w in log if "Python code" in str(w.message)]) == 1
    expected = run_all(compiled(make, run_eagerly=True), x)
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ArgumentError, match=f"inspect: .*{reason}"):
        model.inspect()
    with pytest.raises(ArgumentError, match=f"inspect: .*{reason}"):
        model.inspect(x, Y)


def test_inspection_says_that_steps_run_eagerly():
    model = compiled(functional, run_eagerly=True)
    model.fit(TEXTS, Y, verbose=0)
    with pytest.raises(ArgumentError, match="run_eagerly=True"):
        model.inspect()
    with pytest.raises(ArgumentError, match="pass a batch or call `fit` first"):
        compiled(functional).inspect()


def test_warning_once_if_a_program_was_requested():
    model = compiled(functional, jit_compile=True)
    message = "jit_compile=True cannot compile .*TextVectorization.*Dataset.map"
    with pytest.warns(UserWarning, match=message) as log:
        run_all(model, TEXTS)
    assert len(log) == 1 and model.train_function.trace_count
