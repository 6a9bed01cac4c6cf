"""Dropout of recurrent cells: one mask for all steps of a sequence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from toolkit import ops, random
from toolkit.core.tensor import Tensor, state
from toolkit.type_aliases import Array


class _MaskCache(threading.local):
    """Cached masks of cells, by purpose."""

    def __init__(self) -> None:
        self.masks: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


_mask_cache = _MaskCache()


class DropoutRNNCell:
    """Base class of cells with dropout of inputs and state.

    A mask is created on first use and stays the same until it is reset. A recurrent
    layer resets the masks of its cell before and after each sequence.

    Attributes:
        dropout: the fraction of the inputs to drop.
        recurrent_dropout: the fraction of the state to drop.
        seed_generator: the generator of the masks.
        dropout_mask_count: the number of masks, returned as a list; None for a single
            mask.
    """

    dropout: float
    recurrent_dropout: float
    seed_generator: Any
    compute_dtype: str
    dropout_mask_count: int | None = None

    def get_dropout_mask(self, step_input: Any) -> Any:
        """Return the dropout mask of the inputs of each step, or None for no dropout.

        Args:
            step_input: the inputs of one step.
        """
        return self._mask("inputs", step_input, self.dropout)

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """Return the dropout mask of the state, or None for no dropout.

        Args:
            step_input: the state before one step.
        """
        return self._mask("state", step_input, self.recurrent_dropout)

    def reset_dropout_mask(self) -> None:
        """Discard the input mask, so that the next step creates a new one."""
        _mask_cache.masks.setdefault(self, {}).pop("inputs", None)

    def reset_recurrent_dropout_mask(self) -> None:
        """Discard the state mask, so that the next step creates a new one."""
        _mask_cache.masks.setdefault(self, {}).pop("state", None)

    def _mask(self, purpose: str, like: Array | Tensor, rate: float) -> Any:
        if not rate > 0:
            return None
        masks = _mask_cache.masks.setdefault(self, {})
        if not _is_usable(masks.get(purpose), like):
            masks[purpose] = self._create_dropout_mask(like, rate)
        return masks[purpose]

    def _create_dropout_mask(
        self, step_input: Array | Tensor, dropout_rate: float
    ) -> Any:
        """Create a mask in the shape of `step_input`, or a list of them."""
        ones = ops.ones_like(step_input)
        count = self.dropout_mask_count
        masks = [
            random.dropout(ones, dropout_rate, seed=self.seed_generator)
            for _ in range(count or 1)
        ]
        return masks[0] if count is None else masks

    def masks_of_step(self, inputs: Any, state: Any, training: Any) -> tuple[Any, Any]:
        """Return the masks of inputs and state for one separate step, or None.

        Cached masks apply until they are reset; without them, create new ones.

        Args:
            inputs: (batch, ...).
            state: (batch, ...).
            training: whether to apply dropout.
        """
        if not training:
            return None, None
        if self not in _mask_cache.masks:
            return self.dropout_masks(inputs.shape[0], inputs.shape[-1], training)
        masks = self.get_dropout_mask(inputs), self.get_recurrent_dropout_mask(state)
        first, second = (m[0] if isinstance(m, list) else m for m in masks)
        return first, second

    def dropout_masks(
        self, batch: int, features: int, training: bool | None
    ) -> tuple[Any, Any]:
        """Return the dropout masks of inputs and state for one call, or None.

        Args:
            batch: the number of rows.
            features: the number of features of the inputs.
            training: whether to apply dropout.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define `dropout_masks`"
        )


def _is_usable(masks: Any, like: Array | Tensor) -> bool:
    """Return whether a mask has the right shape and belongs to the current trace."""
    if masks is None:
        return False
    mask: Tensor = masks[0] if isinstance(masks, list) else masks
    if mask.shape != like.shape:
        return False
    if mask._scope is None:  # in a trace it would be the same in every run
        return state.trace is None
    return not mask._scope.closed


@contextmanager
def one_mask(calls: list[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Make cells drop the same elements in all steps in this context.

    The masks are created here, because tensors from a loop's trace end with the loop.

    Args:
        calls: triples of a cell, inputs of one step, and a state, which give the mask
            shapes.
    """
    for cell, step_input, first_state in calls:
        _mask_cache.masks.pop(cell, None)
        cell.get_dropout_mask(step_input)
        cell.get_recurrent_dropout_mask(first_state)
    try:
        yield
    finally:
        for cell, _, _ in calls:
            _mask_cache.masks.pop(cell, None)
