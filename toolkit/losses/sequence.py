"""Connectionist temporal classification: labels of a sequence, without their times."""

from __future__ import annotations

from typing import Any

from toolkit import control, ops
from toolkit.errors import ShapeError
from toolkit.losses.loss import LossFunctionWrapper
from toolkit.symbolic import operation
from toolkit.tensor import Tensor

# The logarithm of no probability; minus infinity would have no gradient.
_NEVER = -1e30


@operation
def ctc(y_true: Any, y_pred: Any) -> Tensor:
    """-log of the probability of the labels, summed over all their alignments.

    An alignment emits each label in one or several steps, in order, and the blank,
    class 0, anywhere between; equal labels in a row have a blank between them.

    Args:
        y_true: (batch, labels), classes in [1, classes), padded at the end with 0.
        y_pred: (batch, steps, classes), logits.

    Returns:
        (batch,)

    Reference:
        [Graves et al., 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    labels = ops.cast(y_true, "int32")
    if labels.ndim != 2 or y_pred.ndim != 3 or labels.shape[0] != y_pred.shape[0]:
        raise ShapeError(
            "ctc: expected labels (batch, labels) and logits (batch, steps, classes); "
            f"received shapes {labels.shape} and {y_pred.shape}"
        )
    batch, count = labels.shape
    # Blank, first label, blank, second label, ..., blank: the states of an alignment.
    pairs = ops.stack([labels, ops.zeros_like(labels)], axis=-1)
    states = ops.pad(ops.reshape(pairs, (batch, 2 * count)), ((0, 0), (1, 0)))
    emitted = _emitted(ops.log_softmax(y_pred, axis=-1), states)

    # A label may follow another one directly, if it is not the same.
    before = ops.pad(states, ((0, 0), (2, 0)))[:, :-2]
    may_skip = ops.logical_and(ops.not_equal(states, 0), ops.not_equal(states, before))

    def step(reached: Tensor, log_p: Tensor) -> tuple[Tensor, None]:
        skipped = ops.where(may_skip, _shifted(reached, 2), _NEVER)
        ways = ops.stack([reached, _shifted(reached, 1), skipped])
        return ops.logsumexp(ways, axis=0) + log_p, None

    at_start = ops.arange(2 * count + 1) < 2
    first = ops.where(at_start, emitted[0], _NEVER)
    reached, _ = control.scan(step, first, emitted[1:])
    last = 2 * ops.sum(ops.cast(ops.not_equal(labels, 0), "int32"), axis=1)
    ends = ops.stack([last, ops.maximum(last - 1, 0)], axis=1)
    final = ops.take_along_axis(reached, ends, axis=1)
    # Without labels both ends are the same state.
    twice = ops.logical_and(ops.equal(ops.expand_dims(last, 1), 0), [[False, True]])
    return -ops.logsumexp(ops.where(twice, _NEVER, final), axis=1)


def _emitted(log_p: Tensor, states: Tensor) -> Tensor:
    """The log probability of each state at each step: (steps, batch, states)."""
    steps = log_p.shape[1]
    shape = (states.shape[0], steps, states.shape[1])
    classes = ops.broadcast_to(ops.expand_dims(states, 1), shape)
    return ops.transpose(ops.take_along_axis(log_p, classes, axis=2), (1, 0, 2))


def _shifted(x: Tensor, by: int) -> Tensor:
    """The values of the states before, by that many."""
    return ops.pad(x, ((0, 0), (by, 0)), constant_values=_NEVER)[:, :-by]


class CTC(LossFunctionWrapper):
    """Connectionist temporal classification: see `ctc`.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Reference:
        [Graves et al., 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "ctc",
        dtype: Any = None,
    ) -> None:
        super().__init__(ctc, reduction, name, dtype)
