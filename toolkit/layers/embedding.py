"""Embedding: a lookup in a table of vectors."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from toolkit import dtypes, ops
from toolkit.arguments import Positive
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import OutOfRangeError
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.adapters.whole import IntegerWeight, ScaleLayout
from toolkit.layers.config import renamed
from toolkit.layers.weights import declare_weight, positive
from toolkit.ops.encode import whole_indices
from toolkit.ops.index import lookup, reject_negative
from toolkit.type_aliases import (
    ConstraintLike,
    DTypeLike,
    EmbeddingOptions,
    InitializerLike,
    RegularizerLike,
)

_REVERSE = "reverse_embeddings"


class Embedding(QuantizableLayer):
    """Lookup in a table of vectors: `embeddings[inputs]`.

    Args:
        input_dim: the number of rows; indices are in [0, input_dim).
        output_dim: the size of each vector.
        embeddings_initializer: initializer of the table, (input_dim, output_dim).
        embeddings_regularizer: regularizer of the table.
        embeddings_constraint: constraint of the table, applied after each update.
        mask_zero: whether index 0 means padding: then the outputs have a mask.
        weights: the initial value of the table; it replaces the initializer.
        lora_rank: rank of a LoRA adaptation of the table (see `enable_lora`), or None.
        lora_alpha: the adaptation is scaled by `lora_alpha / lora_rank`.

    Input shape: any, of integers, or of floats with integer values.
    Output shape: (*input shape, output_dim).

    Raises:
        OutOfRangeError: in a call, for an index that is not in [0, input_dim).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Embedding(1000, 64)
        >>> layer(toolkit.ops.ones((32, 10), dtype="int32")).shape
        (32, 10, 64)
    """

    _adapted = "embeddings"
    _casts_inputs = False
    _modes = ("int8", "int4")
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
        **kwargs: Unpack[EmbeddingOptions],
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
        # The config does not contain the caller's array: files store weights
        # separately.
        self._arguments = {**(self._arguments or {}), "weights": None}
        if weights is not None:
            self.build(None)
            self.set_weights(weights if isinstance(weights, list) else [weights])

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self._create_adapted((self.input_dim, self.output_dim))
        table = getattr(self, "_embeddings", None)
        if table is not None:  # otherwise the table has integers
            table.is_table = True
        self._adapt_if_asked()

    @property
    def embeddings(self) -> Any:
        """Return the table, (input_dim, output_dim), including the adapter."""
        return self._main_weight()

    def _scale_layout(self) -> ScaleLayout:
        return ScaleLayout(shared=(1,), blocks=1)

    def call(self, inputs: Any) -> Tensor:
        inputs = self._rows_of(inputs)
        if self._adapter is None:
            # Casting the rows costs less than casting the table.
            table = self._embeddings
            rows = lookup(table.read(), inputs)
            x = ops.cast(rows, table.dtype)
        else:
            x = self._adapter.rows(inputs)
        return x if dtypes.is_float(x.dtype) else ops.cast(x, self.compute_dtype)

    def _rows_of(self, inputs: Tensor) -> Tensor:
        """Return the inputs as indices; lookups reject fractions and negative ones."""
        array = getattr(inputs, "_array", None)
        if isinstance(array, np.ndarray):
            low, high = (array.min(), array.max()) if array.size else (0, 0)
            if low < 0 or high >= self.input_dim:
                fix = f"create the layer with input_dim={int(high) + 1} or more"
                raise OutOfRangeError(
                    f"Embedding {self.name!r}: expected indices in "
                    f"[0, {self.input_dim}); received {low if low < 0 else high:g}; "
                    f"{'map the inputs to indices from 0 on' if low < 0 else fix}"
                )
        if inputs.dtype not in ("int32", "int64"):
            name = f"Embedding {self.name!r}"
            inputs = whole_indices(name, inputs, self.input_dim)
        if isinstance(array, np.ndarray):
            return inputs
        return reject_negative(inputs, self.input_dim)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None


class ReversibleEmbedding(Embedding):
    """Embedding that also maps vectors to logits of all rows.

    With `reverse=True` it returns `inputs @ transpose(embeddings)`.

    Args:
        input_dim: the number of rows.
        output_dim: the size of each vector.
        tie_weights: whether the reverse product uses the same table; otherwise it has a
            separate one, (output_dim, input_dim).
        embeddings_initializer: initializer of the tables.
        embeddings_regularizer: regularizer of the table.
        embeddings_constraint: constraint of the table, applied after each update.
        mask_zero: whether index 0 means padding: then the outputs have a mask.
        reverse_dtype: the dtype of the reverse product; the dtype of the inputs if
            None.
        logit_soft_cap: c in `c * tanh(scores / c)`; None for no cap.

    Call arguments:
        reverse: whether inputs are vectors, (..., output_dim), and outputs are logits,
            (..., input_dim).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ReversibleEmbedding(100, 8)
        >>> vectors = layer(toolkit.ops.ones((2, 5), dtype="int32"))
        >>> layer(vectors, reverse=True).shape
        (2, 5, 100)
    """

    _reverse: Weight | None = None  # the quantized reverse table
    _reverse_embeddings: Variable

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
        **kwargs: Unpack[EmbeddingOptions],
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
        if self.tie_weights:
            return
        shape = (self.output_dim, self.input_dim)
        if self.quantization_mode is not None:
            self._create_whole(self._whole_reverse(), shape)
        else:
            start = self.embeddings_initializer
            self._reverse_embeddings = self.add_weight(shape, start, name=_REVERSE)

    @property
    def reverse_embeddings(self) -> Variable:
        """Return the reverse table, (output_dim, input_dim); integers if quantized.

        Raises:
            AttributeError: the weights are tied.
        """
        return self._reverse_embeddings

    def _whole_reverse(self) -> IntegerWeight:
        """Return the reverse table in 8 or 4 bits."""
        return self._integer_weight(ScaleLayout(shared=(0,), packed=0), _REVERSE)

    def _quantize_weight(self) -> None:
        super()._quantize_weight()
        if not self.tie_weights:
            reverse = self._whole_reverse()
            values = reverse.quantized(self._reverse_embeddings.value)
            self._replace_weight(reverse, values)

    def _adapt_with(self, weight: Weight) -> None:
        if weight.name == _REVERSE:
            self._reverse = weight
        else:
            super()._adapt_with(weight)

    def _own_variables(self) -> list[Variable]:
        """Return an Embedding's variables, then those for a quantized reverse table."""
        variables = super()._own_variables()
        if self._reverse is None:
            return variables
        return sorted(
            variables, key=lambda variable: variable.name.startswith(_REVERSE)
        )

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if not reverse:
            return super().call(inputs)
        dtype = self.reverse_dtype or self.compute_dtype

        def product(x: Tensor, table: Any) -> Tensor:
            table = ops.convert_to_tensor(table)
            if x.dtype != "int8":
                x, table = ops.cast(x, dtype), ops.cast(table, dtype)
            return ops.matmul(x, ops.transpose(table) if self.tie_weights else table)

        if self.tie_weights:
            weight = self._adapter or Weight(self)
        else:
            weight = self._reverse or Weight(self, _REVERSE)
        logits = ops.cast(weight.multiply(product, inputs), dtype)
        cap = self.logit_soft_cap
        return logits if cap is None else ops.tanh(logits / cap) * cap

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return None for logits, which have no mask.

        Args:
            inputs: the inputs of the call.
            mask: the mask of the inputs, or None.
        """
        if dtypes.is_float(inputs.dtype):
            return None
        return super().compute_mask(inputs, mask)
