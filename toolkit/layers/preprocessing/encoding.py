"""CategoryEncoding, and the encoding of indices for all categorical layers."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.layers.preprocessing.host import refuse_sparse
from toolkit.layers.weights import positive
from toolkit.type_aliases import RegularizedLayerOptions, Shape, TensorLike

MODES = ("int", "one_hot", "multi_hot", "count")


def encode(
    indices: TensorLike, mode: str, depth: int, dtype: str, weights: Any = None
) -> Any:
    """Encode indices: unchanged, one-hot, multi-hot or as counts.

    Args:
        indices: (), (n,), (batch, n) or, for codes, more axes; indices outside of [0,
            depth) are ignored.
        mode: "int", "one_hot", "multi_hot" or "count".
        depth: the number of classes.
        dtype: the dtype of the result.
        weights: the weight of each index, in the shape of `indices`.
    """
    if mode == "int":
        return ops.cast(indices, dtype)
    indices = convert(indices)
    if indices.ndim == 0:
        indices = ops.expand_dims(indices, -1)
    if mode == "one_hot":
        if indices.ndim > 1 and indices.shape[-1] == 1:
            indices = ops.squeeze(indices, -1)
        return ops.one_hot(indices, depth, dtype=dtype)
    if indices.ndim > 2:
        codes = ops.one_hot(indices, depth, dtype=dtype)
        if weights is not None:
            codes = codes * ops.expand_dims(ops.cast(weights, dtype), -1)
        return ops.sum(codes, axis=1) if mode == "count" else ops.max(codes, axis=1)
    indices = ops.cast(indices, "int64" if "64" in indices.dtype else "int32")
    is_valid = ops.logical_and(indices >= 0, indices < depth)
    columns = ops.where(is_valid, indices, depth)
    counts = ops.bincount(columns, weights=weights, minlength=depth + 1)[..., :depth]
    return ops.cast(counts > 0 if mode == "multi_hot" else counts, dtype)


def encoded_shape(shape: Any, mode: str, depth: int | None) -> tuple[Any, ...]:
    """Return the shape of `encode`'s result for indices of this shape."""
    shape = tuple(shape)
    if mode == "int":
        return shape
    if mode == "one_hot":
        single = len(shape) > 1 and shape[-1] == 1
        return (*(shape[:-1] if single else shape or ()), depth)
    return (*shape[:-1], depth) if len(shape) < 3 else (shape[0], *shape[2:], depth)


def checked_mode(layer: Any, mode: str, choices: Any = MODES) -> str:
    """Check an output mode and convert two older names."""
    mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(mode, mode)
    if mode not in choices:
        raise ArgumentError(
            f"{type(layer).__name__}: Invalid value for argument `output_mode`. "
            f"Expected one of {tuple(choices)}. Received: {mode!r}"
        )
    return mode


class CategoryEncoding(DataLayer):
    """Encoding of integer categories.

    Args:
        num_tokens: the number of categories. Inputs are integers in [0, num_tokens).
            Other values raise an error in an eager call; in a compiled function, as in
            `fit` and `predict`, they are ignored.
        output_mode: "one_hot": a code for each integer; "multi_hot": one code for all
            integers in the last axis; "count": the number of occurrences of each.
        sparse: must be False: sparse tensors are not supported.

    Call arguments:
        inputs: integers, (n,) or (batch, n).
        count_weights: in mode "count", the weight of each integer; same shape.

    Output shape: (..., num_tokens).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.CategoryEncoding(3, output_mode="count")
        >>> layer([[0, 1, 1], [2, 0, 0]]).tolist()
        [[1.0, 2.0, 0.0], [2.0, 0.0, 1.0]]
    """

    _casts_inputs = False

    def __init__(
        self,
        num_tokens: int | None = None,
        output_mode: str = "multi_hot",
        sparse: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        refuse_sparse(self, sparse)
        if num_tokens is None:
            raise ArgumentError(
                "CategoryEncoding: num_tokens must be set to use this layer; "
                "IntegerLookup finds the number of categories by itself"
            )
        if num_tokens < 1:
            raise ArgumentError(
                f"CategoryEncoding: `num_tokens` must be >= 1; received {num_tokens!r}"
            )
        self.num_tokens: int = positive(self, "num_tokens", num_tokens)
        self.output_mode: str = checked_mode(self, output_mode, MODES[1:])
        self.sparse = False

    def call(self, inputs: Any, count_weights: Any = None) -> Tensor:
        if count_weights is not None and self.output_mode != "count":
            raise ArgumentError(
                "CategoryEncoding: `count_weights` is not used when `output_mode` is "
                f"{self.output_mode!r}"
            )
        self._check_range(inputs)
        return encode(
            inputs, self.output_mode, self.num_tokens, self.compute_dtype, count_weights
        )

    def _check_range(self, inputs: Tensor) -> None:
        """Raise if values are known and out of range."""
        array = getattr(inputs, "_array", None)
        if not isinstance(array, np.ndarray) or not array.size:
            return
        low, high = array.min(), array.max()
        if low < 0 or high >= self.num_tokens or (array % 1 != 0).any():
            raise ArgumentError(
                f"CategoryEncoding {self.name!r}: Input values must be in the range 0 "
                f"<= values < num_tokens with num_tokens={self.num_tokens}, and whole "
                f"numbers; received values from {low} to {high}"
            )

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return encoded_shape(input_shape, self.output_mode, self.num_tokens)
