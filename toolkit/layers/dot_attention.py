"""Attention without projections: Attention and AdditiveAttention."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.layers.layer import Layer
from toolkit.layers.weights import choice, fraction
from toolkit.random.seeds import as_generator
from toolkit.type_aliases import RegularizedLayerOptions

_LARGE = {"float16": 65504.0}  # its largest value; 1e9 for the wider dtypes


class Attention(Layer):
    """Dot-product attention: `softmax(scores(query, key)) @ value`.

    With `score_mode="concat"` the scores are
    `weight * sum(tanh(scale * (query + key)))`, for each pair of query and key.

    Args:
        use_scale: whether a trained scalar multiplies the scores.
        score_mode: "dot" or "concat".
        dropout: the fraction of the attention weights to drop in training.
        seed: the seed of the dropout.

    Call arguments:
        inputs: [query, value] or [query, value, key], (batch, targets, features) and
            (batch, sources, features); the key defaults to the value.
        mask: [query mask, value mask], (batch, targets) and (batch, sources), False for
            padding; each can be None. By default the masks of the inputs.
        training: whether to apply dropout.
        return_attention_scores: whether to also return the weights, (batch, targets,
            sources).
        use_causal_mask: whether to mask the later sources of each target.

    Returns:
        (batch, targets, features of the value), with the weights if requested.

    Example:
        >>> import toolkit
        >>> query, value = toolkit.ops.ones((2, 4, 3)), toolkit.ops.ones((2, 6, 3))
        >>> toolkit.layers.Attention()([query, value]).shape
        (2, 4, 3)
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.use_scale = use_scale
        self.score_mode: str = choice(self, "score_mode", score_mode, ("dot", "concat"))
        self.dropout: float = fraction(self, "dropout", dropout)
        self.seed = seed
        if dropout > 0:
            self.seed_generator: random.SeedGenerator = as_generator(seed)

    def build(self, input_shape: Any) -> None:
        self._validate_inputs(input_shape)
        self.scale: Variable | None = None
        self.concat_score_weight: Variable | None = None
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                (), "ones", name="concat_score_weight"
            )

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._validate_inputs(inputs, mask)
        query, value, key = (*inputs, inputs[1])[:3]
        query_mask, value_mask = mask[:2] if mask else (None, None)
        scores = self._calculate_scores(query, key)
        allowed = self._calculate_score_mask(scores, value_mask, use_causal_mask)
        outputs, weights = self._apply_scores(scores, value, allowed, training)
        if query_mask is not None:
            outputs = ops.where(ops.expand_dims(query_mask, -1), outputs, 0)
        return (outputs, weights) if return_attention_scores else outputs

    def _calculate_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Compute the score of each query and key, (batch, targets, sources)."""
        if self.score_mode == "dot":
            scores = ops.matmul(query, ops.swapaxes(key, -2, -1))
            return scores if self.scale is None else scores * self.scale
        x = _pairs(query, key)
        x = x if self.scale is None else self.scale * x
        return self.concat_score_weight * ops.sum(ops.tanh(x), axis=-1)

    def _calculate_score_mask(
        self, scores: Tensor, v_mask: Tensor | None, use_causal_mask: bool
    ) -> Any:
        """Return the mask of the scores, broadcastable to them; None for no mask."""
        if not use_causal_mask:
            return v_mask
        targets, sources = scores.shape[-2:]
        causal = ops.expand_dims(ops.tri(targets, sources, dtype="bool"), 0)
        if v_mask is None:
            return causal
        return ops.logical_and(ops.expand_dims(v_mask, -2), causal)

    def _apply_scores(
        self,
        scores: Tensor,
        value: Tensor,
        scores_mask: Tensor | None = None,
        training: bool = False,
    ) -> tuple[Any, Any]:
        """Return the outputs, and the weights of the sources for each target."""
        if scores_mask is not None:
            allowed = ops.cast(scores_mask, "bool")
            allowed = ops.expand_dims(allowed, -2) if allowed.ndim == 2 else allowed
            large = _LARGE.get(scores.dtype, 1e9)
            scores = ops.where(allowed, scores, scores - large)
        weights = ops.softmax(scores, axis=-1)
        if training and self.dropout > 0:
            weights = random.dropout(weights, self.dropout, seed=self.seed_generator)
        return ops.matmul(weights, value), weights

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        self._validate_inputs(inputs, mask)
        if mask is None or mask[0] is None:
            return None
        return ops.convert_to_tensor(mask[0])

    def _validate_inputs(self, inputs: Any, mask: Any = None) -> None:
        name = type(self).__name__
        if not isinstance(inputs, list):
            raise ArgumentError(
                f"{name}: must be called on a list, [query, value] or "
                f"[query, value, key]; received {inputs}"
            )
        if len(inputs) not in (2, 3):
            raise ArgumentError(
                f"{name}: accepts an inputs list of length 2 or 3, [query, value] or "
                f"[query, value, key]; received length {len(inputs)}"
            )
        if mask is None:
            return
        if not isinstance(mask, list):
            raise ArgumentError(
                f"{name}: the layer mask must be a list, [query_mask, value_mask]; "
                f"received {mask}"
            )
        if len(mask) not in (2, 3):
            raise ArgumentError(
                f"{name}: accepts a mask list of length 2 or 3; "
                f"received length {len(mask)}"
            )


class AdditiveAttention(Attention):
    """Additive attention: `softmax(sum(scale * tanh(query + key))) @ value`.

    Args:
        use_scale: whether the scale, (features,), is trained; otherwise it is 1.
        dropout: the fraction of the attention weights to drop in training.
        seed: the seed of the dropout.

    Call arguments and result are the same as in Attention.

    Example:
        >>> import toolkit
        >>> query, value = toolkit.ops.ones((2, 4, 3)), toolkit.ops.ones((2, 6, 3))
        >>> toolkit.layers.AdditiveAttention()([query, value]).shape
        (2, 4, 3)

    Reference: https://arxiv.org/abs/1409.0473
    """

    def __init__(
        self,
        use_scale: bool = True,
        dropout: float = 0.0,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        self._validate_inputs(input_shape)
        self.scale: Variable | None = None
        if self.use_scale:
            shape = (input_shape[0][-1],)
            self.scale = self.add_weight(shape, "glorot_uniform", name="scale")

    def _calculate_scores(self, query: Tensor, key: Tensor) -> Tensor:
        x = ops.tanh(_pairs(query, key))
        return ops.sum(x if self.scale is None else self.scale * x, axis=-1)


def _pairs(query: Tensor, key: Tensor) -> Tensor:
    """Return the sum of each query and key, (batch, targets, sources, features)."""
    return ops.expand_dims(query, -2) + ops.expand_dims(key, -3)
