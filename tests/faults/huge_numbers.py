"""Write configs with one huge number: layers, losses, metrics, optimizers and more.

A config may come from a stranger. A file of a few KB must not make loading take
gigabytes or minutes, whichever argument of whichever class requests them.
"""

import copy
import functools
import json
import zipfile

import h5py

import toolkit as tk
from tests.layers.test_all_layers import CASES as LAYERS
from tests.losses.test_losses import ROWS as LOSSES
from tests.metrics.test_metrics import ROWS as METRICS
from toolkit import layers, optimizers

HUGE = (5_000_000, 50_000_000, 2**31, 2**40, 1e30)
MANY = 5  # numbers of one model in one container, drawn again for each seed
CONTAINERS = ("keras", "h5", "json")
SCHEDULES = {
    "ExponentialDecay": (0.1, 10, 0.9),
    "PiecewiseConstantDecay": ([5, 9], [0.1, 0.01, 0.001]),
    "PolynomialDecay": (0.1, 10),
    "InverseTimeDecay": (0.1, 10, 0.5),
    "CosineDecay": (0.1, 10),
    "CosineDecayRestarts": (0.1, 10),
}


# --- valid models ---------------------------------------------------------------------


def _symbols(shape, dtype=None):
    if isinstance(shape, list):
        return [_symbols(extent, dtype) for extent in shape]
    return tk.Input(shape[1:], dtype=dtype)


def _model(layer, *shapes, dtype=None):
    inputs = [_symbols(shape, dtype) for shape in shapes]
    return tk.Model(tk.tree.flatten(inputs), layer(*inputs))


def _words(cls, **arguments):
    layer = cls(vocabulary=["one", "two"], **arguments)
    return _model(layer, (2, 1), dtype="string")


SEQUENCE, IMAGE = (2, 6, 4), (2, 8, 8, 3)
MORE_LAYERS = {
    "Embedding": lambda: _model(layers.Embedding(5, 3), (2, 6), dtype="int32"),
    "ReversibleEmbedding": lambda: _model(
        layers.ReversibleEmbedding(5, 3, tie_weights=False), (2, 6), dtype="int32"
    ),
    "RNN": lambda: _model(layers.RNN(layers.LSTMCell(4)), SEQUENCE),
    "StackedRNNCells": lambda: _model(
        layers.RNN([layers.GRUCell(4), layers.SimpleRNNCell(3)]), SEQUENCE
    ),
    "Bidirectional": lambda: _model(layers.Bidirectional(layers.GRU(4)), SEQUENCE),
    "TimeDistributed": lambda: _model(
        layers.TimeDistributed(layers.Dense(4)), SEQUENCE
    ),
    "SpectralNormalization": lambda: _model(
        layers.SpectralNormalization(layers.Dense(4)), (2, 4)
    ),
    "CategoryEncoding": lambda: _model(
        layers.CategoryEncoding(4, "multi_hot"), (2, 6), dtype="int32"
    ),
    "Discretization": lambda: _model(layers.Discretization([0.0, 1.0]), (2, 4)),
    "Discretization of bins": lambda: _model(
        layers.Discretization(num_bins=4, output_mode="one_hot"), (2, 1)
    ),
    "HashedCrossing": lambda: _model(
        layers.HashedCrossing(4, output_mode="one_hot"), [(2, 1), (2, 1)], dtype="int32"
    ),
    "Hashing": lambda: _model(
        layers.Hashing(4, output_mode="one_hot"), (2, 1), dtype="int32"
    ),
    "IntegerLookup": lambda: _model(
        layers.IntegerLookup(vocabulary=[1, 2], output_mode="multi_hot"),
        (2, 1),
        dtype="int64",
    ),
    "StringLookup": lambda: _words(layers.StringLookup, output_mode="one_hot"),
    "StringLookup without words": lambda: _model(
        layers.StringLookup(max_tokens=9, output_mode="multi_hot"),
        (2, 1),
        dtype="string",
    ),
    "TextVectorization": lambda: _words(
        layers.TextVectorization, ngrams=2, output_sequence_length=4
    ),
    "TextVectorization of counts": lambda: _words(
        layers.TextVectorization,
        output_mode="count",
        max_tokens=9,
        pad_to_max_tokens=True,
    ),
    "Pipeline": lambda: _model(
        layers.Pipeline([layers.RandomCrop(4, 4), layers.Rescaling(0.5)]), IMAGE
    ),
    "AugMix": lambda: _model(layers.AugMix(), IMAGE),
    "CutMix": lambda: _model(layers.CutMix(), IMAGE),
    "MixUp": lambda: _model(layers.MixUp(), IMAGE),
    "RandAugment": lambda: _model(layers.RandAugment(), IMAGE),
}


def _dense(**arguments):
    return _model(layers.Dense(4, **arguments), (2, 4))


def _compiled(optimizer="sgd", loss="mse", metrics=()):
    model = _dense()
    model.compile(optimizer, loss, metrics=list(metrics))
    return model


def _classes(namespace, base):
    """Return the public classes of a namespace that derive from a base."""
    module = getattr(tk, namespace)
    classes = [getattr(module, name) for name in dir(module)]
    classes = {x for x in classes if isinstance(x, type) and issubclass(x, base)} - {
        base
    }
    return sorted(classes, key=lambda c: c.__name__)


