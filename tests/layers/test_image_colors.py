"""Test layers that change the colours of images, or mix images, against NumPy."""

import colorsys

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError, UnsupportedError

COLORS = np.random.default_rng(0).uniform(0, 255, (2, 8, 9, 3))
FACTORS = np.array([0.3, 0.8]).reshape(2, 1, 1, 1)


def through_hsv(change):
    """Return change(h, s, v) of each pixel of COLORS / 255."""
    pixels = [colorsys.rgb_to_hsv(*p) for p in COLORS.reshape(-1, 3) / 255]
    image = np.repeat(FACTORS.ravel(), len(pixels) // 2)
    changed = [
        colorsys.hsv_to_rgb(*change(*p, f)) for p, f in zip(pixels, image, strict=True)
    ]
    return np.reshape(changed, COLORS.shape)


def gray(x):
    return (x @ [0.2989, 0.587, 0.114])[..., None]


def convolved(x, kernel):
    """Convolve each channel, with zero padding."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(
        kernel[i][j] * padded[:, i : i + x.shape[1], j : j + x.shape[2]]
        for i in range(3)
        for j in range(3)
    )


def bell(sigma):
    y = np.exp(-0.5 * (np.arange(-1, 2) / sigma) ** 2)
    return y / y.sum()


MEAN = COLORS.mean((1, 2), keepdims=True)
SMOOTH = (np.ones((3, 3)) + 4 * (np.arange(9).reshape(3, 3) == 4)) / 13
CASES = [
    ("RandomBrightness", {"rgb_delta": 40 * FACTORS}, COLORS + 40 * FACTORS),
    ("RandomContrast", {"contrast_factor": FACTORS}, (COLORS - MEAN) * FACTORS + MEAN),
    (
        "RandomSaturation",
        {"factor": FACTORS.ravel()},
        255 * through_hsv(lambda h, s, v, f: (h, s * f, v)),
    ),
    (
        "RandomHue",
        {"factor": FACTORS.ravel()},
        255 * through_hsv(lambda h, s, v, f: (h + f, s, v)),
    ),
    (
        "RandomColorDegeneration",
        {"factor": FACTORS},
        COLORS + FACTORS * (gray(COLORS) - COLORS),
    ),
    (
        "RandomGrayscale",
        {"should_apply": FACTORS > 0.5},
        np.where(FACTORS > 0.5, gray(COLORS), COLORS),
    ),
    (
        "RandomInvert",
        {"apply_inversion": FACTORS.ravel() > 0.5},
        np.where(FACTORS > 0.5, 255 - COLORS, COLORS),
    ),
    (
        "RandomSharpness",
        {"factor": FACTORS.ravel()},
        COLORS + (1 - 2 * FACTORS) * (convolved(COLORS, SMOOTH) - COLORS),
    ),
    (
        "RandomPosterization",
        {"shift_factor": np.array([5, 2])},
        np.concatenate([COLORS[:1] // 32 * 32, COLORS[1:] // 4 * 4]),
    ),
    (
        "RandomGaussianBlur",
        {"should_apply_blur": np.array([True, False]), "blur_factor": [0.5, 0.9]},
        np.stack([convolved(COLORS, np.outer(bell(0.9), bell(0.5)))[0], COLORS[1]]),
    ),
    (
        "Solarization",
        {"additions": 20 * FACTORS, "thresholds": 100 * FACTORS},
        np.where(
            COLORS + 20 * FACTORS < 100 * FACTORS,
            COLORS + 20 * FACTORS,
            255 - np.minimum(COLORS + 20 * FACTORS, 255),
        ),
    ),
]
REQUIRED = {
    *("RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue"),
    *("RandomColorDegeneration", "RandomSharpness", "RandomPosterization"),
}
DETERMINISTIC = [
    "AutoContrast",
    "Equalization",
    "ContrastLimitedAdaptiveHistogramEqualization",
]


def make(name, **arguments):
    factor = {"factor": 1} if name in REQUIRED else {}
    return getattr(layers, name)(**factor, **arguments)


@pytest.mark.parametrize("value_range", [(0, 255), (0, 1)])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("name", "transformation", "expected"), CASES)
def test_formula(name, transformation, expected, data_format, value_range):
    layer = make(name, data_format=data_format, **_ranged(name, value_range))
    scale = value_range[1] / 255
    if name == "RandomBrightness":
        transformation = {"rgb_delta": transformation["rgb_delta"] * scale}
    x, expected = COLORS.astype("float32") * scale, np.clip(expected, 0, 255) * scale
    if data_format == "channels_first":
        x, expected = np.moveaxis(x, -1, 1), np.moveaxis(expected, -1, 1)
    y = layer.transform_images(x, transformation)
    assert_close(y, expected.astype("float32"), factor=100)
    assert layer.transform_images(x, transformation, training=False).dtype == y.dtype
    assert_close(layer(x, training=False), x)


def _ranged(name, value_range):
    return {} if name == "RandomGrayscale" else {"value_range": value_range}


@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_draws(name):
    arguments = {"addition_factor": 0.5} if name == "Solarization" else {}
    arguments |= {} if name == "RandomPosterization" else {"seed": 3}
    x = np.concatenate([COLORS[:1]] * 16).astype("float32")
    layer, twin = make(name, **arguments), make(name, **arguments)
    if name == "RandomPosterization":
        layer = twin = layers.RandomPosterization((1, 8), seed=3)
        return assert_varied(layer(x))
    y = layer(x)
    assert_varied(y)
    assert_close(twin(x), y)
    return assert_close(toolkit.function(make(name, **arguments))(x), y, factor=100)


def assert_varied(y):
    assert any(not np.allclose(image, y[0]) for image in y.numpy())


def test_auto_contrast():
    x = COLORS.copy()
    x[..., 1] = 7
    for scale in (1, 1 / 255):
        low, high = x.min((1, 2), keepdims=True), x.max((1, 2), keepdims=True)
        stretched = (x - low) / np.where(high > low, high - low, 1) * 255
        layer = layers.AutoContrast((0, 255 * scale))
        expected = np.where(high > low, stretched, x) * scale
        assert_close(layer(x * scale), expected.astype("float32"), factor=100)


def test_equalization():
    x = np.random.default_rng(1).normal(100, 30, (2, 16, 16, 3)).clip(0, 255).round()
    y = layers.Equalization()(x).numpy()
    for channel in range(3):
        values, counts = np.unique(x[..., channel], return_counts=True)
        below = np.cumsum(counts)
        table = (below - below[0]) / (below[-1] - below[0]) * 255
        expected = table[np.searchsorted(values, x[..., channel])]
        assert np.abs(y[..., channel] - expected).max() < 0.501
    assert_close(
        layers.Equalization()(np.full((1, 4, 4, 3), 128.0)),
        np.full((1, 4, 4, 3), 128.0),
    )


@pytest.mark.parametrize(("grid", "limit"), [((1, 1), 0), ((2, 3), 1.5), ((4, 4), 4.0)])
def test_clahe(grid, limit):
    x = np.random.default_rng(1).normal(100, 30, (2, 9, 10, 2)).clip(0, 255)
    layer = layers.ContrastLimitedAdaptiveHistogramEqualization(
        clip_limit=limit, tile_grid_size=grid
    )
    expected = np.zeros(x.shape)
    for image in range(2):
        for channel in range(2):
            expected[image, ..., channel] = clahe(x[image, ..., channel], grid, limit)
    assert_close(layer(x), expected.astype("float32"), factor=100)
    assert layer(x.astype("uint8")).dtype == "uint8"


def clahe(x, grid, limit):
    """Return CLAHE of one channel of one image, pixel by pixel."""
    sizes = [-(-n // k) for n, k in zip(x.shape, grid, strict=True)]
    widths = [(0, s * k - n) for n, s, k in zip(x.shape, sizes, grid, strict=True)]
    levels = np.pad(x, widths, mode="symmetric").astype(int)
    tables = np.zeros((*grid, 256))
    pixels = sizes[0] * sizes[1]
    for i in range(grid[0]):
        for j in range(grid[1]):
            rows = slice(i * sizes[0], (i + 1) * sizes[0])
            columns = slice(j * sizes[1], (j + 1) * sizes[1])
            counts = np.bincount(levels[rows, columns].ravel(), minlength=256) * 1.0
            if limit > 0:
                cut = np.minimum(counts, limit * pixels / 256)
                counts = cut + (counts - cut).sum() / 256
            below = counts.cumsum()
            offsets = pixels - below[0]
            tables[i, j] = np.clip((below - below[0]) * 255 / (offsets or 1), 0, 255)
    y = np.zeros(x.shape)
    for i, j in np.ndindex(x.shape):
        (top, down), (left, across) = (
            divmod(center / size - 0.5, 1)
            for center, size in zip((i, j), sizes, strict=True)
        )
        for row, share in ((top, 1 - down), (top + 1, down)):
            for column, weight in ((left, 1 - across), (left + 1, across)):
                tile = (
                    int(np.clip(row, 0, grid[0] - 1)),
                    int(np.clip(column, 0, grid[1] - 1)),
                )
                y[i, j] += share * weight * tables[tile][levels[i, j]]
    return y


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_channels_first_equals_channels_last(name):
    transposed = make(name, data_format="channels_first")(np.moveaxis(COLORS, -1, 1))
    assert_close(np.moveaxis(transposed.numpy(), 1, -1), make(name)(COLORS))


def test_color_jitter_equals_its_layers():
    factors = {"brightness": (0.1, 0.1), "saturation": (0.6, 0.6), "hue": (1.0, 1.0)}
    layer = layers.RandomColorJitter(
        (0, 1), **{f"{name}_factor": factor for name, factor in factors.items()}
    )
    x = expected = (COLORS / 255).astype("float32")
    for name, factor in factors.items():
        expected = getattr(layers, f"Random{name.title()}")(factor, (0, 1))(expected)
    assert_close(layer(x), expected, factor=10)


def batch():
    return {
        "images": COLORS.astype("float32"),
        "labels": np.eye(2, dtype="float32"),
        "segmentation_masks": COLORS[..., :1].astype("float32"),
    }


def test_mix_up():
    layer = layers.MixUp(seed=1, bounding_box_format="xyxy")
    weights = np.array([0.25, 1.0], "float32")
    transformation = {"mix_weight": weights, "permutation_order": [1, 0]}
    for key, x in batch().items():
        y = getattr(layer, f"transform_{key}")(x, transformation)
        w = weights.reshape(2, *[1] * (x.ndim - 1))
        assert_close(y, w * x + (1 - w) * x[::-1])
    boxes = {"boxes": np.arange(24.0).reshape(2, 3, 4), "labels": np.ones((2, 3))}
    mixed = layer({**batch(), "bounding_boxes": boxes})
    assert mixed["bounding_boxes"]["boxes"].shape == (2, 6, 4)
    assert mixed["bounding_boxes"]["labels"].shape == (2, 6)
    assert_close(mixed["labels"].numpy().sum(-1), np.ones(2, "float32"))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_cut_mix(data_format):
    n = 6
    x = np.broadcast_to(np.arange(float(n)).reshape(n, 1, 1, 1), (n, 40, 40, 3))
    x = x if data_format == "channels_last" else np.moveaxis(x, -1, 1)
    layer = layers.CutMix(seed=2, data_format=data_format)
    y = layer({"images": x, "labels": np.eye(n, dtype="float32")})
    shares = [
        np.bincount(mask.numpy().ravel().astype(int), minlength=n)
        for mask in y["images"]
    ]
    shares = np.array(shares) / x[0].size
    assert np.abs(y["labels"].numpy() - shares).max() < 0.06
    assert_close(layer(x[0]), x[0])
    with pytest.raises(UnsupportedError, match="bounding boxes"):
        layer.transform_bounding_boxes({}, {})


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("RandomBrightness", {"factor": 1.1}, "number.*two numbers.*-1, 1.*factor=1.1"),
        ("RandomBrightness", {"factor": [0.1]}, "two numbers"),
        ("RandomBrightness", {"factor": 0.1, "value_range": [1]}, "list of two"),
        ("RandomContrast", {"factor": -0.1}, "0, 1"),
        ("RandomGrayscale", {"factor": 1.5}, "between 0 and 1"),
        ("RandomGaussianBlur", {"kernel_size": 4}, "odd"),
        ("RandomGaussianBlur", {"sigma": 2}, "sigma"),
        ("Solarization", {"threshold_factor": 2}, "threshold_factor"),
        ("MixUp", {"alpha": 0}, "alpha > 0"),
        ("Equalization", {"bins": 0}, "bins"),
    ],
)
def test_errors(name, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        getattr(layers, name)(**arguments)
