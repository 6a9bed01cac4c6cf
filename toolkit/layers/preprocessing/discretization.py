"""Discretization: maps continuous features to bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops, settings
from toolkit.console.frames import warn
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.layers.preprocessing.encoding import (
    MODES,
    checked_mode,
    encode,
    encoded_shape,
)
from toolkit.layers.preprocessing.host import (
    batches_of,
    refuse_sparse,
)
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import Array, PolicyLike, Shape


class Discretization(DataLayer):
    """Layer that returns the bin of each value.

    Args:
        bin_boundaries: ascending boundaries; n of them define n + 1 bins, each with its
            lower boundary.
        num_bins: the number of bins with about equal counts that `adapt` computes.
        epsilon: the precision of quantiles: smaller is slower and more exact.
        output_mode: "int", or "one_hot", "multi_hot", "count" as in CategoryEncoding.
        sparse: must be False: sparse tensors are not supported.
        name: the name; generated from the class name if None.
        dtype: the dtype of the codes, or a policy; None for the global policy.

    Output shape: same as the inputs, or (..., bins) for codes.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Discretization([0.0, 1.0, 2.0])
        >>> layer([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]]).tolist()
        [[0, 2, 3, 1], [1, 3, 2, 1]]
    """

    _casts_inputs = False
    bin_boundaries: Any
    summary: Array

    def __init__(
        self,
        bin_boundaries: Any = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        dtype: PolicyLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        refuse_sparse(self, sparse)
        self.output_mode: str = checked_mode(self, output_mode, MODES)
        if num_bins is not None and num_bins < 0:
            raise ArgumentError(
                "Discretization: `num_bins` must be greater than or equal to 0; "
                f"received {num_bins}"
            )
        if (num_bins is None) == (bin_boundaries is None):
            reason = (
                "not both be set" if num_bins is not None else "be set (one of them)"
            )
            raise ArgumentError(
                f"Discretization: `num_bins` and `bin_boundaries` should {reason}; "
                f"received num_bins={num_bins}, bin_boundaries={bin_boundaries}"
            )
        if bin_boundaries is not None and np.any(np.diff(bin_boundaries) < 0):
            raise ArgumentError(
                "Discretization: expected `bin_boundaries` that ascend; received "
                f"{bin_boundaries}"
            )
        if bin_boundaries is not None:  # plain numbers, which JSON supports
            bin_boundaries = np.asarray(bin_boundaries).tolist()
        self.__dict__["bin_boundaries"] = bin_boundaries
        self.num_bins = num_bins
        self.epsilon = epsilon
        self.sparse = False
        self.reset_state()

    @property
    def input_dtype(self) -> str:
        """Return the dtype of the inputs."""
        return settings.floatx()

    @property
    def output_dtype(self) -> str:
        """Return the dtype of the outputs."""
        return "int32" if self.output_mode == "int" else self.compute_dtype

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Compute the boundaries of bins with about equal counts.

        Args:
            data: an array or tensor, or an iterable of batches: x or (x, y).
            steps: the number of batches; None for all.
        """
        if self.num_bins is None:
            raise ArgumentError(
                "Discretization: cannot adapt a layer with an argument "
                "`bin_boundaries`; use `num_bins` instead"
            )
        self.reset_state()
        is_array = hasattr(data, "__array__") or hasattr(data, "shape")
        for batch in [data] if is_array else batches_of(data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Accumulate one batch of values.

        Args:
            data: numbers of any shape.
        """
        values = np.asarray(data, "float32")
        if np.isnan(values).any():
            warn(
                f"Discretization {self.name!r}: the data of `adapt` contains NaN, "
                "which counts as the largest value. Replace missing values, as with "
                "fillna"
            )
        batch_summary = summarize(values, self.epsilon)
        self.summary = merge_summaries(batch_summary, self.summary, self.epsilon)

    def finalize_state(self) -> None:
        """Compute the boundaries from the accumulated values."""
        if self.num_bins is not None:
            limits = compress_summary(self.summary, 1.0 / self.num_bins)[0, :-1]
            self.__dict__["bin_boundaries"] = limits.tolist()
            self._mark_changed()

    def reset_state(self) -> None:
        """Reset the accumulated values."""
        self.summary = np.zeros((2, 0), "float32")

    def call(self, inputs: Any) -> Tensor:
        if self.bin_boundaries is None:
            raise NotBuiltError(
                "Discretization: pass `bin_boundaries`, or call `adapt` before the "
                "layer is used"
            )
        limits = np.asarray(self.bin_boundaries, "float32")
        bins = ops.digitize(ops.cast(inputs, settings.floatx()), limits)
        return encode(bins, self.output_mode, len(limits) + 1, self.output_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        limits = self.bin_boundaries
        depth = self.num_bins if limits is None else len(limits) + 1
        return encoded_shape(input_shape, self.output_mode, depth)

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), self.output_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bin_boundaries": self.bin_boundaries}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Discretization:
        config = dict(config)
        config.pop("trainable", None)  # early files contain it
        adapted = config.get("num_bins") is not None
        limits = config.pop("bin_boundaries", None) if adapted else None
        layer = super().from_config(config)
        if limits is not None:
            layer.__dict__["bin_boundaries"] = limits
        return layer


def summarize(values: Array, epsilon: float) -> Array:
    """Summarize values by quantiles and the number of values for each: (2, n)."""
    values = np.sort(values, axis=None)
    step = max(values.size * epsilon, 1)
    quantiles = values[int(step - 1) :: int(step)]
    return np.stack([quantiles, np.full_like(quantiles, step)])


def merge_summaries(first: Array, second: Array, epsilon: float) -> Array:
    """Merge two summaries."""
    merged = np.concatenate([first, second], axis=1)
    return compress_summary(merged[:, np.argsort(merged[0])], epsilon)


def compress_summary(summary: Array, epsilon: float) -> Array:
    """Compress a summary to at most about 1 / epsilon quantiles."""
    if summary.shape[1] * epsilon < 1:
        return summary
    fractions = epsilon + np.arange(0.0, 1.0, epsilon)
    total = summary[1].cumsum()
    shares = total / total[-1]
    quantiles = np.interp(fractions, shares, summary[0])
    ends = np.interp(fractions, shares, total)
    return np.stack([quantiles, np.diff(ends, prepend=0.0)]).astype("float32")
