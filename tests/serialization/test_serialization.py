"""Test the serialization of objects, and the names that a config may contain."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import (
    activations,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
    serialization,
)
from toolkit.errors import ArgumentError, DTypeError
from toolkit.serialization import (
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)


@pytest.fixture(autouse=True)
def keep_registry():
    registered = dict(get_custom_objects())
    yield
    get_custom_objects().clear()
    get_custom_objects().update(registered)


def through_json(obj):
    """Serialize an object to a string, and restore it."""
    return deserialize_keras_object(json.loads(json.dumps(serialize_keras_object(obj))))


class Scale:
    """A class of the user."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def get_config(self):
        return {"factor": self.factor}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def double(x):
    return 2 * x


# --- plain values ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 0.5, "text", [1, [2.0]], {"a": [1], "b": None}),
        *(b"\x00\xff", slice(1, None, 2), Ellipsis, {"s": slice(3)}),
    ],
    ids=repr,
)
def test_plain_values(value):
    assert through_json(value) == value


def test_tuples_are_restored_as_tuples():
    assert deserialize_keras_object(serialize_keras_object((1, (2,)))) == (1, (2,))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_arrays_and_tensors(dtype):
    tensor = ops.cast([[1.0, 0.0], [3.0, 1.0]], dtype)
    restored = through_json(tensor)
    assert restored.dtype == dtype
    assert_close(restored, tensor)
    array = through_json(tensor.numpy())
    assert isinstance(array, np.ndarray) and array.dtype == tensor.numpy().dtype
    np.testing.assert_array_equal(array, tensor.numpy())


def test_numpy_scalars_and_dtypes_become_plain():
    assert serialize_keras_object(np.float32(0.5)) == 0.5
    assert serialize_keras_object(np.dtype("int8")) == "int8"


# --- public objects -------------------------------------------------------------------


