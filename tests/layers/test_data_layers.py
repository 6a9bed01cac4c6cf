"""Test the inputs of data layers, and the dtypes of their outputs."""

import json
import math

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.data import Dataset
from toolkit.errors import ArgumentError

IMAGE = np.random.default_rng(0).random((6, 6, 3)).astype("float32")
SCALE = {"mean": [1.0, 2.0, 3.0], "variance": [4.0, 4.0, 4.0]}
LAYERS = {
    "AutoContrast": lambda: layers.AutoContrast((0, 1)),
    "CenterCrop": lambda: layers.CenterCrop(4, 4),
    "Equalization": lambda: layers.Equalization((0, 1)),
    "MixUp": lambda: layers.MixUp(seed=1),
    "Normalization": lambda: layers.Normalization(**SCALE),
    "RandomBrightness": lambda: layers.RandomBrightness(0.1, seed=1),
    "RandomFlip": lambda: layers.RandomFlip(seed=1),
    "RandomRotation": lambda: layers.RandomRotation(0.1, seed=1),
    "Resizing": lambda: layers.Resizing(4, 4),
}


@pytest.mark.parametrize("name", LAYERS)
def test_nested_lists_are_images(name):
    batch = np.stack([IMAGE, IMAGE[::-1]])
    for data in (IMAGE, batch):
        expected = LAYERS[name]()(data).numpy()
        assert np.array_equal(LAYERS[name]()(data.tolist()), expected)
    arrays = LAYERS[name]()([IMAGE, IMAGE[::-1]])
    assert np.array_equal(arrays, expected)


def test_nested_lists_in_dicts():
    boxes = {"boxes": [[[0, 0, 2, 2]]], "labels": [[1]]}
    layer = layers.Resizing(12, 12, bounding_box_format="xyxy")
    outputs = layer(
        {"images": [IMAGE.tolist()], "bounding_boxes": boxes, "labels": [2]}
    )
    assert outputs["images"].shape == (1, 12, 12, 3)
    assert outputs["bounding_boxes"]["boxes"].tolist() == [[[0, 0, 4, 4]]]
    assert outputs["labels"].tolist() == [2]


def test_numbers_and_lists():
    assert layers.Normalization(axis=None, mean=1.0, variance=4.0)(5.0).item() == 2.0
    assert layers.Normalization(**SCALE)([[3.0, 4.0, 3.0]]).tolist() == [[1, 1, 0]]
    assert layers.MelSpectrogram(256, 128)([0.1] * 512).shape == (128, 5)
    signal = [[[0.1]] * 512]
    assert layers.STFTSpectrogram(frame_length=256)(signal).shape == (1, 3, 129)
    assert layers.Discretization([1.5])([1, 2.0]).tolist() == [0, 1]
    with pytest.raises(ArgumentError, match="Only input tensors"):
        layers.Dense(2)([[1.0, 2.0]])


def test_sizes_can_be_changed_later():
    layer = layers.Resizing(height=None, width=None)
    with pytest.raises(ArgumentError, match="expected height and width to be set"):
        layer(IMAGE)
    layer.height, layer.width = 4, 6
    assert layer(IMAGE).shape == (4, 6, 3)


def test_lists_in_a_traced_function_and_of_symbols():
    layer = layers.CenterCrop(4, 4)
    stacked = toolkit.function(lambda x: layer([x, x]))(IMAGE)
    assert np.array_equal(stacked, layer([IMAGE, IMAGE]))


def test_random_crop_is_centered_in_inference():
    middle = layers.CenterCrop(4, 4)(IMAGE)
    assert np.array_equal(layers.RandomCrop(4, 4)(IMAGE, training=False), middle)


@pytest.mark.parametrize("policy", ["uint8", "int32", "float16"])
def test_resizing_honours_its_dtype(policy):
    x = np.arange(36, dtype="float32").reshape(1, 6, 6, 1) * 7
    layer = layers.Resizing(4, 4, dtype=policy)
    assert layer(x).dtype == layer(toolkit.Input((6, 6, 1))).dtype == policy
    assert layer(x)[0, 0, :, 0].tolist() == pytest.approx([12, 23, 33, 44], abs=0.3)


def test_resizing_keeps_integers():
    x = np.arange(0, 252, 7, dtype="uint8").reshape(1, 6, 6, 1)
    for policy in (None, "int32", "float16"):
        layer = layers.Resizing(4, 4, dtype=policy)
        assert layer(x).dtype == "uint8" and layer(x)[0, 0, 0, 0].item() == 12


@pytest.mark.parametrize("mode", ["multi_hot", "one_hot", "count"])
def test_out_of_range_categories_are_refused(mode):
    layer = layers.CategoryEncoding(3, output_mode=mode)
    inputs = toolkit.Input((3,), dtype="int64")
    model = toolkit.Model(inputs, layer(inputs))
    for category in (7, -1):
        x = np.array([[0, category, 1]])
        with pytest.raises(ArgumentError, match=r"range 0 <= values < num_tokens"):
            layer(x)
        code = np.asarray(model.predict(x, verbose=0))
        assert code.reshape(-1, 3).sum(0).tolist() == [1, 1, 0]


