"""The base class of attention between projections: equations, masks and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from operator import attrgetter, index
from string import ascii_lowercase
from typing import Any, Unpack

from toolkit import constraints, initializers, ops, regularizers
from toolkit.arguments import Axes, Seed, is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.activation import Softmax
from toolkit.layers.einsum_dense import EinsumDense
from toolkit.layers.layer import Layer
from toolkit.layers.regularization import Dropout
from toolkit.layers.weights import fraction, positive
from toolkit.type_aliases import (
    ConstraintLike,
    InitializerLike,
    LayerOptions,
    RegularizerLike,
)


def projection_equation(free: int, bound: int, produced: int) -> tuple[str, str, int]:
    """Return a projection's einsum, the axes of its bias, and the rank of its result.

    Args:
        free: axes between the batch and the summed axes.
        bound: the summed axes, at the end.
        produced: the axes that replace them.
    """
    letters = iter(ascii_lowercase)
    batch_letters = "".join(next(letters) for _ in range(1 + free))
    summed = "".join(next(letters) for _ in range(bound))
    new = "".join(next(letters) for _ in range(produced))
    return (
        f"{batch_letters}{summed},{summed}{new}->{batch_letters}{new}",
        new,
        len(batch_letters + new),
    )


def attention_equations(rank: int, axes: tuple[int, ...]) -> tuple[str, str]:
    """Return the einsums of scores, (keys, queries), and of outputs, (scores, values).

    Args:
        rank: the rank of projected queries, keys and values: (batch, ..., heads,
            features).
        axes: the attention axes.
    """
    target = ascii_lowercase[:rank]
    new = iter(ascii_lowercase[rank:])
    source = "".join(next(new) if i in axes else x for i, x in enumerate(target))
    batch = "".join(x for i, x in enumerate(target[:-1]) if i not in axes)
    scores = batch + "".join(side[i] for side in (target, source) for i in axes)
    return f"{source},{target}->{scores}", f"{scores},{source}->{target}"


def _get_private_attribute(name: str) -> Any:
    """Return a property that aliases an attribute, for subclasses written for Keras."""
    return property(attrgetter(name), lambda self, value: setattr(self, name, value))


class ProjectedAttention(Layer):
    """Base class of multi-head attention, with or without shared keys."""

    _num_heads, _key_dim, _value_dim = map(
        _get_private_attribute, ("num_heads", "key_dim", "value_dim")
    )
    _use_bias, _dropout = (
        _get_private_attribute("use_bias"),
        _get_private_attribute("dropout"),
    )
    _kernel_initializer = _get_private_attribute("kernel_initializer")
    _bias_initializer = _get_private_attribute("bias_initializer")
    _kernel_regularizer = _get_private_attribute("kernel_regularizer")
    _bias_regularizer = _get_private_attribute("bias_regularizer")
    _kernel_constraint = _get_private_attribute("kernel_constraint")
    _bias_constraint = _get_private_attribute("bias_constraint")
    _activity_regularizer = property(
        lambda self: self._regularization["activity_regularizer"]
    )

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: Any = None,
        attention_axes: Axes = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        activity_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        use_gate: bool = False,
        seed: Seed = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads: int = positive(self, "num_heads", num_heads)
        self.key_dim: int = positive(self, "key_dim", key_dim)
        self.value_dim: int = positive(
            self, "value_dim", key_dim if value_dim is None else value_dim
        )
        self.dropout: float = fraction(self, "dropout", dropout)
        self.use_bias = use_bias
        self.use_gate = use_gate
        self._output_shape = _as_extents(output_shape)
        single = is_int(attention_axes)
        self.attention_axes: Axes = (attention_axes,) if single else attention_axes
        self._attention_axes: Any = self.attention_axes
        if sliding_window is not None:
            positive(self, "sliding_window", sliding_window)
        self.sliding_window = sliding_window
        self.flash_attention = flash_attention
        self._source_heads = self.num_heads
        if flash_attention and dropout > 0:
            raise ArgumentError(
                f"{type(self).__name__}: Dropout is not supported when flash attention "
                f"is enabled; received dropout={dropout}"
            )
        self.kernel_initializer: Any = initializers.get(kernel_initializer)
        self.bias_initializer: Any = initializers.get(bias_initializer)
        self._regularization = {
            "kernel_regularizer": regularizers.get(kernel_regularizer),
            "bias_regularizer": regularizers.get(bias_regularizer),
            "activity_regularizer": regularizers.get(activity_regularizer),
            "kernel_constraint": constraints.get(kernel_constraint),
            "bias_constraint": constraints.get(bias_constraint),
        }
        for name, value in self._regularization.items():
            if name != "activity_regularizer":  # the projections have it
                setattr(self, name, value)
        self.seed = seed

    def build(  # type: ignore[override]
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        if len(query_shape) != len(value_shape):
            raise ShapeError(
                "MultiHeadAttention: expected query and value with the same axes, "
                "(batch, steps, features); received shapes "
                f"{tuple(query_shape)}, {tuple(value_shape)}; a recurrent layer before "
                "this one needs return_sequences=True"
            )
        if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
            raise ShapeError(
                "MultiHeadAttention: all but the last extents of key and value must be "
                f"equal; received shapes {tuple(key_shape)}, {tuple(value_shape)}"
            )
        heads, sources = self.num_heads, self._source_heads
        values = (heads, self.value_dim)
        self._query_dense = self._projection(
            "query", query_shape, (heads, self.key_dim)
        )
        self._key_dense = self._projection("key", key_shape, (sources, self.key_dim))
        if self.use_gate:
            self._gate_dense = self._projection(
                "gate", query_shape, values, activation="sigmoid"
            )
        self._value_dense = self._projection(
            "value", value_shape, (sources, self.value_dim)
        )
        self._build_attention(len(query_shape) + 1)
        joined = (*query_shape[:-1], *values)
        features = self._output_shape or (query_shape[-1],)
        self._output_dense = self._projection(
            "attention_output", joined, features, bound=2
        )

    # Subclasses written for Keras call or override the next two methods.

    def _build_attention(self, rank: int) -> None:
        """Create the equations and layers of attention for projections of this rank."""
        axes = self.attention_axes or range(1, rank - 2)
        axes = tuple(a if a >= 0 else rank - 1 + a for a in axes)
        self._attention_axes = axes
        self._dot_product_equation, self._combine_equation = attention_equations(
            rank, axes
        )
        self._softmax = Softmax(
            axis=tuple(range(-len(axes), 0)), dtype=self.dtype_policy
        )
        self._dropout_layer = Dropout(
            self.dropout, dtype=self.dtype_policy, seed=self.seed
        )

    def _get_common_kwargs_for_sublayer(self) -> dict[str, Any]:
        """Return the arguments of all projections, with a new initializer for each."""
        return {
            "kernel_initializer": _clone(self.kernel_initializer),
            "bias_initializer": _clone(self.bias_initializer),
            "dtype": self.dtype_policy,
            **self._regularization,
        }

    def _projection(
        self,
        name: str,
        shape: Sequence[int | None],
        produced: tuple[int, ...],
        bound: int = 1,
        **options: Any,
    ) -> EinsumDense:
        """Create and build a projection of the last `bound` axes."""
        free = len(shape) - 1 - bound
        equation, bias_axes, rank = projection_equation(free, bound, len(produced))
        layer = EinsumDense(
            equation,
            output_shape=[None] * (rank - 1 - len(produced)) + list(produced),
            bias_axes=bias_axes if self.use_bias else None,
            name=name,
            **self._get_common_kwargs_for_sublayer(),
            **options,
        )
        layer.supports_masking = True
        layer.build(shape)
        return layer

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        key = value if key is None else key
        mask = self._mask(
            query, value, query_mask, value_mask, key_mask, attention_mask
        )
        gate = self._gate_dense(query) if self.use_gate else None
        options = {}
        if use_causal_mask and self._knows_causal:
            options["use_causal_mask"] = True
        elif use_causal_mask:
            mask = _with_causal(mask, query, value)
        x, scores = self._compute_attention(
            self._query_dense(query),
            self._for_each_head(self._key_dense(key)),
            self._for_each_head(self._value_dense(value)),
            mask,
            training,
            return_attention_scores,
            **options,
        )
        x = self._output_dense(x if gate is None else x * gate)
        return (x, scores) if return_attention_scores else x

    @property
    def _knows_causal(self) -> bool:
        """Return whether `_compute_attention` (or its override) takes causal masks."""
        return "use_causal_mask" in signature(self._compute_attention).parameters

    def _for_each_head(self, x: Tensor) -> Tensor:
        """Repeat projected keys or values for query heads that share them."""
        times = self.num_heads // self._source_heads
        return x if times == 1 else ops.repeat(x, times, axis=-2)

    def get_config(self) -> dict[str, Any]:
        penalty = self._regularization["activity_regularizer"]
        overrides = {"activity_regularizer": regularizers.serialize(penalty)}
        return super().get_config() | (overrides if penalty else {})

    def _mask(
        self,
        query: Tensor,
        value: Tensor,
        query_mask: Any,
        value_mask: Any,
        key_mask: Any,
        attention_mask: Any,
    ) -> Any:
        """Combine all masks but the causal one: (batch, targets, sources), or None."""
        masks = []
        if query_mask is not None:
            masks.append(ops.expand_dims(ops.cast(query_mask, "bool"), -1))
        for mask in (value_mask, key_mask):
            if mask is not None:
                masks.append(ops.expand_dims(ops.cast(mask, "bool"), -2))
        if self.sliding_window is not None:
            distance = ops.abs(_distances(query, value))
            masks.append(ops.less(distance, self.sliding_window))
        if attention_mask is not None:
            masks.append(ops.cast(attention_mask, "bool"))
        return _all_of(masks)

    def _compute_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> tuple[Any, Any]:
        """Compute attention of projected tensors: the outputs, and weights or None."""
        scale = 1.0 / math.sqrt(self.key_dim)
        drops = self.dropout > 0 and training
        if not (drops or return_attention_scores or query.ndim != 4):
            mask = self._with_head_axes(attention_mask, 4)
            x = ops.dot_product_attention(
                query,
                key,
                value,
                mask=mask,
                scale=scale,
                is_causal=use_causal_mask,
                flash_attention=self.flash_attention,
            )
            return x, None
        if self.flash_attention:
            raise ArgumentError(
                "MultiHeadAttention: flash_attention cannot return attention scores"
            )
        if use_causal_mask:
            attention_mask = _with_causal(attention_mask, query, value)
        scores = ops.einsum(self._dot_product_equation, key, query * scale)
        scores = self._masked_softmax(scores, attention_mask)
        dropped = self._dropout_layer(scores, training=training)
        return ops.einsum(self._combine_equation, dropped, value), scores

    def _masked_softmax(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the softmax of scores, 0 where the mask is False."""
        return self._softmax(scores, mask=self._with_head_axes(mask, scores.ndim))

    def _with_head_axes(self, mask: Any, rank: int) -> Any:
        """Insert axes of extent 1 for the heads into a mask."""
        while mask is not None and mask.ndim < rank:
            mask = ops.expand_dims(mask, -2 * len(self._attention_axes) - 1)
        return mask


