"""Samples of image functions, and of functions that cut tensors into blocks."""

import colorsys
import functools

import numpy as np

from tests.ops import references_image as ref
from tests.ops.table import integers, sample, uniform


def row(name, *inputs, **options):
    """Return a row with the tolerance of a weighted sum of pixels."""
    return sample(f"image.{name}", *inputs, tolerance=20, **options)


def channels_first(reference):
    """Return a reference for channels-first batches."""

    def call(x, *arguments, **attrs):
        y = reference(np.moveaxis(x, 1, -1), *arguments, **attrs)
        return np.moveaxis(y, -1, 1)

    return call


def per_image(function):
    """Return a reference for one image, applied to each image of a batch."""
    return lambda x, *operands: np.stack(
        [function(image, *(o[i] for o in operands)) for i, image in enumerate(x)]
    )


def colors(convert):
    return functools.partial(np.apply_along_axis, lambda p: np.array(convert(*p)), -1)


_batch = uniform(0, 1, (2, 5, 7, 2))
_wide = uniform(0, 1, (1, 250, 1, 1))
_rgb = uniform(0.1, 0.9, (2, 3, 4, 3))

COLORS = [
    row("rgb_to_grayscale", _rgb, numpy=ref.to_gray),
    row("rgb_to_grayscale", _rgb[0], numpy=ref.to_gray),
    row(
        "rgb_to_grayscale",
        _rgb.transpose(0, 3, 1, 2).copy(),
        numpy=channels_first(ref.to_gray),
        data_format="channels_first",
    ),
    row("rgb_to_grayscale", _rgb[..., :1].copy(), numpy=lambda x: x),
    row("rgb_to_hsv", _rgb, numpy=colors(colorsys.rgb_to_hsv), half=False),
    row("rgb_to_hsv", np.full((1, 1, 3), 0.5), numpy=lambda x: x * [0, 0, 1], order=0),
    row("hsv_to_rgb", _rgb, numpy=colors(colorsys.hsv_to_rgb), half=False),
]


def resize_row(size, method, antialias=False, images=_batch):
    return row(
        "resize",
        images,
        size,
        numpy=lambda x, s: ref.resize(x, s, method, antialias),
        interpolation=method,
        antialias=antialias,
    )


def translated(x, shape, scale, shift, axes, method):
    for axis, s, t in zip(axes, scale, shift, strict=True):
        rows = ref.weights(x.shape[axis], shape[axis], method, True, s, t)
        x = np.moveaxis(np.tensordot(rows, x, (1, axis)), 0, axis)
    return x


RESIZING = [
    resize_row((3, 11), "nearest"),
    resize_row((3, 11), "bilinear"),
    resize_row((3, 5), "bilinear", antialias=True),
    resize_row((9, 4), "bicubic"),
    resize_row((2, 4), "bicubic", antialias=True),
    resize_row((9, 4), "lanczos3"),
    resize_row((3, 9), "lanczos5", antialias=True),
    # The number of pixels instead of each pixel.
    *(resize_row((10, 21), method) for method in ("bilinear", "bicubic", "lanczos5")),
    resize_row((15, 7), "bilinear", antialias=True),
    # Images so long that few pixels are summed.
    resize_row((67, 1), "bilinear", images=_wide),
    resize_row((300, 1), "bilinear", True, images=_wide),
    resize_row((190, 1), "bicubic", images=_wide),
    resize_row((333, 1), "lanczos3", images=_wide),
    resize_row((200, 1), "lanczos3", True, images=_wide),
    row("resize", _batch[0], (4, 6), numpy=lambda x, s: ref.resize(x[None], s)[0]),
    row(
        "resize",
        _batch.transpose(0, 3, 1, 2).copy(),
        (4, 6),
        numpy=channels_first(ref.resize),
        data_format="channels_first",
    ),
    row(
        "resize",
        _batch,
        (4, 4),
        numpy=lambda x, s: ref.resize(x[:, :, 1:6], s),
        crop_to_aspect_ratio=True,
    ),
    row(
        "resize",
        _batch,
        (4, 4),
        numpy=lambda x, s: ref.resize(
            np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=0.5), s
        ),
        pad_to_aspect_ratio=True,
        fill_value=0.5,
    ),
    row(
        "resize",
        integers(0, 200, (1, 4, 4, 1)),
        (2, 2),
        numpy=lambda x, s: np.round(ref.resize(x, s)).astype(np.int32),
    ),
    *[
        row(
            "scale_and_translate",
            _batch,
            (2, 4, 9, 2),
            np.array([0.7, 1.4]),
            np.array([0.3, -0.9]),
            (1, 2),
            method,
            numpy=translated,
            half=False,
        )
        for method in ("bilinear", "bicubic", "lanczos3")
    ],
]

