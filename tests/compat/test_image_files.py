"""Tests of image files: channels, bits and frames match the file, as in TensorFlow."""

import io

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    ImageFileError,
    ShapeError,
    UnsupportedError,
)

Image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 4)).astype("uint8")
RGB, GREY = PIXELS[..., :3], PIXELS[..., :1]


def file(array, kind="PNG", mode=None, **options):
    """Return the bytes of a file that Pillow writes."""
    image = Image.fromarray(np.squeeze(array)) if mode is None else array
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def of_mode(mode, kind="PNG", **options):
    return file(Image.fromarray(RGB).convert(mode), kind, mode, **options)


DEEP = np.array([[44201, 300], [255, 256]], "uint16")
FILES = {
    "rgb": file(RGB),
    "grey": file(GREY),
    "rgba": file(PIXELS),
    "la": file(PIXELS[..., :2]),
    "palette": of_mode("P"),
    "clear": of_mode("P", transparency=0),
    "bits": of_mode("1"),
    "deep": file(DEEP),
    "bmp": file(RGB, "BMP"),
    "greybmp": file(GREY, "BMP"),
    "bmp4": file(PIXELS, "BMP"),
    "jpeg": file(RGB, "JPEG"),
    "greyjpeg": file(GREY, "JPEG"),
    "gif": file(
        RGB, "GIF", save_all=True, append_images=[Image.fromarray(RGB[::-1].copy())]
    ),
    "webp": file(RGB, "WEBP", lossless=True),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("rgb", (3, 4, 3)), ("grey", (3, 4, 1)), ("rgba", (3, 4, 4))),
        *(("la", (3, 4, 2)), ("palette", (3, 4, 3)), ("clear", (3, 4, 4))),
        *(("bits", (3, 4, 1)), ("deep", (2, 2, 1)), ("bmp", (3, 4, 3))),
        *(("greybmp", (3, 4, 1)), ("bmp4", (3, 4, 4)), ("jpeg", (3, 4, 3))),
        *(("greyjpeg", (3, 4, 1)), ("gif", (2, 3, 4, 3)), ("webp", (1, 3, 4, 3))),
    ],
)
def test_channels_and_images_match_the_file(name, shape):
    image = tf.io.decode_image(FILES[name])
    assert image.dtype == tf.uint8 and image.shape == shape
    assert tf.image.decode_image(FILES[name], channels=3).shape[-1] == 3


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        *(("rgb", RGB), ("grey", GREY), ("rgba", PIXELS), ("la", PIXELS[..., :2])),
        ("deep", DEEP[..., None] >> 8),
    ],
)
def test_png_files_are_read_exactly(name, pixels):
    image = tf.io.decode_png(FILES[name])
    np.testing.assert_array_equal(image.numpy(), pixels)
    np.testing.assert_array_equal(tf.io.decode_jpeg(FILES[name]), pixels)
    np.testing.assert_array_equal(
        tf.io.decode_gif(FILES[name])[0, ..., :1], pixels[..., :1]
    )


def test_bmp_and_gif_files_are_read_exactly():
    np.testing.assert_array_equal(tf.io.decode_bmp(FILES["bmp"]), RGB)
    np.testing.assert_array_equal(tf.io.decode_bmp(FILES["bmp4"]), PIXELS)
    top = bytearray(FILES["bmp4"])
    top[22:26] = (-3).to_bytes(4, "little", signed=True)
    np.testing.assert_array_equal(tf.io.decode_bmp(bytes(top)), PIXELS[::-1])
    pixels = np.zeros((2, 3, 3), "uint8")
    pixels[0] = 200
    frames = [Image.fromarray(pixels), Image.fromarray(pixels[::-1].copy())]
    data = file(pixels, "GIF", save_all=True, append_images=frames[1:])
    expected = np.stack(list(map(np.asarray, frames)))
    np.testing.assert_array_equal(tf.io.decode_gif(data), expected)
    first = tf.io.decode_image(data, expand_animations=False)
    np.testing.assert_array_equal(first, expected[0])
    one = file(pixels, "GIF")
    assert tf.io.decode_png(one).shape == (2, 3, 3)
    with pytest.raises(ArgumentError, match="decode_png: expected one picture; rec"):
        tf.io.decode_png(data)


# Grey values by libpng, which TensorFlow 2.21 returned for these colours.
BRIGHTNESS = [
    *(((1, 0, 0), 0), ((77, 0, 0), 23), ((129, 0, 0), 38), ((255, 0, 0), 76)),
    *(((0, 77, 0), 45), ((0, 129, 0), 75), ((0, 200, 0), 117), ((0, 255, 0), 149)),
    *(((0, 0, 77), 8), ((0, 0, 200), 22), ((0, 0, 255), 29), ((200, 100, 50), 124)),
    *(((172, 47, 117), 92), ((9, 9, 9), 9), ((255, 255, 255), 255)),
]


@pytest.mark.parametrize(("colour", "expected"), BRIGHTNESS)
def test_brightness_is_rounded_down(colour, expected):
    data = file(Image.new("RGB", (1, 1), colour), mode="RGB")
    assert tf.io.decode_png(data, channels=1).numpy().tolist() == [[[expected]]]


