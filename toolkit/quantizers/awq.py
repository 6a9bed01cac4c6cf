"""AWQ: rows of weights that meet large inputs are scaled up before they are rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.quantizers.affine import Quantized, Rounding, round_to_nearest
from toolkit.quantizers.configs import AWQConfig

Array = Any

# Inputs below this in all samples count as 1, as do their rows' scales.
_LEAST_INPUT = 1e-8
_LEAST_SCALE = 1e-4


class AWQ:
    """Quantizes a matrix for what it was multiplied with.

    Args:
        rows: of the matrix.
        config: groups, and how many scales are tried.

    Reference:
        J. Lin et al., AWQ, https://arxiv.org/abs/2306.00978
    """

    def __init__(self, rows: int, config: AWQConfig) -> None:
        self._config = config
        self._largest = np.zeros(rows, "float32")
        self.count = 0

    def observe(self, inputs: Array) -> None:
        """Take note of inputs, (count, rows), of the product."""
        x = np.asarray(inputs, "float32")
        self._largest = np.maximum(self._largest, np.abs(x).max(axis=0, initial=0))
        self.count += len(x)

    def quantized(self, matrix: Array) -> Quantized:
        """The matrix, (rows, columns), as whole numbers.

        Scales are powers of the largest inputs, with exponents from 0 to 1; that with
        the least error of weights, times the largest inputs, is taken.
        """
        inputs = np.where(self._largest < _LEAST_INPUT, 1, self._largest)
        weights = np.asarray(matrix, "float32")
        steps = self._config.num_grid_points
        exponents = (i / steps for i in range(steps + 1))
        candidates = (self._scaled(weights, inputs, each) for each in exponents)
        return min(candidates, key=lambda each: self._loss(weights, inputs, each))

    def _scaled(self, weights: Array, inputs: Array, exponent: float) -> Quantized:
        scales = np.maximum(inputs**exponent, _LEAST_SCALE).astype("float32")
        scales = scales / np.sqrt(scales.max() * scales.min())
        rounding = Rounding(self._config.weight_bits)
        scaled = weights * scales[:, None]
        found = round_to_nearest(scaled, rounding, self._config.group_size)
        return found._replace(row_scales=scales)

    def _loss(self, weights: Array, inputs: Array, found: Quantized) -> float:
        error = (weights - found.value()) * inputs[:, None]
        return float(np.mean(np.square(error)))
