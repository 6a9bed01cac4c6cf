"""Test data sets from folders of files."""

import numpy as np
import pytest

import toolkit
from toolkit import preprocessing, utils
from toolkit.errors import ArgumentError


@pytest.fixture
def texts(tmp_path):
    """Write ten texts for each class, a and b; the first letter is the class."""
    for name in "ab":
        folder = tmp_path / name / "inner"
        folder.mkdir(parents=True)
        for i in range(10):
            target = folder if i % 2 else folder.parent
            (target / f"{i}.txt").write_text(f"{name} text {i} é", "utf-8")
    (tmp_path / "a" / "notes.md").write_text("no text")
    return tmp_path


def test_texts_and_labels(texts, capsys):
    data = preprocessing.text_dataset_from_directory(texts, batch_size=8, max_length=6)
    assert capsys.readouterr().out == "Found 20 files belonging to 2 classes.\n"
    assert data.class_names == ["a", "b"] and len(data) == 3
    for _ in range(2):
        batches = list(data.as_numpy_iterator())
        assert [len(x) for x, _ in batches] == [8, 8, 4]
        for x, y in batches:
            assert y.dtype == "int32"
            assert [text[0] for text in x] == ["ab"[label] for label in y.tolist()]
            assert {text[1:] for text in x} == {" text"}


def test_kinds_of_labels(texts):
    def labels(mode):
        data = utils.text_dataset_from_directory(
            texts, label_mode=mode, shuffle=False, verbose=False
        )
        return next(iter(data))

    assert labels("int")[1].tolist() == [0] * 10 + [1] * 10
    assert labels("binary")[1].tolist() == [[0.0]] * 10 + [[1.0]] * 10
    assert labels("categorical")[1].tolist() == [[1.0, 0.0]] * 10 + [[0.0, 1.0]] * 10
    assert labels(None)[0] == "a text 0 é"


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\r\n")
    data = utils.text_dataset_from_directory(tmp_path, labels=None, verbose=False)
    assert next(iter(data)).numpy().tolist() == [b"caf\xe9\r\n"]
    layer = toolkit.layers.TextVectorization()
    layer.adapt(data)
    assert layer(data.as_numpy_iterator().__next__()).tolist() == [[2]]


def test_two_splits_are_disjoint(texts):
    combined = utils.text_dataset_from_directory(
        texts, validation_split=0.25, subset="both", seed=3, label_mode=None
    )
    train, held_out = (set(data.file_paths) for data in combined)
    assert (len(train), len(held_out)) == (15, 5) and not train & held_out
    validation = utils.text_dataset_from_directory(
        texts, validation_split=0.25, subset="validation", seed=3, batch_size=None
    )
    assert set(validation.file_paths) == held_out
    text, label = next(iter(validation))
    assert text.numpy().decode()[0] == "ab"[int(label)]


def test_two_splits_of_batches(texts):
    data = utils.text_dataset_from_directory(
        texts, batch_size=4, shuffle=False, verbose=False
    )
    left, right = utils.split_dataset(data, left_size=0.5)
    assert [len(y) for _, y in left] == [len(y) for _, y in right] == [4, 4, 2]
    assert next(iter(left))[0][0].numpy().decode() == "a text 0 é"


def test_map_and_names(texts):
    data = utils.text_dataset_from_directory(
        texts, class_names=["b", "a"], shuffle=False, verbose=False
    )
    mapped = data.map(lambda x, y: (np.char.upper(x), y))
    assert data.class_names == ["b", "a"]
    assert next(iter(mapped))[0][0] == "B TEXT 0 É"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label_mode": "name"}, "label_mode"),
        ({"labels": [1, 2]}, "lengths of `labels`"),
        ({"labels": "all"}, "`labels` argument should be"),
        ({"labels": None, "class_names": ["a"]}, "class_names"),
        ({"class_names": ["c"]}, "did not match"),
        ({"validation_split": 2, "subset": "training"}, "between 0 and 1"),
        ({"validation_split": 0.2}, "must be set"),
        ({"validation_split": 0.2, "subset": "training"}, "seed"),
        ({"validation_split": 0.2, "subset": "test"}, "`subset`"),
        ({"class_names": ["a"], "label_mode": "binary"}, "exactly 2"),
        ({"format": "list"}, "format"),
    ],
)
def test_errors(texts, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        utils.text_dataset_from_directory(texts, verbose=False, **arguments)


def test_images(tmp_path):
    pytest.importorskip("PIL")
    for name, value in (("dark", 10.0), ("light", 200.0)):
        (tmp_path / name).mkdir()
        for i in range(3):
            x = np.full((6 + i, 8, 3), value)
            utils.save_img(tmp_path / name / f"{i}.png", x, scale=False)
    data = preprocessing.image_dataset_from_directory(
        tmp_path, image_size=(4, 5), batch_size=4, verbose=False
    )
    for x, y in data:
        assert x.shape == (len(y.tolist()), 4, 5, 3) and x.dtype == "float32"
        expected = np.where(np.array(y) == 1, 200, 10)[:, None, None, None]
        np.testing.assert_allclose(np.array(x), expected + np.zeros(x.shape), rtol=1e-5)
    model = toolkit.Sequential(
        [toolkit.layers.Rescaling(1 / 255), toolkit.layers.Flatten()]
        + [toolkit.layers.Dense(2)]
    )
    model.compile(loss=toolkit.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert len(model.fit(data, epochs=2, verbose=0).history["loss"]) == 2


def test_invalid_images(tmp_path):
    with pytest.raises(ArgumentError, match="color_mode"):
        utils.image_dataset_from_directory(tmp_path, color_mode="cmyk")
    with pytest.raises(ArgumentError, match="interpolation"):
        utils.image_dataset_from_directory(tmp_path, interpolation="median")
    for size in ((8, 0), (8, 8, 3), -1):
        with pytest.raises(ArgumentError, match="invalid `image_size`"):
            utils.image_dataset_from_directory(tmp_path, image_size=size)
    with pytest.raises(ArgumentError, match="No images"):
        utils.image_dataset_from_directory(tmp_path, verbose=False)


def test_lengths_are_in_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("naïve café", "utf-8")
    arguments = {"labels": None, "max_length": 6, "verbose": False}
    data = utils.text_dataset_from_directory(tmp_path, **arguments)
    assert next(iter(data)).numpy().tolist() == ["naïve".encode()]


@pytest.mark.parametrize("color_mode", ["grayscale", "rgb", "rgba"])
def test_images_of_sixteen_bits(color_mode, tmp_path):
    deep = np.arange(16, dtype="uint16").reshape(4, 4) * 4000
    image_module = pytest.importorskip("PIL.Image")
    image_module.fromarray(deep).save(tmp_path / "a.png")
    data = utils.image_dataset_from_directory(
        *(tmp_path, None),
        color_mode=color_mode,
        image_size=(4, 4),
        verbose=False,
    )
    (images,) = data.as_numpy_iterator()
    for channel in range({"grayscale": 1, "rgb": 3, "rgba": 3}[color_mode]):
        np.testing.assert_array_equal(images[0, ..., channel], deep >> 8)