@pytest.mark.parametrize(
    "obj, module, name",
    [
        (losses.Huber(delta=0.5), "keras.losses", "Huber"),
        (metrics.AUC(9, name="area"), "keras.metrics", "AUC"),
        (optimizers.Adam(0.5), "keras.optimizers", "Adam"),
        (
            optimizers.schedules.CosineDecay(0.5, 3),
            "keras.optimizers.schedules",
            "CosineDecay",
        ),
        (regularizers.L2(0.5), "keras.regularizers", "L2"),
        (initializers.Constant(0.5), "keras.initializers", "Constant"),
        (layers.Dense(3), "keras.layers", "Dense"),
        (layers.Dense(3).dtype_policy, "keras", "DTypePolicy"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_public_objects(obj, module, name):
    config = serialize_keras_object(obj)
    assert config["module"] == module
    assert config["class_name"] == name
    assert config["registered_name"] is None
    restored = through_json(obj)
    assert type(restored) is type(obj)
    assert restored.get_config() == obj.get_config()


@pytest.mark.parametrize(
    "function", [losses.huber, activations.relu, ops.tanh, metrics.binary_accuracy]
)
def test_public_functions(function):
    assert through_json(function) is function
    assert serialize_keras_object(function)["class_name"] == "function"


def test_keras_spellings_of_modules():
    config = {"class_name": "Dense", "config": {"units": 3}, "registered_name": None}
    for module in ("keras.layers", "toolkit.layers", "keras.src.layers.core.dense"):
        layer = deserialize_keras_object({**config, "module": module})
        assert isinstance(layer, layers.Dense)


def test_one_name_in_two_modules():
    config = {"class_name": "MeanSquaredError", "config": {}, "registered_name": None}
    for module, cls in (
        ("keras.losses", losses.MeanSquaredError),
        ("keras.metrics", metrics.MeanSquaredError),
    ):
        assert type(deserialize_keras_object({**config, "module": module})) is cls


def test_configs_inside_structures():
    nest = {"a": [regularizers.L1(0.5)], "b": (1, losses.Huber())}
    restored = deserialize_keras_object(serialize_keras_object(nest))
    assert restored["a"][0].l1 == 0.5
    assert isinstance(restored["b"][1], losses.Huber)


def test_classes_round_trip():
    assert through_json(losses.Huber) is losses.Huber


# --- custom objects -------------------------------------------------------------------


def test_registered_objects():
    register_keras_serializable("tests")(Scale)
    register_keras_serializable("tests", name="twice")(double)
    assert get_registered_name(Scale) == "tests>Scale"
    assert get_registered_object("tests>Scale") is Scale
    assert serialize_keras_object(Scale(2.0))["registered_name"] == "tests>Scale"
    assert through_json(Scale(2.0)).factor == 2.0
    assert through_json(double) is double
    assert serialize_keras_object(double)["config"] == "tests>twice"


def test_custom_objects_as_an_argument_and_a_scope():
    # Classes that the tests above registered must not help in this test.
    class Shift(Scale):
        pass

    config = serialize_keras_object({"x": Shift(3.0), "f": [regularizers.L1()]})
    with pytest.raises(ArgumentError, match="'Shift'.*custom_objects"):
        deserialize_keras_object(config)
    restored = deserialize_keras_object(config, custom_objects={"Shift": Shift})
    assert restored["x"].factor == 3.0
    with custom_object_scope({"Shift": Shift}):
        with custom_object_scope({"other": double}):
            assert deserialize_keras_object(config)["x"].factor == 3.0
            assert get_registered_object("other") is double
        assert get_registered_object("other") is None
    assert get_registered_object("Shift") is None


def test_the_global_dict_of_custom_objects():
    get_custom_objects()["quadratic"] = double
    assert losses.get("quadratic") is double
    assert deserialize_keras_object("quadratic") is double


def test_only_classes_with_a_config_can_be_registered():
    with pytest.raises(ArgumentError, match="get_config.*Bare"):

        @register_keras_serializable()
        class Bare:
            pass


def test_build_configs_are_used():
    class Built(Scale):
        shape = None

        def get_build_config(self):
            return {"shape": (2, 3)}

        def build_from_config(self, config):
            self.shape = config["shape"]

    config = serialize_keras_object(Built())
    restored = deserialize_keras_object(config, custom_objects={"Built": Built})
    assert restored.shape == (2, 3)


# --- forbidden configs ----------------------------------------------------------------


def config_of(class_name, module, config=None, registered_name=None):
    return {
        "module": module,
        "class_name": class_name,
        "config": {} if config is None else config,
        "registered_name": registered_name,
    }


@pytest.mark.parametrize(
    "config, words",
    [
        (config_of("Popen", "subprocess", {"args": ["true"]}), "'Popen'"),
        (config_of("system", "os", {"command": "true"}), "'system'"),
        (config_of("function", "os", "system"), "'system'"),
        (config_of("function", "builtins", "eval"), "'eval'"),
        (config_of("get_file", "keras.utils"), "'get_file'"),
        (config_of("function", "keras.utils", "get_file"), "'get_file'"),
        (config_of("function", "keras.losses", "get"), "'get'"),
        (config_of("function", "keras.metrics", "deserialize"), "'deserialize'"),
        (config_of("import_module", "toolkit.layers"), "'import_module'"),
        (config_of("function", "toolkit.ops", "import_module"), "'import_module'"),
        (config_of("type", "builtins", "type"), "'type'"),
        (config_of("Any", "keras.layers"), "'Any'"),
        (config_of("losses", "keras.losses"), "'losses'"),
        (config_of("__import__", "builtins"), "'__import__'"),
        (config_of("__class__", "keras.layers"), "'__class__'"),
        (config_of("Dense.from_config", "keras.layers"), "from_config"),
        (config_of("function", "keras.ops", "operators.np.load"), "np.load"),
        (config_of("__lambda__", "builtins", {"value": ["4wEA"]}), "lambda"),
        (config_of("__typespec__", None), "'__typespec__'"),
        (config_of("Wrong", "keras.layers"), "'Wrong'"),
        (config_of(["Dense"], "keras.layers"), "class_name"),
        (config_of("function", "keras.losses", {"name": "huber"}), "name"),
    ],
)
def test_forbidden_names_are_refused(config, words):
    with pytest.raises(ArgumentError, match=words):
        deserialize_keras_object(config)


def test_modules_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArgumentError, match="'Layer' of module 'planted'"):
        deserialize_keras_object(config_of("Layer", "planted"))


def test_names_of_nested_modules_are_refused():
    def greedy():
        return 0

    objects = {"huber": losses.Huber, "greedy": greedy}
    loss = deserialize_keras_object("huber", module_objects=objects)
    assert isinstance(loss, losses.Huber) and loss.delta == 1.0
    config = {"class_name": "huber", "config": {"delta": 2.0}}
    loss = deserialize_keras_object(config, module_objects=objects)
    assert (type(loss), loss.delta) == (losses.Huber, 2.0)
    assert deserialize_keras_object("greedy", module_objects=objects) is greedy
    assert deserialize_keras_object("other", module_objects=objects) == "other"


def test_classes_of_imported_keras_libraries_are_found(monkeypatch):
    class Backbone(layers.Layer):
        pass

    config = config_of("Backbone", "keras_hub.models.own", {"name": "b"})
    with pytest.raises(ArgumentError, match="'Backbone' of module 'keras_hub"):
        deserialize_keras_object(config)

    class Foreign:
        @classmethod
        def from_config(cls, config):
            raise SystemExit("run")

    contents = {"Popen": subprocess.Popen, "os": os, "Foreign": Foreign}
    module = SimpleNamespace(Backbone=Backbone, **contents)
    monkeypatch.setitem(sys.modules, "keras_hub.models.own", module)
    assert deserialize_keras_object(config).name == "b"
    for name in contents:
        with pytest.raises(ArgumentError, match=name):
            deserialize_keras_object(config_of(name, "keras_hub.models.own"))
    monkeypatch.setitem(sys.modules, "other", module)
    with pytest.raises(ArgumentError, match="'Backbone' of module 'other'"):
        deserialize_keras_object(config_of("Backbone", "other"))


def test_lambda_code_is_neither_stored_nor_run():
    with pytest.warns(UserWarning, match="contain no code"):
        config = serialize_keras_object({"f": lambda x: x})
    assert config["f"]["config"] == {"value": None}
    for safe_mode in (True, False):
        with pytest.raises(ArgumentError, match="arbitrary code execution"):
            deserialize_keras_object(config, safe_mode=safe_mode)


def test_configs_cannot_read_files():
    layer = config_of("StringLookup", "keras.layers", {"vocabulary": "/etc/passwd"})
    with pytest.raises(ArgumentError, match="StringLookup"):
        deserialize_keras_object(layer)


def test_shared_objects_are_created_once():
    shared = regularizers.L2(0.5)
    twins = [layers.Dense(1, kernel_regularizer=shared) for _ in range(2)]
    with serialization.ObjectSharingScope():
        configs = json.loads(json.dumps(serialize_keras_object(twins)))
    marks = [c["config"]["kernel_regularizer"]["shared_object_id"] for c in configs]
    assert marks[0] == marks[1]
    with serialization.ObjectSharingScope():
        a, b = deserialize_keras_object(configs)
    assert a.kernel_regularizer is b.kernel_regularizer


def test_functions_in_the_format_of_keras():
    for config, function in [
        (config_of("function", "builtins", "relu", "function"), activations.relu),
        (config_of("function", "builtins", "huber", "function"), losses.huber),
    ]:
        assert deserialize_keras_object(config) is function
    assert serialize_keras_object(activations.relu) == {
        "module": "builtins",
        "class_name": "function",
        "config": "relu",
        "registered_name": "function",
    }


def test_public_class_has_no_registered_name():
    config = config_of("Dense", "keras.layers", {"units": 1}, "subprocess.Popen")
    with pytest.raises(ArgumentError, match="built-in"):
        deserialize_keras_object(config)


@pytest.mark.parametrize("dtype", ["object", "U8", "float128"])
def test_arrays_of_other_dtypes(dtype):
    config = {"class_name": "__numpy__", "config": {"value": [1], "dtype": dtype}}
    with pytest.raises(DTypeError, match="expected one of"):
        deserialize_keras_object(config)


def test_invalid_arrays_are_refused():
    config = {"class_name": "__numpy__", "config": {"value": ["x"], "dtype": "int8"}}
    with pytest.raises(DTypeError, match="__numpy__"):
        deserialize_keras_object(config)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: serialize_keras_object(object()), "get_config"),
        (
            lambda: deserialize_keras_object({}, printable_module_name="x", wrong=1),
            r"\['wrong'\]",
        ),
        (
            lambda: deserialize_keras_object(
                config_of("Huber", "keras.losses", {"delte": 1.0})
            ),
            "Huber.*delte",
        ),
        (
            lambda: deserialize_keras_object(
                config_of("Thing", None), custom_objects={"Thing": object}
            ),
            "from_config",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


# --- get ------------------------------------------------------------------------------


def test_get_lists_the_valid_names():
    objects = serialization.names_of(Scale)
    assert serialization.get("scale", objects, "thing").factor == 1.0
    assert serialization.get(double, objects, "thing") is double
    with pytest.raises(ArgumentError, match="thing: expected one of 'scale'"):
        serialization.get("scales", objects, "thing")
    with pytest.raises(ArgumentError, match="thing: expected a name.*3"):
        serialization.get(3, objects, "thing")


@pytest.mark.parametrize("module", [["keras"], {"a": 1}, 7])
def test_module_name_must_be_a_string(module):
    config = {"module": module, "class_name": "Dense", "config": {"units": 1}}
    with pytest.raises(TypeError, match="module must be a string; received"):
        serialization.deserialize_keras_object(config)


@serialization.register_keras_serializable("names")
class Tally(metrics.Metric):
    """A metric whose name, and other strings, may be the name of a class."""

    def __init__(self, name="Tally", words=(), options=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.words, self.options = words, options
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(1.0)

    def result(self):
        return self.count


@serialization.register_keras_serializable("names")
class Worded(layers.Layer):
    def __init__(self, words, options, **kwargs):
        super().__init__(**kwargs)
        self.words, self.options = words, options

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize("name", ["Tally", "names>Tally", "Dense", "mse"])
@pytest.mark.parametrize("cls", [Tally, Worded])
def test_string_arguments_are_not_classes(cls, name):
    obj = cls(words=[name, "other"], options={"a": name, "b": [name]}, name="Tally")
    config = serialization.serialize_keras_object(obj)
    custom = {"Tally": Tally, "Dense": Tally, "mse": Tally, "Worded": Worded}
    restored = serialization.deserialize_keras_object(config, custom)
    assert type(restored) is cls
    assert restored.name == "Tally"
    assert (list(restored.words), dict(restored.options)) == (
        [name, "other"],
        {"a": name, "b": [name]},
    )


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_metrics_and_losses_named_like_their_class(tmp_path, ending):
    class MeanGap(losses.Loss):
        def call(self, y_true, y_pred):
            return abs(y_true - y_pred)

    class Steps(optimizers.SGD):
        pass

    custom = {"MeanGap": MeanGap, "Steps": Steps}
    model = toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2, name="Dense")])
    model.compile(Steps(name="Steps"), MeanGap(name="MeanGap"), metrics=[Tally()])
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
    model.save(tmp_path / f"m.{ending}")
    restored = toolkit.saving.load_model(tmp_path / f"m.{ending}", custom)
    assert type(restored.loss) is MeanGap
    assert type(restored.optimizer) is Steps
    logs = restored.train_on_batch(np.ones((2, 3)), np.ones((2, 2)), return_dict=True)
    assert logs.keys() == {"loss", "Tally"}
