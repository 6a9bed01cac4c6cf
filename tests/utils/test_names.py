"""Test settings, data sets by index, and sources of symbols."""

import json
from functools import partial

import numpy as np
import pytest

import toolkit
from toolkit import utils
from toolkit.errors import ArgumentError


def test_config():
    config = utils.Config(rate=0.5)
    config.units = 3
    config["name"] = "x"
    assert config.as_dict() == {"rate": 0.5, "units": 3, "name": "x"}
    assert list(config) == ["name", "rate", "units"] and len(config) == 3
    with pytest.raises(AttributeError, match="Did you mean 'units'"):
        _ = config.unit
    config.freeze()
    with pytest.raises(ArgumentError, match="frozen"):
        config.rate = 1.0
    config.unfreeze()
    assert config.pop("rate") == 0.5 and "rate" not in config


class Squares(utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.full((2, 1), index**2, "float32"), np.zeros((2, 1), "float32")


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_of_workers_are_ordered(workers):
    dataset = Squares(workers=workers, max_queue_size=2)
    assert [float(x[0, 0]) for x, _ in dataset.fetch(range(4))] == [0, 1, 4, 9]
    model = toolkit.Sequential([toolkit.Input((1,)), toolkit.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.layers[0].set_weights([np.ones((1, 1)), np.zeros(1)])
    assert model.predict(dataset, verbose=0)[::2, 0].tolist() == [0, 1, 4, 9]


def test_sources_of_symbols():
    a, b = toolkit.Input((2,), name="a"), toolkit.Input((2,), name="b")
    assert utils.get_source_inputs(toolkit.layers.Dense(2)(a) + b * a) == [a, b]
    assert utils.get_source_inputs(a) == [a]


class Half:
    def __init__(self, of=1.0):
        self.of = of

    def get_config(self):
        return {"of": self.of}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_legacy_names():
    assert toolkit.legacy.saving.serialize_keras_object(None) is None
    assert toolkit.version() == toolkit.__version__


def test_configs_before_keras_3():
    config = utils.legacy.serialize_keras_object(Half(3.0))
    assert config == {"class_name": "Half", "config": {"of": 3.0}}
    read = partial(utils.legacy.deserialize_keras_object, module_objects={"Half": Half})
    assert read(config).of == 3.0 and read("Half").of == 1.0
    assert read("double", custom_objects={"double": len}) is len
    assert read(None) is None and utils.legacy.serialize_keras_object(None) is None
    for wrong, message in [
        ("Third", "Unknown fraction: 'Third'"),
        ({"name": "Half"}, "Improper config format"),
        (3, "Could not interpret serialized fraction"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            read(wrong, printable_module_name="fraction")
    with pytest.raises(ArgumentError, match="get_config"):
        utils.legacy.serialize_keras_object(3)


class Space:
    """A class that deserializes the objects of a list itself."""

    def __init__(self, segments, rate=None, function=None, name=None):
        self.parts, self.rate = segments, rate
        self.function, self.name = function, name

    def get_config(self):
        configs = [{"class_name": "Half", "config": p.get_config()} for p in self.parts]
        values = {"rate": self.rate, "function": self.function, "name": self.name}
        return {"parts": configs, "one": {"class_name": "Half", "config": {}}, **values}

    @classmethod
    def from_config(cls, config):
        assert config.pop("one") == {"class_name": "Half", "config": {}}
        segments = [
            Half.from_config(segment["config"]) for segment in config.pop("parts")
        ]
        return cls(segments, **config)


def triple(x):
    return 3 * x


def test_legacy_configs_keep_dicts_of_the_user():
    registered = {"Half": Half, "Space": Space, "triple": triple}
    space = Space([Half(2.0)], rate=Half(Half(3.0)), function=triple, name="triple")
    config = utils.legacy.serialize_keras_object(space)
    inner = config["config"]
    assert inner["parts"] == [{"class_name": "Half", "config": {"of": 2.0}}]
    assert inner["rate"]["class_name"] == "Half"
    assert inner["rate"]["__passive_serialization__"] is True
    assert inner["function"] == inner["name"] == "triple"
    before = json.dumps(config)
    for options in ({"custom_objects": registered}, {"module_objects": registered}):
        read = utils.legacy.deserialize_keras_object(config, **options)
        assert read.parts[0].of == 2.0 and read.rate.of.of == 3.0
        assert read.function is triple and read.name == "triple"
    assert json.dumps(config) == before


def test_legacy_configs_of_layers():
    layer = toolkit.layers.Dense(3, activation="relu", kernel_regularizer="l2")
    config = utils.legacy.serialize_keras_object(layer)
    read = utils.legacy.deserialize_keras_object(config, vars(toolkit.layers))
    assert read.get_config() == layer.get_config()
    model = toolkit.Sequential([toolkit.Input((2,)), Doubled(3)])
    config = utils.legacy.serialize_keras_object(model)
    read = utils.legacy.deserialize_keras_object(
        config, {"Sequential": toolkit.Sequential}, {"Doubled": Doubled}
    )
    assert type(read.layers[0]) is Doubled


class Doubled(toolkit.layers.Dense):
    def call(self, x):
        return 2 * super().call(x)


def test_missing_and_unknown_features():
    space = utils.FeatureSpace({"a": "float", "b": "float"})
    space.adapt({"a": [0.0], "b": [1.0]})
    for data in ({"a": [0.0]}, {"a": [0.0], "b": [1.0], "c": [2.0]}):
        with pytest.raises(ArgumentError, match=r"expected the features \['a', 'b'\]"):
            space(data)


def test_float_features_of_integers():
    data = {"age": np.array([1, 2, 5]), "old": np.array([False, False, True])}
    space = utils.FeatureSpace({"age": "float", "old": "float"})
    space.adapt(data)
    assert space(data).numpy().tolist() == [[1.0, 0.0], [2.0, 0.0], [5.0, 1.0]]
    assert space(data).dtype == "float32"


def test_discretized_feature_has_the_requested_width():
    space = utils.FeatureSpace({"x": "float_discretized"}, num_discretization_bins=8)
    with pytest.raises(ValueError, match="You need to call `.adapt"):
        space.get_encoded_features()
    with pytest.raises(ArgumentError, match="expects dicts of arrays"):
        space.adapt([1, 2])
    space.adapt({"x": [0.0, 1.0, 2.0]})
    assert space({"x": [0.0, 5.0]}).shape == (2, 8)
