"""Rows of networks and images of the table of operations.py."""

from operations_inputs import (
    HEADS,
    IMAGES,
    MATRIX,
    SEQUENCES,
    VECTOR,
    VOLUMES,
    Operation,
    along,
    booleans,
    images,
    integers,
    matrix,
    normal,
    photos,
    positive,
)

CHANNELS = {"layout": "channels"}
DEPTHWISE = {"layout": "depthwise"}
SAME = "same"


def with_kernel(shapes, *extents, outputs=1, groups=1, depthwise=False):
    """Return a function from a size index to an input and a kernel."""

    def arrays(size):
        shape = shapes[size]
        channels = shape[-1]
        if depthwise:
            return normal(*shape), normal(*extents, channels, 1) / 10
        kernel = (*extents, channels // groups, channels * outputs)
        return normal(*shape), normal(*kernel) / 10

    return arrays


def convolution(case, shapes, extents, torch, **options):
    """Return a convolution; torch's function gets its keywords."""
    ranks = {1: "conv1d", 2: "conv2d", 3: "conv3d"}
    keywords = {
        key: options.pop(key) for key in ("outputs", "groups") if key in options
    }
    arguments = {"padding": SAME, **options}
    return Operation(
        "conv",
        case,
        with_kernel(shapes, *extents, **keywords),
        lambda tk, x, w: tk.ops.conv(x, w, **arguments),
        lambda t, x, w: getattr(t.nn.functional, ranks[len(extents)])(x, w, **torch),
        **CHANNELS,
    )


def depthwise(case, shapes, extents, padding):
    """Return a depthwise convolution of the same size."""
    name = {1: "conv1d", 2: "conv2d"}[len(extents)]
    return Operation(
        "depthwise_conv",
        case,
        with_kernel(shapes, *extents, depthwise=True),
        lambda tk, x, w: tk.ops.depthwise_conv(x, w, 1, SAME),
        lambda t, x, w: getattr(t.nn.functional, name)(
            x, w, padding=padding, groups=x.shape[1]
        ),
        **DEPTHWISE,
    )


def transposed(case, extent, padding, torch):
    """Return a transposed convolution with strides of 2."""
    return Operation(
        "conv_transpose",
        case,
        with_kernel(IMAGES, extent, extent),
        lambda tk, x, w: tk.ops.conv_transpose(x, w, 2, padding),
        lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, stride=2, padding=torch),
        **CHANNELS,
    )


WIDE = ((1, 16, 16, 3), (4, 64, 64, 3), (8, 224, 224, 3))
CONVOLUTIONS = [
    convolution("3x3", IMAGES, (3, 3), {"padding": 1}),
    convolution("1x1", IMAGES, (1, 1), {}, outputs=2),
    convolution(
        "3x3, stride 2", IMAGES, (3, 3), {"stride": 2}, strides=2, padding="valid"
    ),
    convolution(
        "7x7, stride 2, 3 channels",
        WIDE,
        (7, 7),
        {"stride": 2},
        outputs=20,
        strides=2,
        padding="valid",
    ),
    convolution(
        "3x3, dilation 2",
        IMAGES,
        (3, 3),
        {"padding": 2, "dilation": 2},
        dilation_rate=2,
    ),
    convolution("3x3, 4 groups", IMAGES, (3, 3), {"padding": 1, "groups": 4}, groups=4),
    convolution("1 axis, 3", SEQUENCES, (3,), {"padding": 1}),
    convolution("3 axes, 3x3x3", VOLUMES, (3, 3, 3), {"padding": 1}),
    depthwise("3x3", IMAGES, (3, 3), 1),
    depthwise("7x7", IMAGES, (7, 7), 3),
    depthwise("1 axis, 5", SEQUENCES, (5,), 2),
    transposed("2x2, stride 2", 2, "valid", 0),
    transposed("4x4, stride 2", 4, SAME, 1),
    Operation(
        "separable_conv",
        "3x3",
        lambda size: (
            *with_kernel(IMAGES, 3, 3, depthwise=True)(size),
            normal(1, 1, IMAGES[size][3], IMAGES[size][3]) / 10,
        ),
        lambda tk, x, w, v: tk.ops.separable_conv(x, w, v, 1, SAME),
        lambda t, x, w, v: t.nn.functional.conv2d(
            t.nn.functional.conv2d(x, w, padding=1, groups=x.shape[1]),
            v,
        ),
        **DEPTHWISE,
    ),
]


