"""Tests of the checks of arguments against the annotations of public signatures."""

import inspect
import re

import numpy as np
import pytest

import toolkit
from toolkit import (
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
    type_aliases,
)
from toolkit.arguments import (
    Checked,
    Interval,
    constructor_signature_of,
    kind_of,
    signature_of,
)
from toolkit.errors import ArgumentError, ArgumentTypeError

NAMESPACES = (
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    optimizers.schedules,
    regularizers,
)


def public_classes():
    exported = (
        getattr(space, name) for space in NAMESPACES for name in sorted(dir(space))
    )
    classes = {cls for cls in exported if inspect.isclass(cls)}
    return {
        c for c in classes if issubclass(c, Checked) and constructor_signature_of(c)
    }


CLASSES = sorted(public_classes(), key=lambda cls: (cls.__module__, cls.__name__))


@pytest.mark.parametrize("cls", CLASSES)
def test_constructor_defaults_match_annotations(cls):
    kinds = constructor_signature_of(cls).kinds
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name in kinds and parameter.default is not parameter.empty:
            assert kinds[name].accepts(parameter.default), name
            bounds = kinds[name].range
            assert bounds is None or bounds.contains(parameter.default), name


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (bool, [True, np.True_, 0, 1, None, np.array(True)], ["yes", 2, [True], 0.5]),
        (int, [3, np.int8(3), True, np.array(3)], [3.0, 2.5, "3", None, [3]]),
        (
            float,
            [3, 0.5, np.float32(1), np.array([1.0, 2.0]), np.int64(4)],
            ["3", None, [0.5], np.array(["a"])],
        ),
        (str, ["a", np.str_("a")], [3, None, b"a"]),
        (int | None, [3, None], [2.5, "3"]),
        (list[int], [[1, 2], (1,), np.arange(3), range(2)], [3, "12", [1.5], {1: 2}]),
        (tuple[int, int], [(1, 2), [1, 2]], [(1,), 3, (1, "a")]),
        (dict[str, int], [{}, {"a": 1}], [[], "a"]),
    ],
)
def test_annotations_accept_and_refuse_values(annotation, good, bad):
    kind = kind_of(annotation)
    assert [x for x in good if not kind.accepts(x)] == []
    assert [x for x in bad if kind.accepts(x)] == []


@pytest.mark.parametrize("name", ["Axis", "IntOrInts", "Shape", "DTypeLike"])
def test_aliases_are_not_checked(name):
    alias = getattr(type_aliases, name)
    assert kind_of(alias) is None
    assert kind_of(alias | None) is None


def test_ranges_refuse_non_numbers():
    fraction = Interval(0, 1)
    assert [x for x in (-0.1, 1.5, float("nan")) if fraction.contains(x)] == []
    assert all(map(fraction.contains, (0, 1, 0.5, np.float32(0.5), np.array(7.0))))


