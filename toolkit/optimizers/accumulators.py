"""Gradient accumulators: the sums of the gradients of several steps.

In a job the processes exchange gradients once for each update, not in each step. An
accumulator then stores a sum for each leaf, which is one of the fixed parts of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from toolkit.comm.leaves import Leaves, Subtree, combine_subtree
from toolkit.compiler import distribution_context
from toolkit.core.convert import convert
from toolkit.core.naming import root_scope
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.ops.leaf_sums import leaf_terms, sum_leaves
from toolkit.thread_state import ThreadState
from toolkit.type_aliases import Array

# Limit for values from files.
_MAX_LEAVES = 1 << 16


class _Mode(ThreadState):
    # Whether new accumulators add the gradients of all processes in each step.
    needs_total = False


_mode = _Mode()


def exchange_each_step() -> AbstractContextManager[None]:
    """Return a context of new accumulators that need complete gradients in each step.

    For an optimizer that reads the gradients in each step, such as for a loss scale.
    """
    return _mode.override(needs_total=True)


class Accumulator(Variable):
    """Sum of the gradients of a variable since its last update.

    Args:
        reference: the variable.
        name: the last component of the path.

    Attributes:
        leaves: the number of sums that it stores, on its first axis. None: one sum of
            the gradients of all processes, without that axis.
        leaf_shape: the shape of each sum.
    """

    def __init__(self, reference: Variable, name: str) -> None:
        job = distribution_context.current()
        leaves = 1
        if job is not None and not (
            reference.overwrite_with_gradient or _mode.needs_total
        ):
            leaves = job.num_accumulated_leaves(reference)
        self.leaves = None if leaves == 1 else leaves
        self.leaf_shape: tuple[int, ...] = tuple(reference.shape)
        shape = self.leaf_shape if leaves == 1 else (leaves, *self.leaf_shape)
        super().__init__(
            "zeros", shape=shape, dtype=reference.dtype, trainable=False, name=name
        )
        if self.leaves is None:
            super().place_like(reference)
        elif job is not None:
            self.set_placement(job.place_leaves(self, reference))

    def place_like(self, other: Variable | None) -> None:
        """Do nothing: the constructor sets the placement."""

    def convert(self, value: Any) -> Tensor:
        """Return `value` as a tensor of the shape of this variable.

        Args:
            value: the sum, or the sums of any number of leaves.
        """
        tensor = convert(value, self._tensor.dtype)
        if tensor.shape == self.shape or not self.accepts(tensor.shape):
            return super().convert(tensor)
        return convert(self.fit(np.asarray(tensor)))

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether values of a shape are a sum, or the sums of leaves."""
        if tuple(shape) == self.leaf_shape:
            return True
        return tuple(shape[1:]) == self.leaf_shape and 0 < shape[0] <= _MAX_LEAVES

    def saved_value(self) -> Array:
        """Return the value for a file: without leaves if no gradients are stored.

        Such a file is the same as without a distribution. All processes call this.
        """
        value = np.asarray(self)
        if self.leaves is None or np.any(value):
            return value
        return np.zeros(self.leaf_shape, value.dtype)

    def fit(self, sums: Array) -> Array:
        """Return a sum, or the sums of other leaves, in the shape of this variable.

        The total is the same. It becomes the sum of the first leaf.
        """
        if sums.shape == self.shape:
            return sums
        total = sums
        if sums.shape != self.leaf_shape:
            total = _combine(sums)
        if self.leaves is None:
            return total
        result = np.zeros(self.shape, sums.dtype)
        result[0] = total
        return result

    def local_sums(self, sums: Array) -> Array:
        """Return the part of `fit` that this process stores."""
        value: Array = self._local_part(self.fit(sums))
        return value

    def add(self, gradient: Tensor, is_due: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new value, and the sum of all processes, after another gradient.

        Args:
            gradient: the gradient of a step.
            is_due: whether the total is read.

        Returns:
            The new value, and the total, which is defined only if it is due.
        """
        if self.leaves is None:
            total = gradient + self.read()
            return total, total
        with root_scope(gradient.origin):  # reports of the exchange name the layer
            sums = self.read() + leaf_terms(gradient, self.leaves)
            return sums, sum_leaves(sums, is_due)


def saved_value(variable: Variable) -> Array:
    """Return the value of a variable of an optimizer for a file."""
    if isinstance(variable, Accumulator):
        return variable.saved_value()
    return np.asarray(variable)


def accepts_saved(variable: Variable, shape: Sequence[int]) -> bool:
    """Return whether a variable of an optimizer can take a saved value of a shape."""
    if isinstance(variable, Accumulator) and variable.accepts(shape):
        return True
    return tuple(shape) == variable.shape


def has_leaves(variable: Variable) -> bool:
    """Return whether a variable stores a sum for each leaf."""
    return isinstance(variable, Accumulator) and variable.leaves is not None


def _combine(sums: Array) -> Array:
    """Return the total of the sums of leaves, in the order of distributed steps."""
    leaves = Leaves(len(sums), tuple(range(len(sums))))

    def sum_of(tree: Subtree) -> Array | None:
        first, size = tree
        return sums[first] if size == 1 and first < len(sums) else None

    total = combine_subtree((0, leaves.span), sum_of, np.add)
    assert total is not None
    return np.asarray(total)
