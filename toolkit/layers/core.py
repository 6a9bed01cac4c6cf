"""Dense, EinsumDense and Embedding: the layers that are one product or one lookup."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from toolkit import activations, dtypes, ops
from toolkit.arguments import Positive, is_int
from toolkit.console.frames import warn
from toolkit.errors import UnsupportedError
from toolkit.layers.configuring import renamed
from toolkit.layers.einsum_shapes import analyse_einsum, expanded_equation
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.quantized import QuantizedWeight
from toolkit.layers.weights import create_weight, declare_weight, known, positive
from toolkit.ops.encode import whole_indices


class Dense(QuantizedWeight):
    """A fully connected layer: `activation(inputs @ kernel + bias)`.

    Args:
        units: extent of the outputs' last axis.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: how the kernel, (features, units), starts.
        bias_initializer: how the bias, (units,), starts.
        kernel_regularizer: a penalty on the kernel.
        bias_regularizer: a penalty on the bias.
        activity_regularizer: a penalty on the outputs.
        kernel_constraint: applied to the kernel after each update.
        bias_constraint: applied to the bias after each update.
        lora_rank: rank of an adaptation of the kernel (see `enable_lora`), or None.
        lora_alpha: the adaptation is multiplied with `lora_alpha / lora_rank`.

    Input shape: (batch, ..., features).
    Output shape: (batch, ..., units).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Dense(4, activation="relu")
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: Positive | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            activity_regularizer=activity_regularizer,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            **kwargs,
        )
        self.units: int = positive(self, "units", units)
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        features = known(self, input_shape)
        self._create_adapted((features, self.units))
        self.bias = (
            create_weight(self, "bias", (self.units,)) if self.use_bias else None
        )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: features})
        self._adapt_if_asked()

    kernel = property(QuantizedWeight._adapted_value, doc="(features, units).")

    def _shared_axes(self) -> tuple[int, ...]:
        return (0,)

    def call(self, inputs: Any) -> Any:
        x = self._product(ops.matmul, inputs)
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is None else self.activation(x)


class EinsumDense(QuantizedWeight):
    """A dense layer along any axes: `activation(einsum(inputs, kernel) + bias)`.

    Args:
        equation: such as "abc,cd->abd" or "...x,xy->...y": inputs, kernel, outputs.
        output_shape: extents of the outputs without the batch; None where they are
            those of the inputs. An integer if there is only one.
        activation: a name or a function; None for none.
        bias_axes: the letters of the outputs' axes that the bias has, "d"; None for no
            bias.
        kernel_initializer: how the kernel starts.
        bias_initializer: how the bias starts.
        kernel_regularizer: a penalty on the kernel.
        bias_regularizer: a penalty on the bias.
        kernel_constraint: applied to the kernel after each update.
        bias_constraint: applied to the bias after each update.
        lora_rank: rank of an adaptation of the kernel (see `enable_lora`), or None.
        lora_alpha: the adaptation is multiplied with `lora_alpha / lora_rank`.

    Input shape: as the first operand of the equation.
    Output shape: as the equation's result.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.EinsumDense("abc,cd->abd", (None, 64), bias_axes="d")
        >>> layer(toolkit.ops.ones((2, 32, 128))).shape
        (2, 32, 64)
    """

    _kernel: Any

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: Positive | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(lora_rank=lora_rank, lora_alpha=lora_alpha, **kwargs)
        self.equation = equation
        single = is_int(output_shape)
        self.partial_output_shape = (output_shape,) if single else tuple(output_shape)
        self.activation = activations.get(activation)
        self.bias_axes = bias_axes
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )

    def build(self, input_shape: Any) -> None:
        self._letters = expanded_equation(self.equation, len(input_shape))
        kernel_shape, bias_shape = analyse_einsum(
            self.equation, self.bias_axes, input_shape, self.partial_output_shape
        )
        self._create_adapted(kernel_shape)
        self.bias = None
        if bias_shape is not None:
            self.bias = create_weight(self, "bias", bias_shape)
        self._adapt_if_asked()

    kernel = property(QuantizedWeight._adapted_value, doc="As the second operand says.")

    def _shared_axes(self) -> tuple[int, ...]:
        _, kernel, outputs = self._letters
        return tuple(i for i, letter in enumerate(kernel) if letter not in outputs)

    def _input_axes(self) -> tuple[int, ...]:
        inputs, kernel, outputs = self._letters
        summed = set(inputs) & set(kernel) - set(outputs)
        return tuple(i for i, letter in enumerate(inputs) if letter in summed)

    def _stored_scale(self, scale: Any) -> Any:
        """As the outputs: their axes that the kernel has, and 1 for the others."""
        _, kernel, outputs = self._letters
        order = [kernel.index(letter) for letter in outputs if letter in kernel]
        shape = [scale.shape[kernel.index(x)] if x in kernel else 1 for x in outputs]
        return ops.reshape(ops.transpose(scale, self._behind(order)), shape)

    def _scale_of_weight(self, scale: Any) -> Any:
        _, kernel, outputs = self._letters
        order = [kernel.index(letter) for letter in outputs if letter in kernel]
        order = self._behind(order)
        shape = self._kept_shape(self._kernel.shape)
        back = sorted(range(len(order)), key=order.__getitem__)
        return ops.transpose(ops.reshape(scale, [shape[i] for i in order]), back)

    def _behind(self, order: list[int]) -> list[int]:
        """An order of the kernel's axes that ends with those that share a scale."""
        return [*order, *self._shared_axes()]

    def call(self, inputs: Any) -> Any:
        x = self._product(partial(ops.einsum, self.equation), inputs)
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is None else self.activation(x)


class Embedding(QuantizedWeight):
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
    _modes = ("int8",)
    _warned_of_negative = False
    _embeddings: Any
    embeddings_scale: Any
    embeddings_initializer: Any

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
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
        self.mask_zero = self.supports_masking = self._computes_mask = mask_zero
        # The caller's array is no configuration: files hold weights apart.
        self._arguments = {**(self._arguments or {}), "weights": None}
        # Indices are no floats to be cast: 16 bits could not tell them apart.
        self._input_dtype = None
        if weights is not None:
            self.build(None)
            self.set_weights(weights if isinstance(weights, list) else [weights])

    def build(self, input_shape: Any = None) -> None:
        self._create_adapted((self.input_dim, self.output_dim))
        self._adapt_if_asked()

    def _shared_axes(self) -> tuple[int, ...]:
        return (1,)

    embeddings = property(
        QuantizedWeight._adapted_value, doc="(input_dim, output_dim)."
    )

    def call(self, inputs: Any) -> Any:
        inputs = self._rows_of(inputs)
        x = ops.take(self._embeddings, inputs, axis=0)
        if self._quantized_as == "int8":
            scale = ops.take(self.embeddings_scale, inputs, axis=0)
            x = ops.divide(x, ops.expand_dims(scale, -1))
        if self.lora_enabled:
            a, b = self._lora_pair()
            scale = self.lora_alpha / self.lora_rank
            x = x + scale * ops.matmul(ops.take(a, inputs, axis=0), b)
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
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        reverse_dtype: Any = None,
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
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                (self.output_dim, self.input_dim),
                self.embeddings_initializer,
                name="reverse_embeddings",
            )

    def _shared_axes(self) -> tuple[int, ...]:
        return super()._shared_axes()

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
        inputs = self._rounded(inputs)
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
