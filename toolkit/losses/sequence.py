"""Connectionist temporal classification (CTC) for padded labels."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.losses.ctc import ctc_loss
from toolkit.losses.loss import LossFunctionWrapper
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike


@operation
def ctc(y_true: Any, y_pred: Any) -> Tensor:
    """Return -log of the probability of the labels, summed over all alignments.

    An alignment emits each label in one or more steps, in order, with blanks (class 0)
    anywhere between. Equal consecutive labels have a blank between them.

    Args:
        y_true: (batch, labels), classes in [1, classes), padded at the end with 0.
        y_pred: (batch, steps, classes), logits.

    Returns:
        (batch,)

    Example:
        >>> from toolkit import losses, ops
        >>> loss = losses.ctc([[1, 2, 0]], ops.zeros((1, 4, 3)))
        >>> loss.shape
        (1,)

    Reference:
        [Graves et al., 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)
    """
    y_pred, labels = ops.convert_to_tensor(y_pred), ops.cast(y_true, "int32")
    if labels.ndim != 2 or y_pred.ndim != 3 or labels.shape[0] != y_pred.shape[0]:
        raise ShapeError(
            "ctc: expected labels (batch, labels) and logits (batch, steps, classes); "
            f"received shapes {labels.shape} and {y_pred.shape}"
        )
    counts = ops.sum(ops.cast(ops.not_equal(labels, 0), "int32"), axis=1)
    steps = ops.full((y_pred.shape[0],), y_pred.shape[1], "int32")
    return ctc_loss(labels, y_pred, counts, steps)


class CTC(LossFunctionWrapper):
    """Connectionist temporal classification loss: see `ctc`.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses, ops
        >>> loss = losses.CTC()([[1, 2, 0]], ops.zeros((1, 4, 3)))
        >>> round(float(loss), 4)
        1.6864

    Reference:
        [Graves et al., 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "ctc",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(ctc, reduction, name, dtype)