def test_single_jpeg_channel_is_the_stored_luma():
    image = Image.open(io.BytesIO(FILES["jpeg"]))
    image.draft("YCbCr", None)
    brightness = np.asarray(image)[..., :1]
    np.testing.assert_array_equal(tf.io.decode_jpeg(FILES["jpeg"], 1), brightness)


def test_bits_of_samples_and_dtypes():
    deep = tf.io.decode_png(FILES["deep"], dtype=tf.uint16)
    assert deep.dtype == tf.uint16 and deep.numpy()[..., 0].tolist() == DEEP.tolist()
    colours = tf.io.decode_png(FILES["deep"], 4, tf.uint16).numpy()
    assert colours[0, 0].tolist() == [44201] * 3 + [65535]
    samples = tf.io.decode_png(FILES["rgb"], dtype=tf.uint16).numpy()
    np.testing.assert_array_equal(samples, RGB.astype("uint16") * 257)
    samples = tf.io.decode_image(FILES["bmp"], dtype=tf.uint16).numpy()
    np.testing.assert_array_equal(samples, RGB.astype("uint16") * 256)
    floats = tf.io.decode_image(FILES["deep"], dtype=tf.float32).numpy()
    np.testing.assert_allclose(floats[..., 0], DEEP / 65535, rtol=1e-6)
    floats = tf.io.decode_image(FILES["rgb"], dtype=tf.float32).numpy()
    np.testing.assert_allclose(floats, RGB / 255, rtol=1e-6)
    half = tf.io.decode_image(FILES["deep"], dtype=tf.float16)
    assert half.dtype == tf.float16 and abs(float(half[0, 0, 0]) - 0.6744) < 1e-3


def test_encoders_keep_bits_channels_and_quality():
    for pixels in (RGB, GREY, PIXELS, PIXELS[..., :2]):
        data = tf.io.encode_png(pixels, compression=9)
        np.testing.assert_array_equal(tf.io.decode_png(data), pixels)
    data = tf.io.encode_png(DEEP[..., None])
    np.testing.assert_array_equal(tf.io.decode_png(data, dtype=tf.uint16)[..., 0], DEEP)
    best = tf.io.encode_jpeg(RGB, quality=95).numpy()
    assert tf.io.encode_jpeg(RGB).numpy() == best
    assert len(tf.io.encode_jpeg(RGB, quality=10).numpy()) < len(best)
    assert tf.io.encode_jpeg(RGB, chroma_downsampling=False).numpy() != best
    image = Image.open(io.BytesIO(tf.io.encode_jpeg(RGB, density_unit="cm").numpy()))
    assert image.info["dpi"] == (762, 762)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tf.io.decode_png([FILES["rgb"]]), ShapeError, "decode_png: expected"),
        (lambda: tf.io.decode_png(b"abc"), ImageFileError, "decode_png: expected an"),
        (lambda: tf.io.decode_png(FILES["rgb"], 2), ArgumentError, "0, 1, 3 or 4"),
        (lambda: tf.io.decode_png(FILES["bmp"]), ImageFileError, "received BMP"),
        (lambda: tf.io.decode_bmp(FILES["rgb"]), ImageFileError, "received PNG"),
        (lambda: tf.io.decode_image(FILES["jpeg"], 4), ArgumentError, r"\[0, 1, 3\]"),
        (lambda: tf.io.decode_image(FILES["bmp"], 1), ArgumentError, r"\[0, 3, 4\]"),
        (lambda: tf.io.decode_image(FILES["gif"], 1), ArgumentError, r"\[0, 3\]"),
        (lambda: tf.io.decode_image(FILES["rgb"], 3, "int32"), DTypeError, "int32"),
        (lambda: tf.io.decode_png(FILES["rgb"], dtype="float32"), DTypeError, "uint8"),
        (lambda: tf.io.decode_jpeg(FILES["jpeg"], ratio=2), UnsupportedError, "ratio"),
        (lambda: tf.io.encode_jpeg(PIXELS), ShapeError, "1 or 3 channels"),
        (lambda: tf.io.encode_jpeg(RGB / 255.0), DTypeError, "pixels of uint8"),
        (lambda: tf.io.encode_jpeg(RGB, "grayscale"), ArgumentError, "'rgb'"),
        (lambda: tf.io.encode_jpeg(RGB, quality=101), ArgumentError, "quality"),
        (lambda: tf.io.encode_png(RGB, compression=10), ArgumentError, "compression"),
        (lambda: tf.io.encode_png(RGB[None]), ShapeError, r"received \(1, 3, 4, 3\)"),
    ],
)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_animations_have_a_budget(monkeypatch):
    from PIL import Image as module

    frames = [Image.new("L", (4, 4), shade) for shade in range(0, 250, 10)]
    data = file(np.asarray(frames[0]), "GIF", save_all=True, append_images=frames[1:])
    monkeypatch.setattr(module, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(ImageFileError, match="frames have more than 320 pixels"):
        tf.io.decode_gif(data)
