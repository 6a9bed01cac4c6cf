"""Test GPTQ and AWQ of matrices against float64 and rounding to nearest."""

import numpy as np
import pytest

from toolkit.quantizers import AWQConfig, GPTQConfig
from toolkit.quantizers.affine import Rounding, round_to_nearest
from toolkit.quantizers.awq import AWQ
from toolkit.quantizers.gptq import GPTQ

RNG = np.random.default_rng(0)


def problem(rows, count=400):
    """Return correlated inputs with a few large values, and a matrix."""
    mixed = np.eye(rows) + RNG.normal(size=(rows, rows)) / rows**0.5
    x = RNG.normal(size=(count, rows)) @ mixed * np.exp(RNG.normal(size=rows))
    return x, RNG.normal(size=(rows, 17))


def error(x, matrix, quantized):
    """Return the squared error of outputs in float64."""
    return np.square(x @ (quantized.dequantize().astype("float64") - matrix)).mean()


def calibrated(kind, config, x, matrix):
    calibration = kind(len(matrix), config)
    for rows in np.array_split(x, 3):
        calibration.observe(rows)
    return calibration.quantize(matrix)


@pytest.mark.parametrize("group_size, groups", [(-1, 1), (7, 22), (50, 3), (256, 1)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_order": True},
        {"symmetric": True},
        {"per_channel": False},
        {"weight_bits": 3},
        {"weight_bits": 8},
    ],
)
def test_gptq_is_closer_than_rounding(group_size, groups, options):
    x, matrix = problem(150)
    config = GPTQConfig(None, None, group_size=group_size, **options)
    quantized = calibrated(GPTQ, config, x, matrix)
    bits = config.weight_bits
    rounding = Rounding(bits, config.symmetric, config.per_channel)
    nearest = round_to_nearest(matrix, rounding, group_size)
    assert quantized.numbers.shape == matrix.shape
    assert quantized.scale.shape == quantized.zero.shape == (groups, 17)
    assert quantized.numbers.max() < 2**bits
    assert error(x, matrix, quantized) < 0.8 * error(x, matrix, nearest)
    sizes = np.bincount(quantized.block.astype(int))
    size = 150 if group_size == -1 else group_size
    assert list(sizes) == [min(size, 150 - i * size) for i in range(groups)]
    if not config.per_channel:
        assert (quantized.scale == quantized.scale[:, :1]).all()
    if config.symmetric:
        assert (quantized.zero == 8).all()


def test_gptq_result_is_the_least_squares_solution():
    """The remaining rows have the least error for the rounded rows."""
    x, matrix = problem(12)
    config = GPTQConfig(None, None, group_size=-1, hessian_damping=0.0)
    quantized = calibrated(GPTQ, config, x, matrix)
    scale, zero = (
        quantized.scale[0].astype("float64"),
        quantized.zero[0].astype("float64"),
    )
    x = x.astype("float32").astype("float64")
    dequantized = np.zeros_like(matrix)
    for i in range(12):
        target = x @ matrix - x[:, :i] @ dequantized[:i]
        solution = np.linalg.lstsq(x[:, i:], target, rcond=None)[0]
        numbers = np.clip(np.round(solution[0] / scale + zero), 0, 15)
        np.testing.assert_array_equal(quantized.numbers[i], numbers)
        dequantized[i] = (numbers - zero) * scale


def test_activation_order_starts_with_the_largest_inputs():
    x, matrix = problem(12)
    config = GPTQConfig(None, None, group_size=5, activation_order=True)
    quantized = calibrated(GPTQ, config, x, matrix)
    order = np.argsort(-np.square(x).sum(0))
    np.testing.assert_array_equal(quantized.block[order], np.arange(12) // 5)


def test_gptq_of_few_or_no_inputs():
    x, matrix = problem(12, count=3)
    x[:, 4] = 0
    quantized = calibrated(GPTQ, GPTQConfig(None, None, group_size=4), x, matrix)
    nearest = round_to_nearest(matrix, Rounding(4), 4)
    assert error(x, matrix, quantized) < error(x, matrix, nearest)
    np.testing.assert_allclose(quantized.dequantize()[4], matrix[4], atol=0.4)
    config = GPTQConfig(None, None, hessian_damping=0.0)
    with pytest.raises(ValueError, match="expected a larger hessian_damping"):
        calibrated(GPTQ, config, np.ones((3, 12)), matrix)


@pytest.mark.parametrize("group_size, groups", [(-1, 1), (7, 22), (50, 3), (256, 1)])
def test_awq_is_closer_than_rounding(group_size, groups):
    x, matrix = problem(150)
    config = AWQConfig(None, None, group_size=group_size)
    quantized = calibrated(AWQ, config, x, matrix)
    nearest = round_to_nearest(matrix, Rounding(4), group_size)
    assert quantized.scale.shape == quantized.zero.shape == (groups, 17)
    assert error(x, matrix, quantized) < 0.9 * error(x, matrix, nearest)
    largest = np.abs(x).max(0)
    exponent = np.polyfit(np.log(largest), np.log(quantized.row_scales), 1)
    assert 0 < exponent[0] < 1  # they are a power of the largest inputs


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("values", [[0.5, 1.0, 0.75], [-1.0, -0.5, -0.75], [0, 0, 0]])
def test_groups_of_one_sign(values, symmetric):
    """Each range contains 0, so that zero is representable."""
    matrix = np.array(values, "float64")[:, None]
    quantized = round_to_nearest(matrix, Rounding(4, symmetric), -1)
    np.testing.assert_allclose(quantized.dequantize(), matrix, atol=0.07)