# Each row: a wrong argument -> another text that the message contains.
MISTAKES = {
    "a string for a switch": (
        lambda: layers.Dense(2, use_bias="string", name="first"),
        "Dense 'first': expected `use_bias` to be a boolean; received 'string'",
    ),
    "a fraction for a count": (lambda: layers.Conv2D(2.5, 3), "`filters`.*integer"),
    "an argument of the base class": (
        lambda: layers.Dense(2, autocast="no"),
        "`autocast` to be a boolean",
    ),
    "a decay far above 1": (lambda: optimizers.Adam(beta_2=2**40), r"in \[0, 1\]"),
    "a negative decay": (lambda: optimizers.RMSprop(rho=-0.5), "`rho`"),
    "an epsilon that is no number": (
        lambda: optimizers.Adam(epsilon=float("nan")),
        "`epsilon`",
    ),
    "a clipnorm that is no number": (
        lambda: optimizers.SGD(clipnorm=float("nan")),
        "clipnorm > 0",
    ),
    "a momentum above 1": (lambda: layers.BatchNormalization(momentum=9), "momentum"),
    "a smoothing above 1": (
        lambda: losses.CategoricalCrossentropy(label_smoothing=3),
        "`label_smoothing`",
    ),
    "a list for a loss's switch": (
        lambda: losses.BinaryCrossentropy(from_logits=[1]),
        "`from_logits` to be a boolean",
    ),
    "a string for a threshold": (
        lambda: metrics.BinaryAccuracy(threshold="half"),
        "`threshold` to be a number",
    ),
    "no classes": (lambda: metrics.MeanIoU(num_classes=0), "`num_classes`"),
    "a deviation below 0": (lambda: initializers.RandomNormal(stddev=-1), "`stddev`"),
    "a gain in words": (lambda: initializers.Orthogonal(gain="big"), "`gain`"),
    "a penalty in words": (lambda: regularizers.L2("0.01"), "`l2` to be a number"),
    "a norm in words": (lambda: constraints.MaxNorm("2"), "`max_value`"),
    "a schedule's rate": (
        lambda: optimizers.schedules.CosineDecay(float("nan"), 10),
        "initial_learning_rate.*finite",
    ),
    "a callback's patience": (
        lambda: callbacks.EarlyStopping(patience="3"),
        "`patience`",
    ),
    "from a config": (
        lambda: layers.Dense.from_config({"units": 2, "use_bias": "string"}),
        "Dense: expected `use_bias`",
    ),
    "from an optimizer's config": (
        lambda: optimizers.get({"class_name": "Adam", "config": {"beta_2": 2**40}}),
        "Adam: expected `beta_2`",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_wrong_argument_is_named(case):
    make, message = MISTAKES[case]
    with pytest.raises(ArgumentError, match=message):
        make()


# Arguments that look wrong but also work in Keras.
LEGITIMATE = {
    "0 and 1 for switches": lambda: layers.Dense(2, use_bias=0, trainable=True),
    "NumPy's scalars": lambda: layers.Dense(np.int64(3), use_bias=np.bool_(True)),
    "None for a switch": lambda: layers.LSTM(2, return_sequences=None),
    "an integer for a rate": lambda: layers.Dropout(0),
    "fractions of steps": lambda: optimizers.schedules.ExponentialDecay(0.1, 2.5, 0.9),
    "the mean over all axes": lambda: losses.BinaryCrossentropy(axis=None),
    "patience from a quotient": lambda: callbacks.EarlyStopping(patience=20 / 4),
    "an array for a float": lambda: initializers.RandomUniform(np.zeros(2), np.ones(2)),
    "a list for a tuple": lambda: layers.Conv2D(2, [3, 3], strides=[1, 1]),
    "0-d arrays for rates": lambda: optimizers.Adam(np.array(0.5), beta_1=np.array(0)),
    "tensors for rates": lambda: optimizers.SGD(toolkit.ops.ones(())),
    "a config with a type's name": lambda: layers.Dense.from_config(
        {"units": 2, "activation": {"class_name": "function", "config": "relu"}}
    ),
}


@pytest.mark.parametrize("case", LEGITIMATE)
def test_arguments_that_work_in_keras_are_accepted(case):
    LEGITIMATE[case]()


# A misspelled name -> the correct name.
MISSPELT = {
    "a layer": (lambda: layers.Dense(2, actvation="relu"), "activation"),
    "an argument of the base": (lambda: layers.Dense(2, trainble=False), "trainable"),
    "an optimizer": (lambda: optimizers.Adam(learning_rat=0.1), "learning_rate"),
    "an argument of all": (lambda: optimizers.Adam(clipnrm=1.0), "clipnorm"),
    "a loss": (lambda: losses.Huber(delt=1.0), "delta"),
    "a metric": (lambda: metrics.AUC(num_treshold=3), "num_thresholds"),
    "an initializer": (lambda: initializers.HeNormal(sead=3), "seed"),
    "a regularizer": (lambda: regularizers.OrthogonalRegularizer(factr=1), "factor"),
    "a schedule": (
        lambda: optimizers.schedules.CosineDecay(0.1, decay_step=3),
        "decay_steps",
    ),
    "a callback": (lambda: callbacks.EarlyStopping(patient=3), "patience"),
    "an input": (lambda: toolkit.Input(shap=(3,)), "shape"),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_unknown_argument_suggests_nearest_name(case):
    make, suggestion = MISSPELT[case]
    with pytest.raises(ArgumentTypeError, match=f"did you mean '{suggestion}'"):
        make()


# Calls of methods -> the text that the message contains.
CALLS = {
    "a misspelt argument of compile": (
        lambda m, d: m.compile(metric=["mae"]),
        "compile: unknown argument 'metric'; did you mean 'metrics'",
    ),
    "of fit": (lambda m, d: m.fit(X, Y, epoch=3), "did you mean 'epochs'"),
    "of evaluate": (lambda m, d: m.evaluate(X, Y, batchsize=3), "'batch_size'"),
    "of predict": (lambda m, d: m.predict(X, step=3), "did you mean 'steps'"),
    "of a data set's method": (
        lambda m, d: d.map(len, num_parallel_call=2),
        "map: unknown argument.*'num_parallel_calls'",
    ),
    "a number for a function": (
        lambda m, d: d.map(3),
        "map: expected `map_func` to be a function; received 3 of type int",
    ),
    "a number for a predicate": (lambda m, d: d.filter(True), "`predicate`"),
    "a list for flat_map": (lambda m, d: d.flat_map([1]), "`map_func`"),
    "a function that is none": (lambda m, d: d.apply("batch"), "a function"),
    "a fraction of a batch": (lambda m, d: d.batch(2.5), "`batch_size`.*integer"),
    "a string for a switch": (lambda m, d: d.batch(2, "yes"), "`drop_remainder`"),
    "a fraction of a count": (lambda m, d: d.take(1.5), "`count` to be an integer"),
    "a word for a count": (lambda m, d: d.skip("two"), "`count`"),
    "a fraction for repeat": (lambda m, d: d.repeat(0.5), "`count`"),
    "a list for a buffer": (lambda m, d: d.shuffle([3]), "`buffer_size`"),
    "a fraction of a shard": (lambda m, d: d.shard(2.0, 0), "`num_shards`"),
    "a fraction for a window": (lambda m, d: d.window(1.5), "`size`"),
    "a fraction of a range": (lambda m, d: type(d).range(2.5), "each argument"),
    "a fraction for batch_size": (
        lambda m, d: m.fit(X, Y, batch_size=2.5),
        "fit: expected `batch_size` to be an integer or None; received 2.5",
    ),
    "in evaluate": (lambda m, d: m.evaluate(X, Y, batch_size=2.5), "`batch_size`"),
    "in predict": (lambda m, d: m.predict(X, batch_size="8"), "`batch_size`"),
    "a fraction of an epoch": (lambda m, d: m.fit(X, Y, epochs=1.5), "`epochs`"),
    "a fraction of steps": (
        lambda m, d: m.fit(X, Y, steps_per_epoch=1.5),
        "`steps_per_epoch`",
    ),
    "a word for a share": (lambda m, d: m.fit(X, Y, validation_split="1"), "a number"),
    "weights of classes in a list": (
        lambda m, d: m.fit(X, Y, class_weight=[1, 2]),
        "`class_weight` to be a dict",
    ),
    "a word for run_eagerly": (
        lambda m, d: m.compile(run_eagerly="yes"),
        "compile: expected `run_eagerly`",
    ),
}
X, Y = np.zeros((4, 3), "float32"), np.zeros((4, 1), "float32")


@pytest.mark.parametrize("case", CALLS)
def test_wrong_method_argument_is_named(case):
    call, message = CALLS[case]
    model = toolkit.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match=message):
        call(model, toolkit.data.Dataset.range(4))


def test_user_classes_are_not_checked():
    class UserLayer(layers.Layer):
        def __init__(self, units: int = None, **kwargs):
            super().__init__(**kwargs)
            self.units = units

    assert UserLayer("any").units == "any"


def test_type_checking_imports_accept_any_value():
    def function(self, x: "Unknown | None", y: "int"): ...  # noqa: F821

    assert list(signature_of(function).kinds) == ["y"]


# Required arguments of constructors -> a valid value.
NEEDED = {
    **dict.fromkeys(("units", "filters", "output_dim", "key_dim", "head_dim"), 4),
    **dict.fromkeys(("num_query_heads", "projection_dim", "sequence_length"), 4),
    **dict.fromkeys(("height", "width", "max_number", "n", "size", "pool_size"), 2),
    **dict.fromkeys(("num_heads", "num_key_value_heads", "output_size", "axes"), 2),
    **dict.fromkeys(("rate", "stddev", "factor", "alpha", "value", "recall"), 0.5),
    **dict.fromkeys(("height_factor", "width_factor", "precision"), 0.1),
    **dict.fromkeys(("sensitivity", "specificity", "decay_rate"), 0.5),
    **dict.fromkeys(("learning_rate", "initial_learning_rate"), 0.1),
    **dict.fromkeys(("decay_steps", "first_decay_steps", "num_bins", "input_dim"), 9),
    "scale": 2.0,
    "kernel_size": 3,
    "num_classes": 3,
    "target_class_ids": [0],
    "activation": "relu",
    "equation": "...x,xy->...y",
    "output_shape": 4,
    "target_shape": (-1,),
    "dims": (2, 1),
    "boundaries": [1],
    "values": [1.0, 2.0],
    "function": len,
    "schedule": max,
    "filename": "x.csv",
    "filepath": "a.keras",
    "backup_dir": "b",
    "fn": losses.mean_squared_error,
    "num_tokens": 3,
    "layer": lambda: layers.LSTM(2),
    "cell": lambda: layers.LSTMCell(2),
    "cells": lambda: [layers.LSTMCell(2)],
}
# Arguments without a type check, or whose errors appear only at first use.
ANYTHING = {
    *("Bidirectional.weights", "CallbackList.model", "Constant.value"),
    *("Hashing.mask_value", "Lambda.mask", "MelSpectrogram.window"),
    *("ReversibleEmbedding.reverse_dtype", "Rescaling.offset", "Rescaling.scale"),
    *("STFT.window", "STFTSpectrogram.window"),
}


def find_arguments(cls):
    """Return arguments that create an instance of a class, or None."""
    arguments = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        plain = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if plain and parameter.default is parameter.empty:
            value = NEEDED.get(name)
            is_lambda = callable(value) and getattr(value, "__name__", "") == "<lambda>"
            arguments[name] = value() if is_lambda else value
    try:
        cls(**arguments)
    except (ValueError, TypeError, NotImplementedError):
        return None
    return arguments


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_refuse_arbitrary_objects(cls):
    arguments = find_arguments(cls)
    if arguments is None:
        pytest.skip("it needs more than a table can say")
    accepted = []
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        try:
            cls(**{**arguments, name: object()})
        except (ValueError, TypeError, NotImplementedError):
            continue
        accepted.append(f"{cls.__name__}.{name}")
    assert set(accepted) <= ANYTHING


# --- NumPy scalars --------------------------------------------------------------------

X, IMAGES = np.ones((2, 6, 4), "float32"), np.ones((2, 8, 8, 4), "float32")
PROBABILITIES = np.full((2, 4), 0.25, "float32")
WORDS = ["a b c", "c d"]

WHOLE = {
    "conv": lambda n: ops.conv(IMAGES, np.ones((3, 3, 4, 2)), n(2), dilation_rate=n(1)),
    "max_pool": lambda n: ops.max_pool(IMAGES, n(2), strides=(n(2), n(1))),
    "unfold": lambda n: ops.unfold(IMAGES, n(2), padding=n(1)),
    "depth_to_space": lambda n: ops.depth_to_space(IMAGES, n(2)),
    "stft": lambda n: ops.stft(np.ones((2, 64), "float32"), n(16), n(8), n(16))[0],
    "histogram": lambda n: ops.histogram(X.ravel(), n(3))[0],
    "array_split": lambda n: ops.array_split(X, n(2), axis=n(1))[0],
    "tensordot": lambda n: ops.tensordot(X, np.ones((4, 3), "float32"), n(1)),
    "extract_patches": lambda n: ops.image.extract_patches(IMAGES, n(2)),
    "fori_loop": lambda n: ops.fori_loop(n(0), n(3), lambda i, x: x + i, n(1)),
    "crossentropy": lambda n: losses.categorical_crossentropy(
        PROBABILITIES, PROBABILITIES, axis=n(-1)
    ),
    "Conv2D": lambda n: layers.Conv2D(n(2), n(3), strides=(n(2), n(1)))(IMAGES),
    "Reshape": lambda n: layers.Reshape(n(24))(X),
    "Dot": lambda n: layers.Dot(n(2))([X, X]),
    "PReLU": lambda n: layers.PReLU(shared_axes=n(1))(X),
    "EinsumDense": lambda n: layers.EinsumDense("abc,cd->abd", (None, n(3)))(X),
    "MultiHeadAttention": lambda n: layers.MultiHeadAttention(
        n(2), n(3), attention_axes=n(1)
    )(X, X),
    "Dropout": lambda n: layers.Dropout(0.5, (n(2), n(1), n(4)), seed=n(3))(
        X, training=True
    ),
    "Equalization": lambda n: layers.Equalization(bins=n(16))(IMAGES),
    "Hashing": lambda n: layers.Hashing(n(3), salt=n(3))(np.arange(4)),
    "split_dataset": lambda n: [
        len(part) for part in toolkit.utils.split_dataset(X, left_size=n(1))
    ],
    "TextVectorization": lambda n: layers.TextVectorization(
        n(9), output_sequence_length=n(3), ngrams=n(2), vocabulary=["a", "b", "c d"]
    )(WORDS),
    "Input": lambda n: layers.Dense(2)(toolkit.Input((n(3),), batch_size=n(2))),
}
REAL = {
    "SGD": lambda n: optimizers.SGD(n(0.5), momentum=n(0.25)).get_config()["momentum"],
    "L2": lambda n: regularizers.L2(n(0.5))(X),
    "MaxNorm": lambda n: constraints.MaxNorm(n(0.5))(X),
    "Dropout": lambda n: layers.Dropout(n(0.5), seed=3)(X, training=True),
    "RandomBrightness": lambda n: layers.RandomBrightness(n(0.25), seed=3)(IMAGES),
    "Precision": lambda n: metrics.Precision(thresholds=n(0.5)).get_config()[
        "thresholds"
    ],
}
NUMBERS = [(np.int64, function) for function in WHOLE.values()]
NUMBERS += [(np.float32, function) for function in REAL.values()]


@pytest.mark.parametrize("number, function", NUMBERS, ids=[*WHOLE, *REAL])
def test_numpy_scalars_are_accepted(number, function):
    results = []
    for kind in (number, lambda value: value):
        toolkit.utils.set_random_seed(0)
        results.append(function(kind))
    assert tuple(np.shape(results[0])) == tuple(np.shape(results[1]))
    if not isinstance(results[0], toolkit.KerasTensor):
        np.testing.assert_array_equal(results[0], results[1])


def test_configs_store_numpy_scalars_as_python_numbers():
    model = toolkit.Sequential(
        [
            toolkit.Input(shape=(np.int64(6), np.int64(4))),
            layers.PReLU(shared_axes=np.int64(1)),
            layers.Reshape(np.int64(24)),
            layers.Dropout(np.float32(0.5), noise_shape=(None, np.int64(24))),
        ]
    )
    copy = toolkit.models.model_from_json(model.to_json())
    assert copy.to_json() == model.to_json()


def test_training_accepts_numpy_scalars(tmp_path):
    model = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=np.int64(2))
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    path = tmp_path / "model.keras"
    history = model.fit(
        *(x, y),
        batch_size=np.int64(1),
        epochs=np.int64(2),
        validation_data=(x, y),
        validation_freq=np.int64(2),
        callbacks=[callbacks.ModelCheckpoint(path, save_freq=np.int64(4))],
        verbose=0,
    )
    assert len(history.history["val_loss"]) == 1
    assert path.exists()


def test_settings_accept_numpy_scalars():
    before = toolkit.config.num_threads()
    try:
        toolkit.config.set_num_threads(np.int64(1))
        assert toolkit.config.num_threads() == 1
    finally:
        toolkit.config.set_num_threads(before)


LAYERS = [cls for cls in CLASSES if issubclass(cls, layers.Layer)]
# Arguments that Keras's layers also name have a type that an editor can show.
TYPED = re.compile(
    r"kernel_size|strides|dilation_rate|pool_size|activation|data_format|value_range"
    r"|.*_(initializer|regularizer|constraint)"
)


@pytest.mark.parametrize("cls", LAYERS)
def test_layer_arguments_have_types(cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    untyped = [
        p.name for p in parameters if TYPED.fullmatch(p.name) and p.annotation == "Any"
    ]
    assert untyped == []


@pytest.mark.parametrize("name", ("Dense", "Conv2D", "Dropout", "Add", "ReLU"))
def test_editors_know_the_keywords_of_layers(name):
    parameters = inspect.signature(getattr(layers, name).__init__).parameters.values()
    further = [p.annotation for p in parameters if p.kind is p.VAR_KEYWORD]
    assert further and all("LayerOptions" in annotation for annotation in further)


def test_one_declaration_shows_the_full_signature():
    for cls in (layers.LSTM, layers.Conv2D, layers.SeparableConv1D, layers.ConvLSTM2D):
        names = list(inspect.signature(cls).parameters)
        assert {"activation", "kernel_size", "units"} & {*names}
        assert len(names) > 15
