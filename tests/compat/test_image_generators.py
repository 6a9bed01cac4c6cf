"""Tests that `ImageDataGenerator` returns the numbers of Keras 3.15 for equal seeds."""

import os
import pickle
import sys

import numpy as np
import pytest

import toolkit
from toolkit.compat.tensorflow.keras.legacy import image_generators as image
from toolkit.compat.tensorflow.keras.legacy.image_sampling import (
    FILL_MODES,
    sample_affine,
)
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
)

Image = pytest.importorskip("PIL.Image")
Generator = image.ImageDataGenerator
IMAGES = (np.arange(10 * 12 * 9 * 3) * 37 % 251).reshape(10, 12, 9, 3)
TARGETS = np.arange(10) % 3
LAST = {"row_axis": 0, "col_axis": 1, "channel_axis": 2}
# Name -> arguments, the seed of batches, and the result of `draw` with Keras.
CONFIGS = {
    "plain": ({}, None, (-5736.779, -1103.935, 771.3404)),
    "seed": ({}, 7, (1585.671, -1103.935, 771.3404)),
    "rotation": ({"rotation_range": 40}, 7, (-7756.962, -1201.902, -310.5886)),
    "rotation, constant": (
        {"rotation_range": 40, "fill_mode": "constant", "cval": 7.0},
        None,
        (-2265.553, -1003.93, -3.099949),
    ),
    "rotation, reflect": (
        {"rotation_range": 170, "fill_mode": "reflect"},
        None,
        (-2863.299, -469.9678, 670.814),
    ),
    "rotation, wrap": (
        {"rotation_range": 170, "fill_mode": "wrap"},
        None,
        (-2398.064, -86.22865, 965.4305),
    ),
    "nearest pixel": (
        {"rotation_range": 90, "zoom_range": 0.9, "interpolation_order": 0},
        None,
        (-1543.113, 375.44, -546.9385),
    ),
    "nearest pixel, wrap": (
        {
            "width_shift_range": 4,
            "height_shift_range": 3,
            "interpolation_order": 0,
            "fill_mode": "wrap",
        },
        None,
        (-2996.735, -2018.079, -385.0688),
    ),
    "mirror": (
        {"zoom_range": (2.0, 3.0), "fill_mode": "mirror"},
        None,
        (-2654.868, 1163.535, -65.92519),
    ),
    "grid-wrap": (
        {"zoom_range": (2.0, 3.0), "fill_mode": "grid-wrap"},
        None,
        (-6277.525, -523.4546, -163.8506),
    ),
    "grid-constant": (
        {"zoom_range": (2.0, 3.0), "fill_mode": "grid-constant", "cval": 9.0},
        None,
        (-479.4568, -1175.68, -28.15523),
    ),
    "shift by parts": (
        {"width_shift_range": 0.3, "height_shift_range": 0.2},
        None,
        (-1192.972, 1064.838, 222.983),
    ),
    "shift by pixels": (
        {"width_shift_range": 4, "height_shift_range": 3},
        None,
        (-580.8221, -1108.206, 289.2),
    ),
    "shift by any": (
        {"width_shift_range": 3.0, "height_shift_range": 2.5},
        None,
        (-926.4365, 1241.313, 55.89054),
    ),
    "shift by one of": (
        {"width_shift_range": [-2, 1, 3], "height_shift_range": [0.1, 0.2]},
        None,
        (-2389.545, -895.3827, -822.9092),
    ),
    "shear": ({"shear_range": 30}, None, (2159.522, -197.8086, -972.6544)),
    "zoom": ({"zoom_range": 0.4}, None, (-1591.7, -1999.067, -379.0778)),
    "channels": ({"channel_shift_range": 50.0}, None, (-7358.823, -1979.89, 604.4925)),
    "flips": (
        {"horizontal_flip": True, "vertical_flip": True},
        None,
        (-3233.75, 2743.849, 771.3404),
    ),
    "brightness": (
        {"brightness_range": (0.4, 1.5)},
        None,
        (-6795.282, -1830.695, 771.0403),
    ),
    "samplewise": (
        {
            "samplewise_center": True,
            "samplewise_std_normalization": True,
            "rotation_range": 10,
        },
        None,
        (68.58302, 54.00601, -1821.264),
    ),
    "featurewise": (
        {
            "featurewise_center": True,
            "featurewise_std_normalization": True,
            "rescale": 0.5,
            "rotation_range": 10,
        },
        None,
        (64.79593, 50.66189, -1821.264),
    ),
    "whitening": (
        {"featurewise_center": True, "zca_whitening": True, "zca_epsilon": 10.0},
        None,
        (0.1598843, 0.6069706, 771.3404),
    ),
    "channels first": (
        {
            "data_format": "channels_first",
            "rotation_range": 30,
            "horizontal_flip": True,
        },
        None,
        (-4382.723, -96.26431, -203.4747),
    ),
    "float64": (
        {"dtype": "float64", "rotation_range": 30, "rescale": 1 / 3},
        None,
        (-98.66516, -365.1279, -75.91377),
    ),
    "int32": (
        {
            "dtype": "int32",
            "rotation_range": 30,
            "fill_mode": "constant",
            "cval": -300.0,
        },
        None,
        (-12045.57, 10658.33, 48.61522),
    ),
    "all": (
        {
            "rotation_range": 20,
            "width_shift_range": 0.2,
            "height_shift_range": 0.2,
            "shear_range": 0.2,
            "zoom_range": 0.2,
            "channel_shift_range": 20.0,
            "horizontal_flip": True,
            "brightness_range": (0.5, 1.5),
            "rescale": 1 / 255,
        },
        5,
        (-7.077718, -0.780902, -1464.981),
    ),
}
# Name -> arguments of the generator and of `flow_from_directory`, result of Keras.
FOLDERS = {
    "categorical": ({}, {}, -3.136643),
    "binary": ({}, {"class_mode": "binary", "seed": 3}, 22.81785),
    "sparse": ({}, {"class_mode": "sparse", "color_mode": "grayscale"}, 10.28398),
    "input": ({}, {"class_mode": "input", "color_mode": "rgba"}, 44.73112),
    "none": ({}, {"class_mode": None, "classes": ["dogs", "cats"]}, 3.379902),
    "in order": (
        {},
        {"shuffle": False, "interpolation": "bicubic", "keep_aspect_ratio": True},
        4.18518,
    ),
    "training": ({"validation_split": 0.35}, {"subset": "training"}, -24.17893),
    "validation": ({"validation_split": 0.35}, {"subset": "validation"}, -15.40246),
    "channels first": ({"data_format": "channels_first"}, {}, -44.52747),
}
# Name -> arguments of `flow_from_dataframe`, result of Keras.
TABLES = {
    "categorical": ({}, -938.5465),
    "lists": ({"y_col": "several", "classes": ["odd", "cats"]}, 4632.317),
    "binary": (
        {"class_mode": "binary", "y_col": "parity", "weight_col": "weight"},
        3007.844,
    ),
    "sparse": ({"class_mode": "sparse", "classes": ["dogs", "cats", "dogs"]}, 3852.076),
    "raw": ({"class_mode": "raw", "y_col": "weight", "shuffle": False}, 3931.15),
    "several outputs": (
        {"class_mode": "multi_output", "y_col": ["weight", "number"]},
        3004.548,
    ),
    "input": ({"class_mode": "input", "seed": 2}, 6271.038),
    "none": ({"class_mode": None}, -3257.847),
    "training": ({"subset": "training", "weight_col": "weight"}, -4587.039),
    "validation": ({"subset": "validation"}, -1122.703),
}