def _objects():
    """Yield (kind, class, a function that returns a model with such an object)."""
    for row in LOSSES:
        yield "loss", row.cls, lambda r=row: _compiled(loss=r.cls(**r.arguments))
    for row in METRICS:
        yield "metric", row.cls, lambda r=row: _compiled(metrics=[r.cls(**r.arguments)])
    for cls in _classes("regularizers", tk.regularizers.Regularizer):
        yield "regularizer", cls, lambda c=cls: _dense(kernel_regularizer=c())
    for cls in _classes("constraints", tk.constraints.Constraint):
        yield "constraint", cls, lambda c=cls: _dense(kernel_constraint=c())
    for cls in _classes("initializers", tk.initializers.Initializer):
        # The base has no values; `_with_stft` covers the other class.
        if cls not in (tk.initializers.STFT, tk.initializers.RandomInitializer):
            yield "initializer", cls, lambda c=cls: _dense(kernel_initializer=c())
    for cls in _classes("optimizers", optimizers.Optimizer):
        if cls is optimizers.LossScaleOptimizer:
            yield "optimizer", cls, lambda c=cls: _compiled(c(optimizers.SGD()))
        elif cls is not optimizers.MultiOptimizer:  # no config
            yield "optimizer", cls, lambda c=cls: _compiled(c())
    for name, arguments in SCHEDULES.items():
        cls = getattr(optimizers.schedules, name)
        yield (
            "schedule",
            cls,
            lambda c=cls, a=arguments: _compiled(optimizers.SGD(c(*a))),
        )


def _with_stft():
    kernel = tk.initializers.STFT()
    return _model(layers.Conv1D(5, 8, kernel_initializer=kernel), (2, 30, 1))


def samples():
    """Return label -> a function that returns a model, for each class of configs."""
    by_label = {}
    for number, (name, arguments, shapes) in enumerate(LAYERS):
        cls = getattr(layers, name)
        by_label[f"layer {name} {number}"] = functools.partial(
            lambda c, a, s: _model(c(**a), *s), cls, arguments, shapes
        )
    for name, make in MORE_LAYERS.items():
        by_label[f"layer {name}"] = make
    by_label["initializer STFT"] = _with_stft
    for number, (kind, cls, make) in enumerate(_objects()):
        by_label[f"{kind} {cls.__name__} {number}"] = make
    return by_label


# --- slots ----------------------------------------------------------------------------


def slots(value, is_nested=False):
    """Return the paths to the numbers and open arguments of all objects in a config."""
    if isinstance(value, dict):
        is_object = "class_name" in value and isinstance(value.get("config"), dict)
        for key, item in value.items():
            within = is_nested or (is_object and key == "config")
            if key in ("inbound_nodes", "input_layers", "output_layers"):
                continue
            if within and _is_slot(item) and key not in ("registered_name", "module"):
                yield (key,)
            if isinstance(item, (dict, list)):
                yield from ((key, *path) for path in slots(item, within))
    elif isinstance(value, list):
        for key, item in enumerate(value):
            if is_nested and _is_slot(item):
                yield (key,)
            if isinstance(item, (dict, list)):
                yield from ((key, *path) for path in slots(item, is_nested))


def _is_slot(item):
    number = isinstance(item, (int, float)) and not isinstance(item, bool)
    return number or item is None


def replaced(config, path, value):
    config = copy.deepcopy(config)
    inner = config
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return config


# --- containers -----------------------------------------------------------------------


def good(make, folder):
    """Return (config, members of the `.keras` file, bytes of the `.h5` file) of a
    model.
    """
    tk.utils.set_random_seed(1)
    model = make()
    model.save(folder / "good.keras")
    with zipfile.ZipFile(folder / "good.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    model.save(folder / "good.h5")
    return (
        json.loads(members["config.json"]),
        members,
        (folder / "good.h5").read_bytes(),
    )


def write(container, config, members, h5, folder):
    """Write a config into a container; return a function that reads it."""
    text = json.dumps(config)
    if container == "json":
        return lambda: tk.models.model_from_json(text)
    if container == "keras":
        path = folder / "bad.keras"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {**members, "config.json": text}.items():
                archive.writestr(name, content)
    else:
        path = folder / "bad.h5"
        path.write_bytes(h5)
        with h5py.File(path, "r+") as file:
            plain = {k: v for k, v in config.items() if k != "compile_config"}
            file.attrs["model_config"] = json.dumps(plain)
            if config.get("compile_config") and "training_config" in file.attrs:
                training = json.loads(file.attrs["training_config"])
                for key in ("loss", "metrics"):
                    if key in training:
                        training[key] = config["compile_config"].get(key)
                training["optimizer_config"] = config["compile_config"].get("optimizer")
                file.attrs["training_config"] = json.dumps(training)
    return lambda: tk.saving.load_model(path)


def hostile_configs(label, make, chance, folder):
    """Yield (path of the huge number, a function that reads it) for a valid model.

    Args:
        label: of the sample.
        make: a function that returns the valid model.
        chance: the source of the values.
        folder: for the files.
    """
    config, members, h5 = good(make, folder)
    for container in CONTAINERS:
        write(container, config, members, h5, folder)()  # it is readable
        paths = list(slots(config))
        for path in chance.sample(paths, min(MANY, len(paths))):
            value = chance.choice(HUGE)
            where = ".".join(map(str, path))
            bad = replaced(config, path, value)
            read = write(container, bad, members, h5, folder)
            yield f"{label} in {container}: {where} = {value}", read
