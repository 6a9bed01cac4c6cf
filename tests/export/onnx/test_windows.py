"""Test windows over free extents: padding is right at untraced sizes."""

import pytest

from tests.export.onnx.reference import check_export
from toolkit import Input, Sequential, layers
from toolkit.errors import UnsupportedError


def windowed(layer, rank):
    return Sequential([Input((*[None] * rank, 2)), layer])


POOLS = [
    (layers.AveragePooling1D, 2, 2),
    (layers.AveragePooling1D, 2, 3),
    (layers.AveragePooling2D, 2, 2),
    (layers.AveragePooling2D, 3, 2),
    (layers.AveragePooling2D, 3, 3),
    (layers.AveragePooling2D, 2, 3),
    (layers.AveragePooling2D, (3, 2), (2, 1)),
    (layers.AveragePooling3D, 2, 2),
    (layers.MaxPooling1D, 2, 3),
    (layers.MaxPooling2D, 2, 2),
    (layers.MaxPooling2D, 2, 3),
    (layers.MaxPooling2D, 2, 7),
    (layers.MaxPooling2D, (2, 1), (3, 2)),
    (layers.MaxPooling3D, 2, 3),
    (layers.Conv1D, 2, 7),
    (layers.Conv2D, 3, 2),
    (layers.Conv2D, 2, 3),
    (layers.Conv2D, 3, 5),
    (layers.Conv3D, 3, 2),
    (layers.Conv1DTranspose, 3, 2),
    (layers.Conv2DTranspose, 2, 3),
]


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    "kind, window, strides", POOLS, ids=[f"{k.__name__}-{w}-{s}" for k, w, s in POOLS]
)
def test_any_size(kind, window, strides, padding, tmp_path):
    rank = int(kind.__name__.removesuffix("Transpose")[-2])
    arguments = (4,) if "Conv" in kind.__name__ else ()
    layer = kind(*arguments, window, strides=strides, padding=padding)
    model = windowed(layer, rank)
    for free in (3, 4, 5, 6, 8, 9, 10):
        check_export(model, tmp_path / "m.onnx", sizes=(2,), free=free)


@pytest.mark.parametrize("kind", [layers.AveragePooling2D, layers.MaxPooling2D])
def test_padding_without_a_general_form_is_refused(kind, tmp_path):
    layer = kind(3, strides=4, padding="same", name="pool")
    with pytest.raises(UnsupportedError, match="'sequential.*/pool'.*larger strides"):
        windowed(layer, 2).export(tmp_path / "m.onnx")
    fixed = Sequential([Input((9, 6, 2)), kind(3, strides=4, padding="same")])
    check_export(fixed, tmp_path / "m.onnx")


def test_one_free_axis(tmp_path):
    layer = layers.MaxPooling2D(3, strides=(2, 4), padding="same")
    model = Sequential([Input((None, 8, 2)), layer])
    with pytest.raises(UnsupportedError, match="larger strides"):
        model.export(tmp_path / "m.onnx")
    layer = layers.MaxPooling2D((2, 3), strides=(3, 4), padding="same")
    model = Sequential([Input((None, 8, 2)), layer])
    for free in (3, 4, 5):
        check_export(model, tmp_path / "m.onnx", sizes=(2,), free=free)