def _clone(initializer: Any) -> Any:
    """Return an equal initializer, so that each projection has different values."""
    if not hasattr(initializer, "get_config"):
        return initializer
    return type(initializer).from_config(initializer.get_config())


def _as_extents(output_shape: Any) -> tuple[int, ...]:
    """Return the extents of the last axes; () for the extents of the query."""
    shape = (output_shape,) if hasattr(output_shape, "__index__") else output_shape
    try:
        return tuple(map(index, shape or ()))
    except TypeError:
        raise ArgumentError(
            "MultiHeadAttention: Invalid `output_shape`: expected an integer or some; "
            f"received {output_shape!r}"
        ) from None


def _with_causal(mask: Tensor | None, query: Tensor, value: Tensor) -> Tensor:
    """Combine `mask` with a causal mask."""
    causal = ops.greater_equal(_distances(query, value), 0)
    return _all_of([causal] if mask is None else [mask, causal])


def _distances(query: Tensor, value: Tensor) -> Tensor:
    """Return the distances target - source, (1, targets, sources)."""
    targets = ops.arange(query.shape[1], dtype="int32")
    sources = ops.arange(value.shape[1], dtype="int32")
    return ops.reshape(targets, (1, -1, 1)) - ops.reshape(sources, (1, 1, -1))


def _all_of(masks: list[Any]) -> Any:
    """Return the logical AND of masks; None if there are none."""
    result = None
    for mask in masks:
        result = mask if result is None else ops.logical_and(result, mask)
    return result
