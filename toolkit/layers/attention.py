"""Multi-head attention."""

from __future__ import annotations

from toolkit.layers.einsum_dense import EinsumDense
from toolkit.layers.projected_attention import ProjectedAttention


class MultiHeadAttention(ProjectedAttention):
    """Multi-head attention.

    For each head, `softmax(q @ k.T / sqrt(key_dim)) @ v`, where q, k and v are learned
    projections of query, key and value; a last projection joins the heads.

    Args:
        num_heads: the number of heads.
        key_dim: the number of features of q and k per head.
        value_dim: the number of features of v per head; key_dim if None.
        dropout: the fraction of the attention weights to drop in training.
        use_bias: whether the projections have biases.
        output_shape: extents of the last output axes; the query's features if None.
        attention_axes: the attention axes of the query; all axes between batch and
            features if None.
        sliding_window: attend only to positions closer than this distance; None: to all
            positions.
        flash_attention: True raises an error if there is no such kernel.
        kernel_initializer: initializer of the projections.
        bias_initializer: initializer of the biases.
        kernel_regularizer: regularizer of the projections.
        bias_regularizer: regularizer of the biases.
        activity_regularizer: regularizer of the outputs of each projection.
        kernel_constraint: constraint of the projections, applied after each update.
        bias_constraint: constraint of the biases, applied after each update.
        use_gate: whether to multiply the heads by a sigmoid of a projection of the
            query.
        seed: the seed of the dropout.

    Call arguments:
        query: (batch, targets, features).
        value: (batch, sources, features).
        key: (batch, sources, features); the value if None.
        query_mask, value_mask, key_mask: (batch, targets) or (batch, sources), False
            for padding; by default the masks of the tensors.
        attention_mask: (batch, targets, sources), False where a target must not attend.
        return_attention_scores: whether to also return the weights, (batch, heads,
            targets, sources).
        training: whether to apply dropout.
        use_causal_mask: whether to mask the later sources of each target.

    Returns:
        (batch, targets, features of the query), or the extents of `output_shape`; with
        the weights if requested.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.MultiHeadAttention(num_heads=2, key_dim=4)
        >>> x = toolkit.ops.ones((2, 8, 16))
        >>> layer(x, x, use_causal_mask=True).shape
        (2, 8, 16)

    Reference: https://arxiv.org/abs/1706.03762
    """

    @property
    def query_dense(self) -> EinsumDense:
        """Return the projection of the query."""
        return self._query_dense

    @property
    def key_dense(self) -> EinsumDense:
        """Return the projection of the keys."""
        return self._key_dense

    @property
    def value_dense(self) -> EinsumDense:
        """Return the projection of the values."""
        return self._value_dense

    @property
    def output_dense(self) -> EinsumDense:
        """Return the projection of the joined heads."""
        return self._output_dense
