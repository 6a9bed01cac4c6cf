"""Sums over the leaves of a batch, as the sums of gradient accumulation store them.

A distribution splits a batch into leaves, and adds the terms of the leaves along a
tree. These composites keep the terms apart, so that several steps share one exchange.
`toolkit.compiler.sharding.leaf_sums` has their rules for the ranks of a job. The bodies
are for one process without leaves.
"""

from __future__ import annotations

from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.creation import zeros
from toolkit.ops.reduce import sum
from toolkit.ops.shape import concatenate, reshape


def _first_leaf(x: Tensor, leaves: int) -> Tensor:
    first = reshape(x, (1, *x.shape))
    return concatenate([first, zeros((leaves - 1, *x.shape), x.dtype)])


def _total(terms: Tensor, is_needed: Tensor) -> Tensor:
    return sum(terms, axis=0)


leaf_terms_p: Primitive = decomposable("leaf_terms", _first_leaf)
sum_leaves_p: Primitive = decomposable("sum_leaves", _total)


def leaf_terms(x: Tensor, leaves: int) -> Tensor:
    """Return the terms of a sum over a batch, one for each leaf.

    Args:
        x: the sum: (...). A value that is no sum over the batch is the term of leaf 0.
        leaves: the number of leaves.

    Returns:
        The terms: (leaves, ...).
    """
    terms: Tensor = bind(leaf_terms_p, x, leaves=leaves)
    return terms


def sum_leaves(terms: Tensor, is_needed: Tensor) -> Tensor:
    """Return the sum of terms along the tree over the leaves.

    Args:
        terms: the terms: (leaves, ...).
        is_needed: whether the result is read, equal on all ranks: a boolean scalar. If
            not, the ranks exchange nothing, and the result is undefined.

    Returns:
        The sum: (...).
    """
    total: Tensor = bind(sum_leaves_p, terms, is_needed)
    return total