def pooled(name, case, shapes, ours, torch):
    """Return a pooling; `torch` is the name of its function and its arguments."""
    function, *arguments = torch
    return Operation(
        name,
        case,
        lambda size: (normal(*shapes[size]),),
        lambda tk, x: getattr(tk.ops, name)(x, *ours),
        lambda t, x: getattr(t.nn.functional, function)(x, *arguments),
        **CHANNELS,
    )


POOLING = [
    pooled("max_pool", "2x2", IMAGES, (2,), ("max_pool2d", 2)),
    pooled("max_pool", "3x3, stride 2", IMAGES, (3, 2), ("max_pool2d", 3, 2)),
    pooled("max_pool", "1 axis, 2", SEQUENCES, (2,), ("max_pool1d", 2)),
    pooled("max_pool", "3 axes, 2x2x2", VOLUMES, (2,), ("max_pool3d", 2)),
    pooled("average_pool", "2x2", IMAGES, (2,), ("avg_pool2d", 2)),
    pooled(
        "adaptive_average_pool",
        "to 4x4",
        IMAGES,
        ((4, 4),),
        ("adaptive_avg_pool2d", 4),
    ),
    pooled(
        "adaptive_max_pool", "to 4x4", IMAGES, ((4, 4),), ("adaptive_max_pool2d", 4)
    ),
    Operation(
        "mean",
        "of pixels",
        images,
        lambda tk, x: tk.ops.mean(x, axis=(1, 2)),
        lambda t, x: x.mean((2, 3)),
        **CHANNELS,
    ),
]


def scaled(size):
    """Return a matrix, its scale and its offset."""
    columns = MATRIX[size][1]
    return normal(*MATRIX[size]), positive(columns), normal(columns)


def statistics(size):
    """Return images, and the mean and the variance of their channels."""
    channels = IMAGES[size][3]
    return normal(*IMAGES[size]), normal(channels), positive(channels)


NORMALIZATION = [
    Operation(
        "layer_normalization",
        "",
        scaled,
        lambda tk, x, g, b: tk.ops.layer_normalization(x, g, b, epsilon=1e-5),
        lambda t, x, g, b: t.nn.functional.layer_norm(x, g.shape, g, b),
    ),
    Operation(
        "rms_normalization",
        "",
        lambda size: scaled(size)[:2],
        lambda tk, x, g: tk.ops.rms_normalization(x, g, epsilon=1e-6),
        lambda t, x, g: t.nn.functional.rms_norm(x, g.shape, g, 1e-6),
    ),
    Operation(
        "batch_normalization",
        "given statistics",
        statistics,
        lambda tk, x, m, v: tk.ops.batch_normalization(x, m, v, -1),
        lambda t, x, m, v: t.nn.functional.batch_norm(x, m, v, eps=1e-3),
        is_differentiable=False,
        **CHANNELS,
    ),
    Operation(
        "batch_normalization",
        "of the batch",
        images,
        lambda tk, x: tk.ops.batch_normalization(x, *tk.ops.moments(x, (0, 1, 2)), -1),
        lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True, eps=1e-3),
        is_checked=False,  # the sum is constant: the gradient is rounding errors
        **CHANNELS,
    ),
    Operation(
        "normalize",
        "",
        matrix,
        lambda tk, x: tk.ops.normalize(x, axis=1),
        lambda t, x: t.nn.functional.normalize(x, dim=1),
    ),
    *along("softmax log_softmax", (0, 1), matrix, numpy="-"),
    *along(
        "softmax",
        (-1,),
        lambda size: (normal(1, VECTOR[size]),),
        numpy="-",
        title="one row",
    ),
]