def test_frames_have_samples():
    with pytest.raises(ArgumentError, match="positive integer.*frame_length=0"):
        layers.STFTSpectrogram(frame_length=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: layers.RandomSharpness(0.5, seed=seed),
        lambda seed: layers.RandomFlip(seed=seed),
        lambda seed: layers.RandomCrop(4, 4, seed=seed),
        lambda seed: layers.Dropout(0.5, seed=seed),
        lambda seed: layers.GaussianNoise(0.5, seed=seed),
    ],
    ids=["sharpness", "flip", "crop", "dropout", "noise"],
)
def test_generator_is_a_seed(make):
    """Layers with a shared generator draw from it sequentially."""
    seeds = toolkit.random.SeedGenerator(1)
    layer, same_seed = make(seeds), make(seeds)
    x = np.stack([IMAGE] * 2)
    first_outputs, (_, state) = layer(x, training=True), seeds.state.numpy().tolist()
    same_seed(x, training=True)
    assert seeds.state.numpy().tolist() == [1, 2 * state] and state > 0
    assert np.array_equal(first_outputs, make(1)(x, training=True))
    restored = type(layer).from_config(layer.get_config())
    assert np.array_equal(restored(x, training=True), first_outputs)


ARRAYS = {
    "array": lambda: layers.Discretization(np.array([-1.0, 0.0, 0.5])),
    "numbers": lambda: layers.Discretization([np.float32(-1), np.float64(0), 0.5]),
    "tensor": lambda: layers.Discretization(toolkit.ops.array([-1.0, 0.0, 0.5])),
    "words": lambda: layers.TextVectorization(vocabulary=np.array(["a", "b"])),
    "vocabulary": lambda: layers.StringLookup(vocabulary=np.array(["a", "b"])),
    "integers": lambda: layers.IntegerLookup(vocabulary=np.array([1, 2, 3])),
    "mean": lambda: layers.Normalization(mean=np.ones(2), variance=np.ones(2)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_plain_json_in_configs(name):
    layer = ARRAYS[name]()
    config = json.loads(json.dumps(layer.get_config()))
    restored = type(layer).from_config(config)
    assert restored.get_config() == layer.get_config()


class Brighter(layers.Normalization.__base__):
    """A layer written for Keras."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed, self.generator = 3, toolkit.random.SeedGenerator(3)

    def call(self, inputs):
        seed = self._get_seed_generator(self.backend._backend)
        shape = self.backend.shape(inputs)
        amount = self.backend.random.uniform((shape[0], 1), 1.0, 2.0, seed=seed)
        weight = self.convert_weight(self.backend.convert_to_tensor(10.0))
        plus = self.backend.numpy.add(inputs, self.backend.cast(amount, "float32"))
        return self.backend.nn.relu(self.backend.math.rsqrt(weight) * plus)


def test_preprocessing_layers_have_a_backend():
    instances = [make() for make in LAYERS.values()]
    instances += [layers.Rescaling(2.0), layers.CategoryEncoding(3)]
    instances += [layers.Discretization([1.0]), layers.MelSpectrogram()]
    for layer in instances:
        assert layer.backend.name == toolkit.backend.backend()
        assert layer.backend.numpy.add(1, 2) == layer.backend.cast(3, "int32")
        assert layer.backend.image.resize and layer.backend.linalg.norm
    assert not hasattr(layers.Dense(2), "backend")
    assert layers.Rescaling(2.0)([[1, 2]]).numpy().tolist() == [[2.0, 4.0]]


def test_layers_for_keras_use_their_backend():
    x = np.ones((4, 2), "float32")
    model = toolkit.Sequential([toolkit.Input((2,)), Brighter()])
    for y in (np.asarray(Brighter()(x)), model.predict(x, verbose=0)):
        assert y.shape == (4, 2) and np.all((y > 0.6) & (y < 0.95))
    layer = layers.Rescaling(2.0)
    layer.backend.set_backend(layer.backend.name)
    layer.backend.reset()
    with pytest.raises(ArgumentError, match="set_backend"):
        layer.backend.set_backend("jax")
    with pytest.raises(ArgumentError, match="`generator`"):
        layer._get_seed_generator()
    with pytest.raises(AttributeError):
        layer.backend.no_such_operation  # noqa: B018


def test_adapt_reports_missing_numbers():
    rows = np.array([[1.0, 2.0, 3.0], [1.0, np.nan, np.inf]])
    layer = layers.Normalization(name="scale")
    with pytest.warns(UserWarning, match="'scale'.* in 2 of 3 features, first in .* 1"):
        layer.adapt(rows)
    assert np.isfinite(layer.adapt_mean.numpy()).tolist() == [True, False, False]
    bins = layers.Discretization(num_bins=2, name="bins")
    with pytest.warns(UserWarning, match="'bins'.*contains NaN.*fillna"):
        bins.adapt(rows[:, 1])


def test_lookup_refuses_missing_text():
    values = np.array(["a", math.nan], object)
    with pytest.raises(TypeError, match=r"expected strings; received nan.*fillna"):
        layers.StringLookup().adapt(values)
    dataset = Dataset.from_tensor_slices(values).map(lambda value: value)
    with pytest.raises(TypeError, match=r"expected strings; received nan.*fillna"):
        layers.StringLookup().adapt(dataset.batch(2))
