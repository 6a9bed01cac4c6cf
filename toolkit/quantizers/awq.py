"""AWQ: scale up the rows of weights that multiply large inputs, then round."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.quantizers.affine import QuantizedMatrix, Rounding, round_to_nearest
from toolkit.quantizers.configs import AWQConfig

Array = Any

# Inputs below this value in all samples count as 1, and so do the scales of their rows.
_MIN_INPUT = 1e-8
_MIN_SCALE = 1e-4


class AWQ:
    """AWQ quantizer of one matrix, calibrated with its inputs.

    Args:
        rows: rows of the matrix.
        config: groups, and the number of scales to try.

    Reference:
        J. Lin et al., AWQ, https://arxiv.org/abs/2306.00978
    """

    def __init__(self, rows: int, config: AWQConfig) -> None:
        self._config = config
        self._max_inputs = np.zeros(rows, "float32")
        self.count = 0

    def observe(self, inputs: Array) -> None:
        """Record inputs, (count, rows), of the product."""
        x = np.asarray(inputs, "float32")
        self._max_inputs = np.maximum(
            self._max_inputs, np.abs(x).max(axis=0, initial=0)
        )
        self.count += len(x)

    def quantize(self, matrix: Array) -> QuantizedMatrix:
        """Return the matrix, (rows, columns), as integers.

        Candidate scales are powers of the largest inputs, with exponents from 0 to 1.
        The method selects the candidate with the smallest error of weights times the
        largest inputs.
        """
        inputs = np.where(self._max_inputs < _MIN_INPUT, 1, self._max_inputs)
        weights = np.asarray(matrix, "float32")
        steps = self._config.num_grid_points
        exponents = (i / steps for i in range(steps + 1))
        candidates = (
            self._quantize_scaled(weights, inputs, exponent) for exponent in exponents
        )
        return min(
            candidates,
            key=lambda candidate: self._compute_loss(weights, inputs, candidate),
        )

    def _quantize_scaled(
        self, weights: Array, inputs: Array, exponent: float
    ) -> QuantizedMatrix:
        scales = np.maximum(inputs**exponent, _MIN_SCALE).astype("float32")
        scales = scales / np.sqrt(scales.max() * scales.min())
        rounding = Rounding(self._config.weight_bits)
        scaled_weights = weights * scales[:, None]
        quantized = round_to_nearest(scaled_weights, rounding, self._config.group_size)
        return quantized._replace(row_scales=scales)

    def _compute_loss(
        self, weights: Array, inputs: Array, quantized: QuantizedMatrix
    ) -> float:
        error = (weights - quantized.dequantize()) * inputs[:, None]
        return float(np.mean(np.square(error)))
