"""Grouped-query attention: several query heads share keys and values."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit.arguments import Seed
from toolkit.errors import ArgumentError
from toolkit.layers.projected_attention import ProjectedAttention
from toolkit.layers.weights import positive
from toolkit.type_aliases import (
    ConstraintLike,
    InitializerLike,
    LayerOptions,
    RegularizerLike,
)


class GroupedQueryAttention(ProjectedAttention):
    """MultiHeadAttention with fewer heads for key and value than for the query.

    Each key and value head serves `num_query_heads / num_key_value_heads` query heads.
    A single key and value head is multi-query attention.

    Args:
        head_dim: the number of features per head.
        num_query_heads: the number of query heads, a multiple of `num_key_value_heads`.
        num_key_value_heads: the number of key and value heads.
        dropout: the fraction of the attention weights to drop in training.
        use_bias: whether the projections have biases.
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

    The call arguments and the result are the same as in MultiHeadAttention.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GroupQueryAttention(8, 4, 2)
        >>> x = toolkit.ops.ones((2, 5, 16))
        >>> layer(x, x).shape
        (2, 5, 16)

    Reference: https://arxiv.org/abs/2305.13245
    """

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
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
        super().__init__(
            num_query_heads,
            head_dim,
            dropout=dropout,
            use_bias=use_bias,
            sliding_window=sliding_window,
            flash_attention=flash_attention,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            use_gate=use_gate,
            seed=seed,
            **kwargs,
        )
        self.head_dim: int = self.key_dim
        self.num_query_heads: int = self.num_heads
        self.num_key_value_heads: int = positive(
            self, "num_key_value_heads", num_key_value_heads
        )
        if num_query_heads % num_key_value_heads:
            raise ArgumentError(
                "GroupQueryAttention: `num_query_heads` must be divisible by "
                f"`num_key_value_heads`; received {num_query_heads} and "
                f"{num_key_value_heads}"
            )
        self._source_heads = self.num_key_value_heads
        self.num_repeats: int = num_query_heads // num_key_value_heads
        self.activity_regularizer: Any = self._regularization["activity_regularizer"]


GroupQueryAttention = GroupedQueryAttention
