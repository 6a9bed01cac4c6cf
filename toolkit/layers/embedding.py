"""Embedding: a look-up in a table of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.arguments import Positive
from toolkit.console.frames import warn
from toolkit.core.variable import Variable
from toolkit.errors import UnsupportedError
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.whole import ScaleLayout
from toolkit.layers.config import renamed
from toolkit.layers.weights import declare_weight, positive
from toolkit.ops.encode import whole_indices
from toolkit.type_aliases import (
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    RegularizerLike,
)


class Embedding(QuantizableLayer):
    """A table of vectors: `embeddings[inputs]`.

    Args:
        input_dim: number of rows; indices are in [0, input_dim).
        output_dim: extent of each vector.
        embeddings_initializer: how the table, (input_dim, output_dim), starts.
        embeddings_regularizer: a penalty on the table.
        embeddings_constraint: applied to the table after each update.
        mask_zero: whether index 0 means padding: then the outputs carry a mask.
        weights: the table's first value, instead of the initializer's.
        lora_rank: rank of an adaptation of the table (see `enable_lora`), or None.
        lora_alpha: the adaptation is multiplied with `lora_alpha / lora_rank`.

    Input shape: any, of integers, or of floats that are whole numbers.
    Output shape: (*input shape, output_dim).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Embedding(1000, 64)
        >>> layer(toolkit.ops.ones((32, 10), dtype="int32")).shape
        (32, 10, 64)
    """

    _adapted = "embeddings"
    _casts_inputs = False
    _modes = ("int8", "int4")
    _warned_of_negative = False
    _embeddings: Variable
    embeddings_scale: Variable
    embeddings_initializer: Any

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: InitializerLike | None = "uniform",
        embeddings_regularizer: RegularizerLike | None = None,
        embeddings_constraint: ConstraintLike | None = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: Positive | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        renamed(self, "input_length", None, kwargs)
        super().__init__(lora_rank=lora_rank, lora_alpha=lora_alpha, **kwargs)
        self.input_dim: int = positive(self, "input_dim", input_dim)
        self.output_dim: int = positive(self, "output_dim", output_dim)
        declare_weight(
            self,
            "embeddings",
            embeddings_initializer,
            embeddings_regularizer,
            embeddings_constraint,
        )
        self.mask_zero = self._computes_mask = mask_zero
        self.supports_masking: bool = mask_zero
        # The caller's array is no configuration: files hold weights apart.
        self._arguments = {**(self._arguments or {}), "weights": None}
        if weights is not None:
            self.build(None)
            self.set_weights(weights if isinstance(weights, list) else [weights])

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self._create_adapted((self.input_dim, self.output_dim))
        self._adapt_if_asked()

    @property
    def embeddings(self) -> Any:
        """(input_dim, output_dim), with what adapts it."""
        return self._main_weight()

    def _scale_layout(self) -> ScaleLayout:
        return ScaleLayout(shared=(1,), blocks=1)

    def call(self, inputs: Any) -> Any:
        inputs = self._rows_of(inputs)
        if self._adapter is None:
            # Casting the rows costs less than casting the table.
            table = self._embeddings
            x = ops.cast(ops.take(table.read(), inputs, axis=0), table.dtype)
        else:
            x = self._adapter.rows(inputs)
        return x if dtypes.is_float(x.dtype) else ops.cast(x, self.compute_dtype)

    def _rows_of(self, inputs: Any) -> Any:
        """The inputs as indices; a fraction becomes one that lookups refuse."""
        known = getattr(inputs, "_array", None)
        if isinstance(known, np.ndarray) and not self._warned_of_negative:
            if known.size and known.min() < 0:
                self.__dict__["_warned_of_negative"] = True
                warn(
                    f"Embedding {self.name!r}: received the index {known.min()}: "
                    "negative ones count from the end of the table"
                )
        if inputs.dtype in ("int32", "int64"):
            return inputs
        return whole_indices(f"Embedding {self.name!r}", inputs, self.input_dim)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None


class ReversibleEmbedding(Embedding):
    """An Embedding that also turns vectors into scores of all rows, for logits.

    With `reverse=True`, `inputs @ transpose(embeddings)`.

    Args:
        input_dim: number of rows.
        output_dim: extent of each vector.
        tie_weights: whether the reverse uses the same table; otherwise it has one of
            its own, (output_dim, input_dim).
        embeddings_initializer: how the tables start.
        embeddings_regularizer: a penalty on the table.
        embeddings_constraint: applied to the table after each update.
        mask_zero: whether index 0 means padding: then the outputs carry a mask.
        reverse_dtype: the dtype of the reverse product; that of the inputs if None.
        logit_soft_cap: c, for scores of `c * tanh(scores / c)`; None for none.

    Call arguments:
        reverse: whether inputs are vectors, (..., output_dim), and outputs scores,
            (..., input_dim).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ReversibleEmbedding(100, 8)
        >>> vectors = layer(toolkit.ops.ones((2, 5), dtype="int32"))
        >>> layer(vectors, reverse=True).shape
        (2, 5, 100)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: InitializerLike | None = "uniform",
        embeddings_regularizer: RegularizerLike | None = None,
        embeddings_constraint: ConstraintLike | None = None,
        mask_zero: bool = False,
        reverse_dtype: DTypeLike | None = None,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.tie_weights = tie_weights
        super().__init__(
            *(input_dim, output_dim, embeddings_initializer),
            *(embeddings_regularizer, embeddings_constraint, mask_zero),
            **kwargs,
        )
        self.reverse_dtype = reverse_dtype
        self.logit_soft_cap = logit_soft_cap

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings: Variable = self.add_weight(
                (self.output_dim, self.input_dim),
                self.embeddings_initializer,
                name="reverse_embeddings",
            )

    def _accept_quantized(self, policy: Any) -> None:
        if not self.tie_weights:
            raise UnsupportedError(
                f"{self.name}: only with tie_weights=True the layer can be quantized; "
                f"received the policy {policy!r}"
            )
        super()._accept_quantized(policy)

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if not reverse:
            return super().call(inputs)
        if self._adapter is not None:
            inputs = self._adapter.rounded(inputs)
        if self.tie_weights:
            kernel = ops.transpose(ops.convert_to_tensor(self.embeddings))
        else:
            kernel = ops.convert_to_tensor(self.reverse_embeddings)
        dtype = self.reverse_dtype or self.compute_dtype
        logits = ops.matmul(ops.cast(inputs, dtype), ops.cast(kernel, dtype))
        cap = self.logit_soft_cap
        return logits if cap is None else ops.tanh(logits / cap) * cap

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Scores have no mask."""
        if dtypes.is_float(inputs.dtype):
            return None
        return super().compute_mask(inputs, mask)
