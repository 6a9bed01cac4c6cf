"""Test the direct calls of NumPy, and the code of frequent calls, against kernels."""

import numpy as np
import pytest

from toolkit import dtypes, ops  # noqa: F401, it declares the primitives
from toolkit.backends.kernels import DirectCall
from toolkit.backends.registry import get_backend
from toolkit.ir import PRIMITIVES, Spec

BACKEND = get_backend("numpy")
RNG = np.random.default_rng(0)


def specs_of(arrays):
    return [Spec(x.shape, dtypes.name_of(x.dtype)) for x in arrays]


def bits(results):
    results = results if isinstance(results, tuple) else (results,)
    return [(y.dtype, y.shape, y.tobytes(), y.flags.writeable) for y in results]


def normal(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


WIDTHS = ((1, 2), (0, 3))
CALLS = {
    "pad zero": ("pad", [normal(4, 8)], {"widths": WIDTHS, "value": 0.0}),
    "pad minus zero": ("pad", [normal(4, 8)], {"widths": WIDTHS, "value": -0.0}),
    "pad nan": ("pad", [normal(4, 8)], {"widths": WIDTHS, "value": float("nan")}),
    "pad int": ("pad", [np.ones((2, 2), "int32")], {"widths": WIDTHS, "value": 7}),
    "pad bool": ("pad", [np.ones((2, 2), bool)], {"widths": WIDTHS, "value": True}),
    "pad empty": ("pad", [normal(0, 2)], {"widths": WIDTHS, "value": 1.0}),
    "new axes": ("broadcast_to", [normal(4, 8)], {"shape": (3, 4, 8)}),
    "repeated axes": ("broadcast_to", [normal(4, 1)], {"shape": (2, 4, 5)}),
    "a number": ("broadcast_to", [normal()], {"shape": (2, 3)}),
    "no elements": ("broadcast_to", [normal(1, 2)], {"shape": (0, 2)}),
}
for dtype in ("float32", "float64"):
    pair = [normal(4, 9, dtype=dtype), normal(4, 9, dtype=dtype)]
    for inverse in (True, False):
        for axis in (0, 1):
            attrs = {"axis": axis, "inverse": inverse}
            CALLS[f"dft {dtype} {inverse} {axis}"] = "dft", pair, attrs
    CALLS[f"rdft {dtype}"] = "rdft", pair[:1], {}
    for length in (16, 17):
        CALLS[f"irdft {dtype} {length}"] = "irdft", pair, {"length": length}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_calls_have_the_results_of_kernels(name, order):
    primitive, arrays, attrs = CALLS[name]
    kernel = BACKEND.sized_kernel(PRIMITIVES[primitive], specs_of(arrays), attrs)
    assert isinstance(kernel, DirectCall) or name == "no elements"
    arrays = [np.array(x, order=order) for x in arrays]
    before = [x.copy() for x in arrays]
    expected = BACKEND.kernels[primitive](*arrays, **attrs)
    assert bits(kernel(*arrays, **attrs)) == bits(expected)
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_views_of_repeated_elements_cannot_be_written():
    x = normal(4)
    attrs = {"shape": (3, 4)}
    kernel = BACKEND.sized_kernel(PRIMITIVES["broadcast_to"], specs_of([x]), attrs)
    with pytest.raises(ValueError, match="read-only"):
        kernel(x, **attrs)[0, 0] = 1


def pools():
    for trial in range(24):
        window = tuple(RNG.integers(1, 4, 2).tolist())
        strides = tuple(RNG.integers(1, 5, 2).tolist())
        padding = tuple(tuple(RNG.integers(0, n, 2).tolist()) for n in window)
        extents = (n + int(RNG.integers(0, 7)) for n in window)
        x = normal(2, *extents, int(RNG.integers(1, 20)))
        if trial % 2:  # equal numbers, NaN and zeros with a sign
            x = np.where(x > 1, np.float32(np.nan), np.round(x))
        yield x, {"window": window, "strides": strides, "padding": padding}


@pytest.mark.parametrize("case", list(pools()))
def test_code_of_frequent_pooling_has_the_results_of_kernels(case):
    x, attrs = case

    def compare(name, arrays, attrs):
        expected = BACKEND.kernels[name](*arrays, **attrs)
        primitive, specs = PRIMITIVES[name], specs_of(arrays)
        sized = BACKEND.sized_kernel(primitive, specs, attrs)
        hot = BACKEND.hot_kernel(primitive, specs, attrs)
        for kernel in filter(None, (sized, hot)):
            assert bits(kernel(*arrays, **attrs)) == bits(expected)
        return expected, hot is not None

    with np.errstate(all="ignore"):
        (y, index), has_code = compare("max_pool", [x], attrs)
        assert not has_code  # it returns another one of 0.0 and -0.0
        g = normal(*y.shape)
        g[g < -0.5], g[g > 1] = -0.0, np.nan
        attrs = {"spatial": x.shape[1:3], **attrs}
        overlaps = any(map(int.__lt__, attrs["strides"], attrs["window"]))
        for name, arrays in (("max_pool_scatter", [g, index]), ("sum_pool_grad", [g])):
            assert compare(name, arrays, attrs)[1] != overlaps


def convolutions():
    for trial in range(24):
        size = tuple(RNG.integers(1, 4, 2).tolist())
        strides = (1, 1) if trial % 3 else tuple(RNG.integers(1, 3, 2).tolist())
        dilation = tuple(RNG.integers(1, 3, 2).tolist())
        padding = tuple(tuple(RNG.integers(0, n, 2).tolist()) for n in size)
        groups, depth = int(RNG.integers(1, 3)), int(RNG.integers(2, 5))
        reach = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
        extents = [n + int(RNG.integers(0, 5)) for n in reach]
        x = normal(2, *extents, groups * depth)
        w = normal(*size, depth, groups * int(RNG.integers(1, 5)))
        yield x, w, (strides, padding, dilation, groups)


@pytest.mark.parametrize("case", list(convolutions()))
@pytest.mark.parametrize("layout", ["C", "F", "repeated"])
def test_convolutions_and_their_gradients(case, layout):
    x, w, values = case
    names = ("strides", "padding", "dilation", "groups")
    shared = dict(zip(names, values, strict=True))
    y = BACKEND.kernels["conv"](x, w, **shared)
    g = normal(*y.shape)

    def arranged(array):
        if layout == "repeated":
            return np.broadcast_to(array[:1, :1], array.shape)
        return np.array(array, order=layout)

    calls = (
        ("conv", [arranged(x), w], shared),
        ("conv_input_grad", [arranged(g), w], {"spatial": x.shape[1:3], **shared}),
        ("conv_kernel_grad", [arranged(x), arranged(g)], {"kernel": w.shape[:2]}),
    )
    for name, arrays, attrs in calls:
        attrs = {**attrs, **shared}
        expected = BACKEND.kernels[name](*arrays, **attrs)
        kernel = BACKEND.sized_kernel(PRIMITIVES[name], specs_of(arrays), attrs)
        assert bits(kernel(*arrays, **attrs)) == bits(expected)