_coordinates = uniform(-6, 12, (3, 2, 5))
_cube = uniform(0, 1, (3, 4, 5))
_projections = np.array(
    [
        [1.113, 0.217, -1.331, -0.309, 0.923, 0.741, 0.0, 0.0],
        [0.817, -0.123, 2.257, 0.411, 1.219, -1.627, 0.01, -0.02],
    ]
)
_source_points = np.array([[0.0, 0.0], [0.0, 4.0], [6.0, 0.0], [6.0, 4.0]])
_target_points = _source_points + uniform(-0.8, 0.8, (4, 2))

WARPING = [
    *[
        row(
            "map_coordinates",
            _cube,
            _coordinates,
            order,
            numpy=lambda x, p, o, m=mode: ref.map_coordinates(x, p, o, m, 0.5),
            fill_mode=mode,
            fill_value=0.5,
            half=False,
        )
        for order in (0, 1)
        for mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    ],
    row(
        "affine_transform",
        _batch,
        _projections,
        numpy=per_image(ref.apply_projection),
        half=False,
    ),
    row(
        "affine_transform",
        _batch,
        _projections[0],
        numpy=lambda x, t: per_image(ref.apply_projection)(x, [t] * 2),
        half=False,
    ),
    row(
        "affine_transform",
        _batch[0].transpose(2, 0, 1).copy(),
        _projections[1],
        numpy=lambda x, t: np.moveaxis(
            ref.apply_projection(np.moveaxis(x, 0, -1), t, 0, "reflect"), -1, 0
        ),
        interpolation="nearest",
        fill_mode="reflect",
        data_format="channels_first",
        half=False,
    ),
    row(
        "perspective_transform",
        _batch[0],
        _source_points,
        _target_points,
        numpy=lambda x, a, b: ref.apply_projection(x, ref.homography(a, b), value=0.5),
        fill_value=0.5,
        half=False,
    ),
    row(
        "perspective_transform",
        _batch,
        np.stack([_source_points, _target_points]),
        np.stack([_target_points, _source_points]),
        numpy=per_image(
            lambda x, a, b: ref.apply_projection(x, ref.homography(a, b), 0)
        ),
        interpolation="nearest",
        half=False,
    ),
]


def blur(x, size=(3, 3), sigma=(1.0, 1.0)):
    horizontal, vertical = map(ref.bell, size, sigma)
    return ref.correlate(x, np.outer(vertical, horizontal))


_other = uniform(0, 1, (2, 5, 7, 2))
FILTERS = [
    row("gaussian_blur", _batch, numpy=blur),
    row("gaussian_blur", _batch[0], numpy=lambda x: blur(x[None])[0]),
    row("gaussian_blur", _batch, (5, 2), (0.7, 2.0), numpy=blur),
    row("gaussian_blur", _batch, (2, 4), (0.7, 2.0), numpy=blur),
    row("sobel_edges", _batch, numpy=ref.sobel),
    row(
        "sobel_edges",
        _batch.transpose(0, 3, 1, 2).copy(),
        numpy=lambda x: np.moveaxis(ref.sobel(np.moveaxis(x, 1, -1)), 3, 1),
        data_format="channels_first",
    ),
    row(
        "ssim",
        _batch,
        _other,
        numpy=lambda a, b: ref.ssim(a, b, 3, 1.0, 2.0),
        max_val=2.0,
        filter_size=3,
        filter_sigma=1.0,
        half=False,
    ),
    row(
        "ssim",
        uniform(0, 1, (12, 12, 1)),
        uniform(0, 1, (12, 12, 1)),
        numpy=lambda a, b: ref.ssim(a[None], b[None])[0],
        half=False,
    ),
]


def patched(name, x, size, strides=None, dilation=1, pads=None):
    """Return a row of patches; pads: the padding "same" of each spatial axis."""

    def reference(x):
        x = np.pad(x, ((0, 0), *pads, (0, 0))) if pads else x
        return ref.patches(x, size, strides or size, dilation)

    return row(
        name,
        x,
        numpy=reference,
        size=size,
        strides=strides,
        dilation_rate=dilation,
        padding="same" if pads else "valid",
    )


