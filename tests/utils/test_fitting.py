"""Test images of files that are resized: TensorFlow gives the values."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import utils
from toolkit.errors import ArgumentError
from toolkit.ops.image.resizing import INTERPOLATIONS
from toolkit.utils.image_resizing import fit_image

IMAGE = (np.arange(35).reshape(5, 7, 1) * 37 % 256).astype("float32")
FIRST_ROWS = {
    "area": [17.057, 80.486, 143.914, 207.343],
    "gaussian": [14.987, 79.016, 145.019, 209.049],
    "mitchellcubic": [13.015, 79.498, 144.248, 210.73],
}


def fit(image, size, interpolation="bilinear", crop=False, pad=False, layout="last"):
    image = toolkit.ops.convert_to_tensor(image)
    return fit_image(image, size, interpolation, crop, pad, f"channels_{layout}")


@pytest.mark.parametrize("interpolation", FIRST_ROWS)
def test_interpolations(interpolation):
    y = fit(IMAGE, (3, 4), interpolation)
    assert y.shape == (3, 4, 1)
    np.testing.assert_allclose(y[0, :, 0], FIRST_ROWS[interpolation], atol=1e-3)
    with pytest.raises(ArgumentError, match="interpolation"):
        toolkit.ops.image.resize(IMAGE, (3, 4), interpolation=interpolation)
    with pytest.raises(ArgumentError, match="method"):
        toolkit.ops.image.scale_and_translate(
            IMAGE, (5, 7, 1), np.ones(2), np.zeros(2), (0, 1), interpolation
        )


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_constants_and_equal_sizes_are_unchanged(interpolation):
    for size in ((3, 4), (9, 11), (5, 11), (20, 14)):
        assert_close(fit(np.ones((5, 7, 2)), size, interpolation), np.ones((*size, 2)))
    assert_close(fit(IMAGE, (5, 7), interpolation), IMAGE)


def test_equal_extents_are_changed_only_by_blurring_filters():
    for interpolation in INTERPOLATIONS:
        y = fit(IMAGE[:, :1], (5, 2), interpolation)[:, 0]
        changed = not np.allclose(y, IMAGE[:, 0], atol=1e-3)
        assert changed == (interpolation in ("gaussian", "mitchellcubic"))


def test_padding_follows_resizing():
    expected = np.zeros((4, 4))
    expected[:2] = [
        [16.125, 80.875, 145.625, 210.375],
        [23.625, 88.375, 153.125, 217.875],
    ]
    assert_close(fit(IMAGE, (4, 4), pad=True)[..., 0], np.float32(expected))
    transposed = fit(IMAGE.transpose(2, 1, 0), (4, 4), pad=True, layout="first")
    assert_close(transposed[0].T, np.float32(expected))
    thin = fit(np.ones((1, 100, 1)), (4, 4), pad=True)
    assert thin.shape == (4, 4, 1) and np.sum(thin) == 4


def test_cropping_precedes_resizing():
    y = fit(IMAGE, (4, 4), crop=True)
    assert_close(y, toolkit.ops.image.resize(IMAGE, (4, 4), crop_to_aspect_ratio=True))


def test_in_folders(tmp_path):
    pytest.importorskip("PIL")
    utils.save_img(tmp_path / "a.png", np.full((5, 7, 3), 9.0), scale=False)
    options = {"labels": None, "image_size": (4, 4), "verbose": False}
    for interpolation in ("area", "Gaussian"):
        data = utils.image_dataset_from_directory(
            tmp_path, interpolation=interpolation, pad_to_aspect_ratio=True, **options
        )
        x = next(iter(data)).numpy()
        assert x[0, :, 0, 0] == pytest.approx([9, 9, 0, 0], rel=1e-4)
    with pytest.raises(ArgumentError, match="only one of"):
        utils.image_dataset_from_directory(
            tmp_path, crop_to_aspect_ratio=True, pad_to_aspect_ratio=True, **options
        )