def digest(*arrays):
    """Return a number that depends on the values of arrays and on their order."""
    total = 0.0
    for number, array in enumerate(arrays, 1):
        flat = np.asarray(array, "float64").ravel()
        total += float(np.cos(np.arange(flat.size) % 97 + number) @ flat)
    return total


def draw(generator, seed):
    """Return the digest of three batches, an ordered pass, and an image for a seed."""
    images = IMAGES
    if generator.data_format == "channels_first":
        images = images.transpose(0, 3, 1, 2)
    if generator.featurewise_center or generator.zca_whitening:
        generator.fit(images, augment=True, rounds=2, seed=3)
    np.random.seed(1)
    mixed = generator.flow(images, TARGETS, batch_size=4, seed=seed)
    ordered = generator.flow(images, TARGETS, batch_size=4, seed=seed, shuffle=False)
    return (
        digest(*(array for _ in range(4) for array in next(mixed))),
        digest(*(array for i in (2, 0, 1) for array in ordered[i])),
        digest(generator.random_transform(images[3].astype("float32"), seed=4)),
    )


def write_images(folder):
    """Write folders of three classes, with images of different sizes."""
    for name, count in (("cats", 7), ("dogs", 5), ("Eels", 6)):
        (folder / name / "more").mkdir(parents=True)
        (folder / name / "note.txt").write_text("no image", "utf-8")
        for i in range(count):
            subfolder = folder / name / ("more" if i == 2 else ".")
            pixels = np.arange((20 + i) * 24 * 3) * (41 + len(name) + i) % 256
            image = Image.fromarray(pixels.reshape(20 + i, 24, 3).astype("uint8"))
            image.save(subfolder / f"{i}.{('png', 'bmp', 'tif')[i % 3]}")