PIECES = [
    patched("extract_patches", _batch, (2, 3)),
    patched("extract_patches", _batch, (2, 3), (1, 2)),
    patched("extract_patches", _batch, (2, 2), (1, 1), dilation=2),
    patched("extract_patches", _batch, (3, 2), (1, 2), pads=((1, 1), (0, 1))),
    row(
        "extract_patches",
        _batch[0],
        2,
        numpy=lambda x, n: ref.patches(x[None], (n, n), (n, n))[0],
    ),
    patched(
        "extract_patches_3d", uniform(-1, 1, (1, 3, 4, 4, 2)), (2, 2, 3), (1, 2, 1)
    ),
    row(
        "pad_images",
        _batch,
        numpy=lambda x: np.pad(x, ((0, 0), (1, 2), (3, 0), (0, 0))),
        top_padding=1,
        target_height=8,
        left_padding=3,
        right_padding=0,
    ),
    row(
        "crop_images",
        _batch[0],
        numpy=lambda x: x[1:4, 2:6],
        top_cropping=1,
        target_height=3,
        target_width=4,
        right_cropping=1,
    ),
]


def unfolded(x, size=(2, 2), strides=(1, 1), dilation=1, pad=0):
    """Return windows of channels-first images as columns."""
    x = np.moveaxis(np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))), 1, -1)
    y = ref.patches(x, size, strides, dilation)
    windows = y.shape[1] * y.shape[2]
    y = y.reshape(len(x), windows, -1, x.shape[-1])
    return y.transpose(0, 3, 2, 1).reshape(len(x), -1, windows)


def folded(x, size, *arguments):
    """Apply the adjoint of `unfolded`, by unit images of each pixel."""
    shape = (1, x.shape[1] // 4, *size)
    basis = np.eye(int(np.prod(shape))).reshape(-1, *shape[1:])
    columns = unfolded(basis, *arguments)
    return np.einsum("pce,bce->bp", columns, x).reshape(len(x), *shape[1:])


def shuffled(x, r):
    """Take pixel (i, j) of each block from channels (i * r + j) * less + ..."""
    batch, h, w, channels = x.shape
    y = np.empty((batch, h * r, w * r, channels // r**2))
    depth = channels // r**2
    for i, j in np.ndindex(r, r):
        block = slice((i * r + j) * depth, (i * r + j + 1) * depth)
        y[:, i::r, j::r] = x[..., block]
    return y


_planes = uniform(-1, 1, (2, 3, 4, 5))
_many_channels = uniform(-1, 1, (2, 2, 3, 8))
_first = uniform(-1, 1, (1, 8, 2, 3))


def planes_first(x, r):
    """Vary the channels slowest for channels first: channel * r ** 2 + i * r + j."""
    batch, channels, h, w = x.shape
    y = np.empty((batch, channels // r**2, h * r, w * r))
    for i, j in np.ndindex(r, r):
        y[:, :, i::r, j::r] = x[:, i * r + j :: r**2]
    return y


BLOCKS = [
    sample("unfold", _planes, 2, numpy=lambda x, n: unfolded(x)),
    sample(
        "unfold",
        _planes,
        (2, 3),
        numpy=lambda x, n: unfolded(x, n, (2, 1), 1, 1),
        padding=1,
        stride=(2, 1),
    ),
    sample(
        "unfold", _planes, 2, numpy=lambda x, n: unfolded(x, dilation=2), dilation=2
    ),
    sample(
        "fold",
        uniform(-1, 1, (2, 8, 6)),
        (3, 4),
        2,
        numpy=lambda x, s, n: folded(x, s),
        tolerance=4,
    ),
    sample(
        "fold",
        uniform(-1, 1, (1, 4, 6)),
        (3, 4),
        2,
        numpy=lambda x, s, n: folded(x, s, (2, 2), (2, 2), 1, 1),
        padding=1,
        stride=2,
        tolerance=4,
    ),
    sample("depth_to_space", _many_channels, 2, numpy=shuffled),
    sample(
        "depth_to_space", _first, 2, numpy=planes_first, data_format="channels_first"
    ),
    sample(
        "space_to_depth",
        shuffled(_many_channels, 2),
        2,
        numpy=lambda x, r: _many_channels.astype(x.dtype),
        order=0,
    ),
    sample(
        "space_to_depth",
        planes_first(_first, 2),
        2,
        numpy=lambda x, r: _first.astype(x.dtype),
        data_format="channels_first",
        order=0,
    ),
]

SAMPLES = [*COLORS, *RESIZING, *WARPING, *FILTERS, *PIECES, *BLOCKS]
