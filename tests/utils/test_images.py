"""Test image files, Pillow's images and arrays."""

import io
import sys

import numpy as np
import pytest

from toolkit import utils
from toolkit.errors import ArgumentError, ShapeError
from toolkit.preprocessing.image import smart_resize

pillow = pytest.importorskip("PIL.Image")


def pixels(channels, size=(6, 8)):
    x = np.random.default_rng(0).integers(0, 256, (*size, channels))
    return x.astype("float32")


@pytest.mark.parametrize(
    ("channels", "mode"), [(1, "grayscale"), (3, "rgb"), (4, "rgba")]
)
def test_files_preserve_pixels(tmp_path, channels, mode):
    x, path = pixels(channels), tmp_path / "image.png"
    utils.save_img(path, x, scale=False)
    image = utils.load_img(path, color_mode=mode)
    np.testing.assert_array_equal(utils.img_to_array(image), x)
    first = utils.img_to_array(image, data_format="channels_first", dtype="uint8")
    np.testing.assert_array_equal(first, x.transpose(2, 0, 1))


def test_scale_stretches_values():
    image = utils.array_to_img(np.linspace(-1, 1, 12).reshape(2, 2, 3))
    values = np.asarray(image)
    assert (values.min(), values.max()) == (0, 255)
    assert not np.asarray(utils.array_to_img(np.full((2, 2, 3), 7.0))).any()


@pytest.mark.parametrize("keep", [False, True])
def test_target_size(tmp_path, keep):
    path = tmp_path / "image.png"
    utils.save_img(path, pixels(3, (12, 8)), scale=False)
    image = utils.load_img(path, target_size=(4, 4), keep_aspect_ratio=keep)
    source = pillow.open(path)
    if keep:
        source = source.crop((0, 2, 8, 10))
    expected = source.resize((4, 4), pillow.Resampling.NEAREST)
    np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))


def test_open_files():
    file = io.BytesIO()
    utils.save_img(file, pixels(3), file_format="png")
    file.seek(0)
    assert utils.load_img(file).size == (8, 6)


def test_jpeg_has_no_transparency(tmp_path):
    with pytest.warns(UserWarning, match="RGBA"):
        utils.save_img(tmp_path / "image.jpg", pixels(4))
    assert utils.load_img(tmp_path / "image.jpg").mode == "RGB"


def test_errors(tmp_path):
    with pytest.raises(ShapeError, match="rank 3"):
        utils.array_to_img(np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="channel number"):
        utils.array_to_img(np.ones((2, 2, 5)))
    with pytest.raises(ShapeError, match="2 or 3 axes"):
        utils.img_to_array(np.ones(3))
    with pytest.raises(TypeError, match="path-like"):
        utils.load_img(7)
    with pytest.raises(ArgumentError, match="color_mode"):
        utils.load_img(tmp_path, color_mode="cmyk")


def test_smart_resize_crops_the_sides():
    x = np.zeros((4, 8, 1), "float32")
    x[:, 2:6] = 1
    np.testing.assert_array_equal(smart_resize(x, (2, 2)), np.ones((2, 2, 1)))
    square = np.array([[[1], [2]], [[1], [2]]], "uint8")
    middle = smart_resize(square, (1, 1))
    assert middle.dtype == "float32" and middle.item() == 1.5
    assert smart_resize(square, (1, 1), "nearest").dtype == "uint8"
    with pytest.raises(ArgumentError, match="tuple of 2"):
        smart_resize(x, (2,))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_files_need_no_pillow(tmp_path, monkeypatch, channels):
    path, x = tmp_path / "image.png", pixels(channels, (5, 7))
    file = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)
        utils.save_img(path, x, scale=False)
        utils.save_img(file, x, file_format="png", scale=False)
        with pytest.raises(ImportError, match="pip install pillow"):
            utils.save_img(tmp_path / "image.bmp", x)
    assert path.read_bytes() == file.getvalue()
    read = np.asarray(pillow.open(path)).reshape(5, 7, channels)
    np.testing.assert_array_equal(read, x)


def test_scaled_pictures_never_exceed_255():
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.random((3, 3, 1)).astype("float32") * rng.integers(1, 1000)
        picture = utils.array_to_img(x)
        assert (picture.mode, np.asarray(picture).max()) == ("L", 255)
