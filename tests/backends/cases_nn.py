"""Test cases of products, convolutions, pooling and random numbers."""

import math

import numpy as np

from tests.backends.cases import FLOATS, Case, sample


def products():
    shapes = (
        ((2, 3), (3, 4)),
        ((1, 3), (3, 1)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (1, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((0, 2, 3), (3, 4)),
        ((5, 2, 0), (1, 0, 4)),
        ((40, 70), (70, 60)),
        ((3, 40, 70), (3, 70, 60)),
    )
    for dtype in (*FLOATS, "int32"):
        for a, b in shapes:
            yield Case("matmul", (sample(a, dtype), sample(b, dtype)), {}, a[-1] + 1)
    for a, b in shapes:
        factors = (sample(shape, "int8", -128, 127) for shape in (a, b))
        yield Case("matmul_integer", tuple(factors))


# (spatial, size, strides, padding, dilation, groups, channels, filters)
CONVOLUTIONS = (
    ((9,), (3,), (1,), ((2, 0),), (1,), 1, 4, 6),
    ((9,), (3,), (2,), ((1, 1),), (2,), 2, 4, 6),
    ((8, 7), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, 4, 6),
    ((8, 7), (3, 2), (2, 3), ((1, 0), (0, 2)), (1, 1), 1, 4, 6),
    ((8, 7), (2, 3), (1, 1), ((0, 0), (0, 0)), (2, 2), 2, 4, 6),
    ((8, 7), (3, 3), (2, 2), ((0, 1), (0, 1)), (1, 1), 4, 4, 4),
    ((8, 7), (3, 3), (1, 1), ((1, 1), (1, 1)), (2, 1), 4, 4, 8),
    ((8, 7), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1, 4, 6),
    ((8, 7), (1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 2, 4, 6),
    ((8, 7), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 2, 4, 6),
    ((4, 3), (2, 2), (1, 1), ((3, 2), (2, 3)), (1, 1), 1, 2, 3),
    ((5, 4, 6), (3, 2, 3), (1, 1, 1), ((1, 1), (0, 1), (1, 1)), (1, 1, 1), 1, 2, 3),
    ((5, 4, 6), (3, 2, 3), (2, 1, 2), ((1, 1), (0, 1), (1, 1)), (1, 2, 1), 1, 2, 3),
    ((7, 6), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, 1, 1),
    # For these, cuDNN has engines that return wrong results for float32 filters.
    ((8, 8), (3, 3), (2, 2), ((0, 1), (0, 1)), (1, 1), 1, 32, 32),
    ((8, 8), (3, 3), (1, 1), ((1, 0), (1, 0)), (1, 1), 1, 32, 32),
)
# More than one chunk of columns, by images and by rows of an image.
LARGE = (
    ((16, 16), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, 32, 8),
    ((40, 40), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1, 64, 8),
    ((40, 40), (5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1), 1, 16, 8),
    ((40, 40), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 64, 64, 64),
)


def counts(spatial, size, strides, padding, dilation):
    """Return the number of windows along each axis."""
    axes = zip(spatial, size, strides, padding, dilation, strict=True)
    return tuple(
        (n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, (low, high), d in axes
    )


def convolution(dtype, batch, row):
    spatial, size, strides, padding, dilation, groups, channels, filters = row
    x = sample((batch, *spatial, channels), dtype)
    w = sample((*size, channels // groups, filters), dtype, seed="w")
    out = counts(spatial, size, strides, padding, dilation)
    g = sample((batch, *out, filters), dtype, seed="g")
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }
    terms = math.prod(size) * max(channels, filters) // groups
    yield Case("conv", (x, w), attrs, terms)
    yield Case("conv_input_grad", (g, w), {"spatial": spatial, **attrs}, terms)
    pixels = batch * math.prod(out) + 1
    yield Case("conv_kernel_grad", (x, g), {"kernel": size, **attrs}, pixels)


def convolutions():
    for row in CONVOLUTIONS:
        for dtype in FLOATS:
            yield from convolution(dtype, 3, row)
        yield from convolution("float32", 0, row)
        for dtype, offset in (("int8", 0), ("uint8", 64)):
            yield integer_convolution(dtype, offset, row)
    for row in LARGE:
        for dtype in ("bfloat16", "float32"):
            yield from convolution(dtype, 5, row)


def integer_convolution(dtype, offset, row):
    spatial, size, strides, padding, dilation, groups, channels, filters = row
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "offset": offset,
        "bits": 8,
    }
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    x = sample((2, *spatial, channels), dtype, low, high)
    w = sample((*size, channels // groups, filters), "int8", -128, 127)
    return Case("conv_integer", (x, w), attrs)


# (spatial, channels, window, strides, padding)
POOLS = (
    ((9,), 3, (2,), (2,), ((0, 0),)),
    ((9,), 3, (3,), (1,), ((1, 1),)),
    ((6, 7), 4, (2, 2), (2, 2), ((0, 0), (0, 0))),
    ((6, 7), 4, (3, 3), (2, 2), ((1, 1), (0, 1))),
    ((6, 7), 4, (3, 2), (1, 1), ((0, 0), (0, 0))),
    ((6, 7), 4, (2, 2), (3, 3), ((0, 0), (0, 0))),
    ((4, 4, 4), 2, (2, 2, 2), (2, 2, 2), ((0, 0), (0, 0), (0, 0))),
    ((17, 18), 1, (16, 16), (1, 1), ((0, 0), (0, 0))),
    ((64, 66), 48, (3, 3), (2, 2), ((1, 1), (1, 1))),
)


def pooling(dtype, batch, row):
    spatial, channels, window, strides, padding = row
    x = sample((batch, *spatial, channels), dtype)
    attrs = {"window": window, "strides": strides, "padding": padding}
    out = counts(spatial, window, strides, padding, (1,) * len(window))
    g = sample((batch, *out, channels), dtype, seed="g")
    terms = math.prod(window)
    index = sample(g.shape, "int32", 0, terms - 1)
    yield Case("max_pool", (x,), attrs)
    yield Case("max_pool_gather", (x, index), attrs)
    yield Case("max_pool_scatter", (g, index), {"spatial": spatial, **attrs}, terms)
    yield Case("sum_pool", (x,), attrs, terms)
    yield Case("sum_pool_grad", (g,), {"spatial": spatial, **attrs}, terms)


def pools():
    for row in POOLS:
        for dtype in (*FLOATS, "int32"):
            yield from pooling(dtype, 2, row)
        yield from pooling("float32", 0, row)
    spatial, _, window, strides, padding = POOLS[3]
    attrs = {"window": window, "strides": strides, "padding": padding}
    for value in (np.nan, -np.inf):
        for dtype in FLOATS:
            x = sample((2, *spatial, 4), dtype)
            x[:, 1:4, 2:5] = value
            yield Case("max_pool", (x,), attrs)


def random():
    for dtype in ("float32", "float64"):
        for shape in ((), (0, 3), (4, 5)):
            key = np.array([7, 2**32 - 1], np.uint32)
            yield Case("random_uniform", (key,), {"shape": shape, "dtype": dtype})


PRODUCTS = list(products())
NN = [*PRODUCTS, *convolutions(), *pools(), *random()]
