"""Test quantization against NumPy and ml_dtypes."""

import json

import ml_dtypes
import numpy as np
import pytest

from toolkit import GradientTape, Input, Variable, function, ops, quantizers
from toolkit.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 5)).astype("float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, -1, (0, 1), [0]])
@pytest.mark.parametrize("to_numpy", [False, True])
def test_abs_max(dtype, axis, to_numpy):
    x = ops.cast(X, dtype)
    y, scale = quantizers.abs_max_quantize(x, axis, to_numpy=to_numpy)
    assert (y.dtype, scale.dtype) == ("int8", dtype)
    axes = tuple(axis) if isinstance(axis, list) else axis
    expected = 127 / np.abs(X).max(axes, keepdims=True)
    assert scale.shape == expected.shape
    tolerance = {"bfloat16": 2e-2, "float16": 2e-3}.get(dtype, 1e-6)
    np.testing.assert_allclose(ops.cast(scale, "float64"), expected, rtol=tolerance)
    error = np.abs(ops.convert_to_numpy(y) / expected - X)
    assert error.max() < (0.6 + 127 * tolerance) / expected.min()


@pytest.mark.parametrize("to_numpy", [False, True])
def test_abs_max_of_a_missing_axis(to_numpy):
    with pytest.raises(ArgumentError, match="abs_max_quantize: .*axis 2"):
        quantizers.abs_max_quantize(X, 2, to_numpy=to_numpy)


def test_abs_max_of_zeros_and_small_ranges():
    y, scale = quantizers.abs_max_quantize(np.zeros((2, 2), "float32"), -1)
    assert not ops.any(y) and ops.all(ops.isfinite(scale))
    y, _ = quantizers.abs_max_quantize(X, 0, (-8, 7), "int16")
    assert y.dtype == "int16" and int(ops.max(y)) <= 7 and int(ops.min(y)) >= -8


def test_quantizer_of_symbols_and_in_graphs():
    quantizer = quantizers.AbsMaxQuantizer()
    y, scale = quantizer(Input((5,)))
    assert (y.dtype, y.shape, scale.shape) == ("int8", (None, 5), (None, 1))
    for actual, expected in zip(function(quantizer)(X), quantizer(X), strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(quantizer(X, axis=0)[0].shape, X.shape)


def test_quantizers_by_name_and_config():
    quantizer = quantizers.AbsMaxQuantizer(0, (-8, 7), 1e-3)
    twin = quantizers.deserialize(
        json.loads(json.dumps(quantizers.serialize(quantizer)))
    )
    assert twin.get_config() == quantizer.get_config()
    assert (twin.axis, twin.value_range) == ((0,), (-8, 7))
    assert "axis" not in quantizers.AbsMaxQuantizer().get_config()
    for name in ("abs_max_quantizer", "AbsMaxQuantizer"):
        assert type(quantizers.get(name)) is quantizers.AbsMaxQuantizer
    assert quantizers.get("abs_max_quantizer", axis=1).axis == (1,)
    assert quantizers.get(None) is None and quantizers.get(quantizer) is quantizer
    assert quantizers.Quantizer("int4")(3) == 3
    with pytest.raises(ValueError, match="quantizer"):
        quantizers.get("typo")
    with pytest.raises(ValueError, match="value_range"):
        quantizers.AbsMaxQuantizer(value_range=(-256, 256))


# --- float8 ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_equals_ml_dtypes(dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    magnitudes = 2.0 ** RNG.uniform(-20, 16, 4000)
    x = (magnitudes * RNG.choice([-1, 1], 4000)).astype("float32")
    x = np.concatenate([x, [0.0, 1e9, -1e9, largest]]).astype("float32")
    expected = np.clip(x, -largest, largest).astype(dtype).astype("float32")
    y = quantizers.quantize_and_dequantize(x, 1.0, dtype, "float32")
    np.testing.assert_array_equal(y, expected)
    y = quantizers.quantize_and_dequantize(x, 4.0, dtype, "bfloat16")
    assert y.dtype == "bfloat16"


def test_float8_gradients_are_zero_where_values_are_clipped():
    x = Variable([0.3, 500.0])
    with GradientTape() as tape:
        y = quantizers.quantize_and_dequantize(x, 1.0, "float8_e4m3fn", "float32")
    assert tape.gradient(y, x).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="quantized_dtype"):
        quantizers.quantize_and_dequantize(x, 1.0, "float9", "float32")


@pytest.mark.parametrize(
    "amax, margin, expected",
    [(3.0, 0, 3 / 448), (3.0, 1, 6 / 448), (0.0, 0, 4.0), (np.inf, 0, 4.0)],
)
def test_float8_scale(amax, margin, expected):
    scale = quantizers.compute_float8_scale(amax, 4.0, 448.0, margin)
    np.testing.assert_allclose(scale, expected, rtol=1e-6)


def test_float8_history():
    history = RNG.uniform(size=9).astype("float32")
    updated_history = np.asarray(quantizers.compute_float8_amax_history(X, history))
    assert updated_history[0] == np.abs(X).max()
    np.testing.assert_array_equal(updated_history[1:], np.roll(history, -1)[1:])


# --- fake quantization ----------------------------------------------------------------

ENDS = [  # low, high, bits, narrow: nudged low, nudged high, step
    (0.0, 255.0, 8, False, 0.0, 255.0, 1.0),
    (0.5, 128.0, 8, False, 0.0, 127.5, 0.5),
    (-128.0, -0.5, 8, False, -127.5, 0.0, 0.5),
    (-0.1, 127.4, 8, False, 0.0, 127.5, 0.5),
    (0.1, 127.1, 8, True, 0.0, 127.0, 0.5),
    (-63.1, -0.1, 7, True, -63.0, 0.0, 0.5),
    (-0.1, 63.4, 7, False, 0.0, 63.5, 0.5),
]


def values_around(low, high, step):
    near = [low, low + 0.01, low + step, low + step + 0.01, high - 0.01, high]
    return np.array(
        [low - step, low - 0.01, *near, high + 0.01, high + step], "float32"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("low, high, bits, narrow, bottom, top, step", ENDS)
def test_fake_quant(low, high, bits, narrow, bottom, top, step, dtype):
    x = Variable(values_around(bottom, top, step))
    ends = Variable([low]), Variable(high)
    with GradientTape() as tape:
        y = quantizers.fake_quant_with_min_max_vars(x, *ends, bits, narrow)
    expected = np.clip(np.round(x.numpy() / step) * step, bottom, top)
    np.testing.assert_allclose(y, expected, atol=1e-4)
    dx, *dends = tape.gradient(y, [x, *ends])
    assert dx.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]
    assert [d.shape for d in dends] == [(1,), ()]
    assert [float(ops.sum(d)) for d in dends] == [3.0, 3.0]
    half = quantizers.fake_quant_with_min_max_vars(
        ops.cast(x, dtype), *ends, bits, narrow
    )
    assert half.dtype == dtype


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_fake_quant_of_channels(axis):
    rows = [row for row in ENDS if row[2] == 8 and not row[3]]
    columns = np.stack([values_around(*row[4:]) for row in rows], axis=axis)
    low, high = (Variable([row[i] for row in rows]) for i in (0, 1))
    with GradientTape() as tape:
        y = quantizers.fake_quant_with_min_max_vars(columns, low, high, axis=axis)
    for i, row in enumerate(rows):
        expected = quantizers.fake_quant_with_min_max_vars(
            values_around(*row[4:]), *row[:2]
        )
        np.testing.assert_allclose(np.take(y, i, axis), expected, rtol=1e-6)
    assert tape.gradient(y, low).tolist() == [3.0] * len(rows)


def test_fake_quant_of_symbols():
    y = quantizers.fake_quant_with_min_max_vars(Input((3, 4)), -3.0, 3.0)
    assert y.shape == (None, 3, 4)


# --- 4 bits ---------------------------------------------------------------------------


def test_large_matrices_are_quantized_in_groups_of_columns():
    x = np.random.default_rng(0).normal(size=(8, (1 << 18) + 3)).astype("float32")
    results = [
        quantizers.abs_max_quantize_grouped_with_zero_point(x, 4, to_numpy=to_numpy)
        for to_numpy in (False, True)
    ]
    for expected, result in zip(*results, strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("rows, block", [(8, 4), (7, 3), (5, 8), (6, 1)])
@pytest.mark.parametrize("to_numpy", [False, True])
def test_groups(rows, block, to_numpy):
    x = RNG.uniform(-1, 2, (rows, 3)).astype("float32")
    y, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(
        x, block, to_numpy=to_numpy
    )
    groups = -(-rows // block)
    assert (y.dtype, scale.dtype, zero.dtype) == ("int8", "float32", "int8")
    assert (y.shape, scale.shape, zero.shape) == (x.shape, (groups, 3), (groups, 3))
    assert int(ops.min(y)) >= -8 and int(ops.max(y)) <= 7
    of_row = np.arange(rows) // block
    back = (np.asarray(y) - np.asarray(zero)[of_row]) * np.asarray(scale)[of_row]
    assert (np.abs(back - x) <= np.asarray(scale)[of_row] * 0.51).all()


@pytest.mark.parametrize("dtype, low", [("int8", -8), ("uint8", 0)])
@pytest.mark.parametrize(
    "shape, axis",
    [((5, 8), 0), ((4, 8), 0), ((8, 7), -1), ((2, 5, 4, 3), 1), ((3,), 0)],
)
def test_pack_int4(dtype, low, shape, axis):
    x = RNG.integers(low, low + 16, shape).astype(dtype)
    packed, packed_shape, extent = quantizers.pack_int4(x, axis, dtype)
    assert packed.dtype == dtype and packed_shape == tuple(packed.shape)
    assert packed.shape[axis] == (shape[axis] + 1) // 2
    back = quantizers.unpack_int4(packed, extent, axis, dtype)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("work", ["pack_int4", "unpack_int4"])
def test_refused_packing(work):
    call = getattr(quantizers, work)
    arguments = () if work == "pack_int4" else (4,)
    with pytest.raises(TypeError, match="Expected int8"):
        call(np.zeros(4, "float32"), *arguments)
    with pytest.raises(ValueError, match="'int8' or 'uint8'"):
        call(np.zeros(4, "int8"), *arguments, dtype="int16")
