"""Dropout of recurrent cells: the same elements in every step of a sequence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from toolkit import ops, random
from toolkit.core.tensor import Tensor, state


class _Kept(threading.local):
    """The masks of cells that someone has asked for, by what they are for."""

    def __init__(self) -> None:
        self.masks: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


_kept = _Kept()


class DropoutRNNCell:
    """Base of cells that drop parts of their inputs and of their state.

    A mask is made when it is first asked for, and is the same until it is reset. A
    recurrent layer resets the masks of its cell before and after each sequence.

    Attributes:
        dropout: the part of the inputs that is dropped.
        recurrent_dropout: the part of the state that is dropped.
        seed_generator: where the masks come from.
        dropout_mask_count: how many masks are made, in a list; None for one alone.
    """

    dropout: float
    recurrent_dropout: float
    seed_generator: Any
    compute_dtype: str
    dropout_mask_count: int | None = None

    def get_dropout_mask(self, step_input: Any) -> Any:
        """What the inputs of each step are multiplied with; None: nothing is dropped.

        Args:
            step_input: the inputs of one step.
        """
        return self._mask("inputs", step_input, self.dropout)

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """What the state is multiplied with; None: nothing is dropped.

        Args:
            step_input: the state before one step.
        """
        return self._mask("state", step_input, self.recurrent_dropout)

    def reset_dropout_mask(self) -> None:
        """Let the inputs of the next step have a new mask, which is then kept."""
        _kept.masks.setdefault(self, {}).pop("inputs", None)

    def reset_recurrent_dropout_mask(self) -> None:
        """Let the state of the next step have a new mask, which is then kept."""
        _kept.masks.setdefault(self, {}).pop("state", None)

    def _mask(self, what: str, like: Any, rate: float) -> Any:
        if not rate > 0:
            return None
        masks = _kept.masks.setdefault(self, {})
        if not _is_usable(masks.get(what), like):
            masks[what] = self._create_dropout_mask(like, rate)
        return masks[what]

    def _create_dropout_mask(self, step_input: Any, dropout_rate: float) -> Any:
        """A mask in the shape of `step_input`, or a list of them."""
        ones = ops.ones_like(step_input)
        count = self.dropout_mask_count
        masks = [
            random.dropout(ones, dropout_rate, seed=self.seed_generator)
            for _ in range(count or 1)
        ]
        return masks[0] if count is None else masks

    def masks_of_step(self, inputs: Any, state: Any, training: Any) -> tuple[Any, Any]:
        """What one step on its own multiplies inputs and state with; None: nothing.

        The masks that were asked for, until they are reset; without, new ones.

        Args:
            inputs: (batch, ...).
            state: (batch, ...).
            training: whether to drop.
        """
        if not training:
            return None, None
        if self not in _kept.masks:
            return self.dropout_masks(inputs.shape[0], inputs.shape[-1], training)
        masks = self.get_dropout_mask(inputs), self.get_recurrent_dropout_mask(state)
        first, second = (m[0] if isinstance(m, list) else m for m in masks)
        return first, second

    def dropout_masks(
        self, batch: int, features: int, training: bool | None
    ) -> tuple[Any, Any]:
        """What dropout multiplies inputs and state with in one call; None: nothing."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `dropout_masks`"
        )


def _is_usable(masks: Any, like: Any) -> bool:
    """Whether a mask fits, and belongs to what is traced now, or nothing is traced."""
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
    """Let cells drop the same elements in all steps inside.

    The masks are made here, since what is made within a loop ends with it.

    Args:
        calls: cells, each with inputs of one step, and with a state, in whose shapes
            masks are wanted.
    """
    for cell, step_input, first_state in calls:
        _kept.masks.pop(cell, None)
        cell.get_dropout_mask(step_input)
        cell.get_recurrent_dropout_mask(first_state)
    try:
        yield
    finally:
        for cell, _, _ in calls:
            _kept.masks.pop(cell, None)