def heads(count=3):
    """Return a function from a size index to queries, keys and values."""
    return lambda size: tuple(normal(*HEADS[size]) for _ in range(count))


def attention(t, q, k, v, **options):
    """Return torch's attention of (batch, length, heads, width)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    y = t.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return y.transpose(1, 2)


ATTENTION = [
    Operation(
        "dot_product_attention",
        "",
        heads(),
        lambda tk, q, k, v: tk.ops.dot_product_attention(q, k, v),
        attention,
    ),
    Operation(
        "dot_product_attention",
        "causal",
        heads(),
        lambda tk, q, k, v: tk.ops.dot_product_attention(q, k, v, is_causal=True),
        lambda t, q, k, v: attention(t, q, k, v, is_causal=True),
    ),
    Operation(
        "dot_product_attention",
        "with mask",
        lambda size: (*heads()(size), booleans(1, 1, *(HEADS[size][1],) * 2)),
        lambda tk, q, k, v, m: tk.ops.dot_product_attention(q, k, v, mask=m),
        lambda t, q, k, v, m: attention(t, q, k, v, attn_mask=m),
        is_checked=False,
    ),
]


def labelled(size):
    """Return class indices and logits."""
    rows, columns = MATRIX[size]
    return integers(columns, rows, dtype="int64"), normal(rows, columns)


def alignment(size):
    """Return labels and logits of sequences."""
    labels = ((1, 3), (16, 20), (32, 60))[size]
    classes = (5, 29, 99)[size]
    logits = ((1, 8, 6), (16, 64, 30), (32, 200, 100))[size]
    return integers(classes, *labels) + 1, normal(*logits)


LOSSES = [
    Operation(
        "sparse_categorical_crossentropy",
        "logits",
        labelled,
        lambda tk, y, x: tk.ops.sparse_categorical_crossentropy(y, x, from_logits=True),
        lambda t, y, x: t.nn.functional.cross_entropy(x, y, reduction="none"),
    ),
    Operation(
        "categorical_crossentropy",
        "logits",
        lambda size: (uniform_rows(size), *matrix(size)),
        lambda tk, y, x: tk.ops.categorical_crossentropy(y, x, from_logits=True),
        lambda t, y, x: t.nn.functional.cross_entropy(x, y, reduction="none"),
    ),
    Operation(
        "binary_crossentropy",
        "logits",
        lambda size: (booleans(*MATRIX[size]).astype("float32"), *matrix(size)),
        lambda tk, y, x: tk.ops.binary_crossentropy(y, x, from_logits=True),
        lambda t, y, x: t.nn.functional.binary_cross_entropy_with_logits(
            x, y, reduction="none"
        ),
    ),
    Operation(
        "ctc_loss",
        "",
        alignment,
        lambda tk, y, x: tk.ops.ctc_loss(y, x, *lengths(tk, y, x)),
        lambda t, y, x: t.nn.functional.ctc_loss(
            t.log_softmax(x, -1).transpose(0, 1),
            y,
            [x.shape[1]] * len(x),
            [y.shape[1]] * len(x),
            reduction="none",
        ),
    ),
    Operation(
        "psnr",
        "",
        lambda size: (*photos(size), *photos(size)),
        lambda tk, x, y: tk.ops.psnr(x, y, 1.0),
        lambda t, x, y: -10 * t.log10(t.nn.functional.mse_loss(x, y)),
        lambda n, x, y: -10 * n.log10(n.mean((x - y) ** 2)),
    ),
]


def uniform_rows(size):
    """Return a matrix whose rows have the sum 1."""
    x = positive(*MATRIX[size])
    return x / x.sum(1, keepdims=True)


def lengths(tk, y, x):
    """Return the lengths of the labels and of the sequences."""
    rows = (x.shape[0],)
    return [tk.ops.full(rows, array.shape[1], "int32") for array in (y, x)]


def resized(case, size_of, method, torch, **options):
    """Return a change of the size of images."""
    return Operation(
        "image.resize",
        case,
        images,
        lambda tk, x: tk.ops.image.resize(x, size_of(x.shape[1:3]), method, **options),
        lambda t, x: t.nn.functional.interpolate(
            x, size_of(x.shape[2:]), mode=method, **torch
        ),
        is_checked=method != "bicubic",
        **CHANNELS,
    )


def twice(shape):
    """Return twice the extents."""
    return shape[0] * 2, shape[1] * 2


def half(shape):
    """Return half of the extents."""
    return shape[0] // 2, shape[1] // 2


SHEAR = (1, 0.1, 0, 0.1, 1, 0, 0, 0)
VISION = [
    resized("bilinear, twice", twice, "bilinear", {}),
    resized("nearest, twice", twice, "nearest", {}),
    resized("bicubic, twice", twice, "bicubic", {}),
    resized("antialias, half", half, "bilinear", {"antialias": True}, antialias=True),
    Operation(
        "image.affine_transform",
        "bilinear",
        photos,
        lambda tk, x: tk.ops.image.affine_transform(
            x, tk.ops.convert_to_tensor([SHEAR] * x.shape[0], "float32")
        ),
        lambda t, x: t.nn.functional.grid_sample(
            x,
            t.nn.functional.affine_grid(
                t.eye(2, 3).expand(len(x), 2, 3) + 0.1, x.shape, align_corners=False
            ),
            align_corners=False,
        ),
        is_checked=False,
        **CHANNELS,
    ),
    Operation(
        "image.rgb_to_grayscale",
        "",
        photos,
        lambda tk, x: tk.ops.image.rgb_to_grayscale(x),
        lambda t, x: (x * t.tensor((0.2989, 0.5870, 0.1140))[:, None, None]).sum(
            1, keepdim=True
        ),
        is_checked=False,
        **CHANNELS,
    ),
    Operation(
        "image.gaussian_blur",
        "3x3",
        photos,
        lambda tk, x: tk.ops.image.gaussian_blur(x, (3, 3), (1.0, 1.0)),
        lambda t, x: t.nn.functional.conv2d(
            x, t.full((3, 1, 3, 3), 1 / 9), padding=1, groups=3
        ),
        is_checked=False,
        **CHANNELS,
    ),
    Operation(
        "image.extract_patches",
        "4x4",
        lambda size: (
            normal(*((1, 8, 8, 3), (4, 96, 96, 3), (32, 224, 224, 3))[size]),
        ),
        lambda tk, x: tk.ops.image.extract_patches(x, 4),
        lambda t, x: t.nn.functional.unfold(x, 4, stride=4),
        is_checked=False,
        **CHANNELS,
    ),
    Operation(
        "unfold",
        "3x3",
        lambda size: (normal(*(IMAGES[size][i] for i in (0, 3, 1, 2))),),
        lambda tk, x: tk.ops.unfold(x, 3),
        lambda t, x: t.nn.functional.unfold(x, 3),
    ),
    Operation(
        "fold",
        "2x2",
        lambda size: (normal(*((1, 8, 16), (4, 128, 196), (16, 256, 784))[size]),),
        lambda tk, x: tk.ops.fold(x, twice((int(x.shape[2] ** 0.5),) * 2), 2, stride=2),
        lambda t, x: t.nn.functional.fold(
            x, twice((int(x.shape[2] ** 0.5),) * 2), 2, stride=2
        ),
    ),
    Operation(
        "depth_to_space",
        "2x2",
        images,
        lambda tk, x: tk.ops.depth_to_space(x, 2),
        lambda t, x: t.pixel_shuffle(x, 2),
        is_checked=False,
        **CHANNELS,
    ),
    Operation(
        "space_to_depth",
        "2x2",
        lambda size: (
            normal(*((1, 4, 4, 8), (4, 28, 28, 32), (16, 56, 56, 64))[size]),
        ),
        lambda tk, x: tk.ops.space_to_depth(x, 2),
        lambda t, x: t.pixel_unshuffle(x, 2),
        is_checked=False,
        **CHANNELS,
    ),
]
NETWORKS = [*CONVOLUTIONS, *POOLING, *NORMALIZATION, *ATTENTION, *LOSSES]
