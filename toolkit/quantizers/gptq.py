"""GPTQ: round weights row by row and compensate with the remaining rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.errors import ArgumentError
from toolkit.quantizers.affine import QuantizedMatrix, Rounding, group_indices
from toolkit.quantizers.configs import GPTQConfig

Array = Any

# Number of rows whose errors one product propagates to all later rows.
_BLOCK_SIZE = 128


class GPTQ:
    """GPTQ quantizer of one matrix, calibrated with its inputs.

    Args:
        rows: rows of the matrix.
        config: bits, groups, damping.

    Reference:
        E. Frantar et al., GPTQ, https://arxiv.org/abs/2210.17323
    """

    def __init__(self, rows: int, config: GPTQConfig) -> None:
        self._config = config
        self._gram_sum = np.zeros((rows, rows))
        self.count = 0

    def observe(self, inputs: Array) -> None:
        """Record inputs, (count, rows), of the product."""
        x = np.asarray(inputs, "float32")
        self._gram_sum += x.T @ x
        self.count += len(x)

    def quantize(self, matrix: Array) -> QuantizedMatrix:
        """Return the matrix, (rows, columns), as integers."""
        config = self._config
        hessian = self._compute_hessian()
        rows = len(matrix)
        order = np.arange(rows)
        if config.activation_order:
            order = np.argsort(-np.diagonal(hessian), kind="stable")
        factor = self._compute_factor(hessian[np.ix_(order, order)])
        rounding = Rounding(config.weight_bits, config.symmetric, config.per_channel)
        inverse_order = np.argsort(order)
        numbers, scale, zero = _quantize_rows(
            np.asarray(matrix, "float64")[order], factor, rounding, config.group_size
        )
        block = group_indices(rows, config.group_size)
        return QuantizedMatrix(
            numbers[inverse_order], scale, zero, block[inverse_order]
        )

    def _compute_hessian(self) -> Array:
        """Return the damped Hessian of the squared output error; 1 for zero inputs."""
        hessian = self._gram_sum * (2 / max(self.count, 1))
        diagonal = np.einsum("ii->i", hessian)  # a view
        diagonal[diagonal == 0] = 1
        diagonal += self._config.hessian_damping * diagonal.mean()
        return hessian

    def _compute_factor(self, hessian: Array) -> Array:
        """Return U with U' U = 1 / hessian; its rows compensate earlier errors."""
        try:
            return np.linalg.cholesky(np.linalg.inv(hessian)).T
        except np.linalg.LinAlgError:
            raise ArgumentError(
                "GPTQ: the calibration inputs are linearly dependent, so their "
                "Hessian has no inverse; expected a larger hessian_damping or more "
                f"samples; received hessian_damping={self._config.hessian_damping}, "
                f"{self.count} rows of {len(hessian)} inputs"
            ) from None


def _quantize_rows(
    matrix: Array, factor: Array, rounding: Rounding, group_size: int
) -> tuple[Array, Array, Array]:
    """Return integers, scale and zero point.

    Args:
        matrix: (rows, columns); modified in place.
        factor: see `GPTQ._compute_factor`.
        rounding: the rounding rule of a group.
        group_size: rows of a group; -1 for all.
    """
    rows = len(matrix)
    size = group_size if group_size > 0 else rows
    numbers = np.zeros(matrix.shape, "uint8")
    parameters: list[tuple[Array, Array]] = []
    for start in range(0, rows, _BLOCK_SIZE):
        end = min(start + _BLOCK_SIZE, rows)
        row_block = matrix[start:end]
        errors = np.zeros_like(row_block)
        for i in range(start, end):
            if i % size == 0:
                parameters.append(rounding.compute_scale(matrix[i : i + size]))
            scale, zero = parameters[-1]
            row = row_block[i - start]
            numbers[i] = rounding.quantize(row, scale, zero)
            error = (row - (numbers[i] - zero) * scale) / factor[i, i]
            errors[i - start] = error
            row_block[i - start :] -= np.outer(factor[i, i:end], error)
        matrix[end:] -= factor[start:end, end:].T @ errors
    scale, zero = (np.stack(column) for column in zip(*parameters, strict=True))
    return numbers, scale, zero.astype("uint8")