def draw_files(batches):
    """Return the digest of an iterator over files."""
    arrays = []
    for _ in range(6):
        batch = next(batches)
        for item in batch if isinstance(batch, tuple) else (batch,):
            arrays += item if isinstance(item, list) else [item]
    return digest(*arrays)


def table_of(folder):
    """Return a table of the images in a folder, and of a missing image."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    names = [*names, "none.png"]
    classes = [name.split("/")[0] for name in names]
    numbers = range(len(names))
    return {
        "filename": names,
        "class": classes,
        "several": [[c, "odd"] if i % 2 else (c,) for i, c in enumerate(classes)],
        "parity": ["odd" if i % 2 else "even" for i in numbers],
        "weight": [i / 3 for i in numbers],
        "number": list(numbers),
    }


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    write_images(path)
    return path


# --- the numbers of Keras -------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_batches_of_arrays(name):
    options, seed, expected = CONFIGS[name]
    assert_near(draw(Generator(**options), seed), expected)


@pytest.mark.parametrize("name", FOLDERS)
def test_batches_of_folders(name, folder):
    options, reading, expected = FOLDERS[name]
    generator = Generator(rotation_range=10, rescale=1 / 255, **options)
    np.random.seed(2)
    batches = generator.flow_from_directory(
        folder, target_size=(16, 18), batch_size=4, **reading
    )
    assert_near(draw_files(batches), expected)


def batches_of(table, folder, **options):
    generator = Generator(rotation_range=10, validation_split=0.3)
    return generator.flow_from_dataframe(
        table, str(folder), target_size=(16, 18), batch_size=4, **options
    )


@pytest.mark.parametrize("name", TABLES)
def test_batches_of_tables(name, folder):
    options, expected = TABLES[name]
    np.random.seed(2)
    with pytest.warns(UserWarning, match="4 of 22 paths"):
        batches = batches_of(table_of(folder), folder, **options)
    assert_near(draw_files(batches), expected)


def test_batches_of_a_data_frame(folder):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table_of(folder))
    frame = frame[frame["filename"].str.endswith(("png", "bmp", "tif"))]
    options = {"class_mode": "raw", "y_col": ["weight", "number"], "shuffle": False}
    _, y = batches_of(frame.iloc[:18], folder, **options)[1]
    np.testing.assert_allclose(y, frame[["weight", "number"]].to_numpy()[4:8])


def test_functions():
    np.random.seed(6)
    x = IMAGES[0].astype("float32")
    assert_near(digest(image.random_rotation(x, 50, **LAST)), -219.9103)
    assert_near(digest(image.random_shift(x, 0.3, 0.4, **LAST)), 11.05174)
    assert_near(digest(image.random_shear(x, 30, **LAST)), 3229.122)
    assert_near(digest(image.random_zoom(x, (0.5, 1.6), **LAST)), -137.7926)
    assert_near(digest(image.random_channel_shift(x, 30, 2)), -62.50939)
    assert_near(digest(image.random_brightness(x, (0.5, 1.5))), -58.80741)
    shifted = image.apply_brightness_shift(x * 3 - 200, 0.7, False)
    assert_near(digest(shifted), 174.6973)
    pixels = IMAGES[0].astype("uint8")
    rotated = image.apply_affine_transform(pixels, theta=20, zx=0.7, **LAST)
    assert rotated.dtype == "uint8"
    assert_near(digest(rotated), -414.7356)


# --- properties -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", FILL_MODES)
@pytest.mark.parametrize("order", [0, 1, 3])
def test_sampling_matches_scipy(mode, order):
    ndimage = pytest.importorskip("scipy.ndimage")
    random = np.random.default_rng(0)
    for _ in range(20):
        x = random.normal(size=(*random.integers(1, 9, 2), 1))
        # Multiples of one half cover points between two pixels and points on the
        # border.
        matrix, offset = (
            random.integers(-4, 5, (2, 2)) / 2,
            random.integers(-9, 9, 2) / 2,
        )
        samples = sample_affine(x, matrix, offset, order, mode, 2.5)
        options = {"order": order, "mode": mode, "cval": 2.5}
        expected = ndimage.affine_transform(x[..., 0], matrix, offset, **options)
        np.testing.assert_allclose(samples[..., 0], expected, atol=1e-9)


def test_higher_orders_name_their_requirement(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    generator = Generator(rotation_range=10, interpolation_order=3)
    with pytest.raises(ImportError, match="pip install scipy"):
        generator.random_transform(IMAGES[0])


def test_epoch_has_all_samples_in_a_new_order():
    batches = Generator().flow(IMAGES, np.arange(10), batch_size=4)
    passes = [np.concatenate([next(batches)[1] for _ in range(3)]) for _ in range(2)]
    assert [sorted(one) for one in passes] == [list(range(10))] * 2
    assert passes[0].tolist() != passes[1].tolist()
    assert len(batches) == 3 and batches.n == 10 and batches.batch_index == 0


def test_reset_starts_an_epoch():
    batches = Generator().flow(IMAGES, np.arange(10), batch_size=4, shuffle=False)
    assert [batches.next()[1][0] for _ in range(2)] == [0, 4]
    batches.reset()
    assert [y[0] for _, (_, y) in zip(range(4), batches, strict=False)] == [0, 4, 8, 0]
    assert batches.index_array.tolist() == list(range(10))
    with pytest.raises(OutOfRangeError, match="less than 3; received 3"):
        batches[3]


def test_extra_inputs_follow_their_images():
    numbers = np.arange(10)
    generator = Generator(validation_split=0.3)
    options = {
        "sample_weight": numbers / 2,
        "ignore_class_split": True,
        "shuffle": False,
    }
    pair = (IMAGES, [numbers, numbers * 2])
    for subset, rows in (("validation", [0, 1, 2]), ("training", [3, 4, 5])):
        batches = generator.flow(pair, numbers, 3, subset=subset, **options)
        (x, one, two), y, weights = batches[0]
        assert x[:, 0, 0, 0].tolist() == IMAGES[rows, 0, 0, 0].tolist()
        assert one.tolist() == y.tolist() == rows
        assert two.tolist() == (weights * 4).tolist() == [2 * row for row in rows]


def test_attributes_of_file_iterators(folder, capsys):
    batches = Generator(validation_split=0.4).flow_from_directory(
        folder, (8, 9), class_mode="sparse", subset="validation", batch_size=3
    )
    assert batches.class_indices == {"Eels": 0, "cats": 1, "dogs": 2}
    assert batches.classes.tolist() == [0, 0, 1, 1, 2, 2]
    assert batches.labels is batches.classes and batches.num_classes == 3
    assert batches.filenames[2] == "cats/0.png".replace("/", os.sep)
    assert batches.filepaths[2] == str(folder / "cats" / "0.png")
    assert (batches.samples, batches.n, len(batches)) == (6, 6, 2)
    assert batches.image_shape == (8, 9, 3)
    assert capsys.readouterr().out == "Found 6 images belonging to 3 classes.\n"


def test_batches_are_saved(tmp_path):
    generator = Generator(rescale=1 / 255)
    save = {"save_to_dir": tmp_path, "save_prefix": "x", "save_format": "bmp"}
    next(generator.flow(IMAGES, batch_size=3, shuffle=False, **save))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.rsplit("_", 1)[0] for name in names] == ["x_0", "x_1", "x_2"]
    assert all(name.endswith(".bmp") for name in names)


def test_models_are_trained_from_folders(folder):
    generator = Generator(rescale=1 / 255, horizontal_flip=True, validation_split=0.3)
    options = {"target_size": (8, 8), "batch_size": 4}
    training = generator.flow_from_directory(folder, subset="training", **options)
    validation = generator.flow_from_directory(
        folder, subset="validation", shuffle=False, **options
    )
    layers = [toolkit.layers.Flatten(), toolkit.layers.Dense(3, activation="softmax")]
    model = toolkit.Sequential(layers)
    model.compile("sgd", "categorical_crossentropy")
    history = model.fit(training, validation_data=validation, verbose=0).history
    assert set(history) == {"loss", "val_loss"} and training.total_batches_seen == 4
    model.fit(training, steps_per_epoch=2, epochs=2, verbose=0)
    assert model.predict(validation, verbose=0).shape == (len(validation.classes), 3)


def test_pickled_iterator_continues():
    batches = Generator().flow(IMAGES, batch_size=4, seed=1)
    next(batches)
    copy = pickle.loads(pickle.dumps(batches))
    assert copy[0].tolist() == batches[0].tolist() and len(next(copy)) == 4


def test_values_change_in_place_if_possible():
    x = np.ones((2, 2, 3), "float32")
    assert Generator(rescale=2.0).standardize(x) is x and x.max() == 2
    integers = np.ones((2, 2, 3), "int64")
    standardized = Generator(samplewise_center=True).standardize(integers)
    assert (
        standardized.dtype == "float32"
        and standardized.max() == 0
        and integers.max() == 1
    )
    with pytest.raises(DTypeError, match="expected a floating dtype"):
        Generator(rescale=2.0, dtype="uint8").standardize(integers)


def test_a_preprocessing_function_may_return_tensors():
    generator = Generator(preprocessing_function=toolkit.ops.negative, rescale=2.0)
    x = next(generator.flow(IMAGES, batch_size=3, shuffle=False))
    assert x.tolist() == (IMAGES[:3] * -2.0).tolist()


# --- refused arguments and warnings ---------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fill_mode": "mirrored"}, "did you mean 'mirror'"),
        ({"interpolation_order": 6}, r"in \[0, 5\]; received 6"),
        ({"zoom_range": (1, 2, 3)}, "zoom_range must be a number or two"),
        ({"brightness_range": 0.5}, "brightness_range must be two numbers"),
        ({"width_shift_range": [[1]]}, "width_shift_range must be a number or a list"),
        ({"validation_split": 1.5}, r"in \[0, 1\); received 1.5"),
        ({"data_format": "last"}, "last"),
        ({"rotation": 3}, "unknown argument 'rotation'; did you mean 'rotation_range'"),
    ],
)
def test_arguments_are_checked(options, text):
    with pytest.raises(ArgumentError, match=text):
        Generator(**options)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"y": [1]}, ArgumentError, r"one length; received shapes .* and \(1,\)"),
        ({"sample_weight": np.ones(10)}, ArgumentError, "received y=None"),
        ({"batch_size": 0}, ArgumentError, "batch_size must be an integer >= 1"),
        ({"subset": "test"}, ArgumentError, "'training', 'validation'"),
        ({"y": np.arange(10), "subset": "training"}, ArgumentError, "Shuffle x and y"),
        ({"x": IMAGES[0]}, ShapeError, "four axes in all"),
        ({"x": list(IMAGES)}, ArgumentError, "received a list of 10"),
    ],
)
def test_arrays_are_checked(arguments, error, text):
    with pytest.raises(error, match=text):
        Generator(validation_split=0.3).flow(**{"x": IMAGES} | arguments)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"class_mode": "int"}, ArgumentError, "class_mode: expected one of"),
        ({"class_mode": "binary"}, ArgumentError, "needs two classes"),
        ({"class_mode": "sparse", "y_col": "number"}, ArgumentTypeError, "type str"),
        ({"class_mode": "multi_output"}, ArgumentTypeError, "list of columns"),
        ({"weight_col": "parity"}, ArgumentTypeError, "must have numbers"),
        ({"x_col": "number"}, ArgumentTypeError, "must have strings; received 0"),
        ({"color_mode": "grey"}, ArgumentError, "color_mode: expected one of"),
        ({"sorted": True}, ArgumentTypeError, "unknown argument 'sorted'"),
    ],
)
def test_tables_are_checked(options, error, text, folder):
    with pytest.raises(error, match=text):
        batches_of(table_of(folder), folder, validate_filenames=False, **options)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Generator(zca_whitening=True), "sets featurewise_center to True"),
        (lambda: Generator(samplewise_std_normalization=True), "samplewise_center"),
        (
            lambda: Generator(featurewise_center=True).standardize(IMAGES[0]),
            r"does nothing before `fit\(images\)`",
        ),
        (lambda: Generator().flow(IMAGES[..., :2]), "1, 3 or 4 channels"),
        (
            lambda: Generator().flow_from_dataframe(
                {"filename": [], "class": []}, class_mode=None, classes=["a"]
            ),
            "does not use `classes`",
        ),
        (
            lambda: Generator().flow_from_dataframe(
                {"filename": []}, class_mode=None, has_ext=True
            ),
            "has_ext has no effect",
        ),
    ],
)
def test_warnings(call, text):
    with pytest.warns((UserWarning, DeprecationWarning), match=text):
        call()
