"""Decoders of `tf.nn` for models that are trained with `ctc_loss`."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.sparse import SparseTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import TensorLike


def _as_sparse(labels: TensorLike) -> SparseTensor:
    """Convert rows of labels that end with -1 to a SparseTensor."""
    rows = np.asarray(labels)
    is_label = rows >= 0
    widest = int(is_label.sum(1).max(initial=0))
    shape = len(rows), widest
    return SparseTensor(np.argwhere(is_label), rows[is_label].astype("int64"), shape)


def ctc_greedy_decoder(
    inputs: TensorLike,
    sequence_length: TensorLike,
    merge_repeated: bool = True,
    blank_index: int | None = None,
) -> tuple[list[SparseTensor], Tensor]:
    """Return the labels of the best class of each step.

    Args:
        inputs: (time, batch, classes), logits.
        sequence_length: (batch,), the number of steps of each sample.
        merge_repeated: whether equal classes in a row are one label.
        blank_index: the class of the blank, the last by default; negative from the end.

    Returns:
        A list of one SparseTensor (batch, labels), int64; and (batch, 1), minus the sum
        of the best logits.
    """
    x = ops.swapaxes(inputs, 0, 1)
    blank = (-1 if blank_index is None else int(blank_index)) % x.shape[-1]
    labels, scores = ops.ctc_decode(
        x, sequence_length, merge_repeated=bool(merge_repeated), mask_index=blank
    )
    return [_as_sparse(labels[0])], scores


def ctc_beam_search_decoder(
    inputs: TensorLike,
    sequence_length: TensorLike,
    beam_width: int = 100,
    top_paths: int = 1,
) -> tuple[list[SparseTensor], Tensor]:
    """Return the most probable sequences of labels; the blank is the last class.

    Args:
        inputs: (time, batch, classes), logits.
        sequence_length: (batch,), the number of steps of each sample.
        beam_width: the number of sequences that the search keeps.
        top_paths: the number of sequences to return.

    Returns:
        A list of top_paths SparseTensors (batch, labels), int64; and the logarithms of
        their probabilities, (batch, top_paths).
    """
    x = ops.swapaxes(inputs, 0, 1)
    labels, scores = ops.ctc_decode(
        *(x, sequence_length, "beam_search", int(beam_width), int(top_paths)),
        mask_index=x.shape[-1] - 1,
    )
    return [_as_sparse(path) for path in labels], scores


def collapse_repeated(
    labels: TensorLike, seq_length: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Remove labels that repeat their predecessor; return the rows and their lengths.

    Args:
        labels: (batch, steps), integers.
        seq_length: (batch,), the number of labels of each row.

    Returns:
        (batch, longest), filled with 0, and (batch,), of the dtype of seq_length.
    """
    rows, lengths = np.asarray(convert(labels)), np.asarray(convert(seq_length))
    is_new = np.ones(rows.shape, bool)
    is_new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    is_new &= np.arange(rows.shape[1]) < lengths[:, None]
    counts = is_new.sum(1)
    collapsed = np.zeros((len(rows), counts.max(initial=0)), rows.dtype)
    collapsed[np.arange(collapsed.shape[1]) < counts[:, None]] = rows[is_new]
    return convert(collapsed), convert(counts.astype(lengths.dtype))


# --- functions of the backend of Keras 2 ----------------------------------------------

_SMALLEST = 1e-7  # added to probabilities before the logarithm


def ctc_batch_cost(
    y_true: TensorLike,
    y_pred: TensorLike,
    input_length: TensorLike,
    label_length: TensorLike,
) -> Tensor:
    """Return `ctc_loss` of probabilities; the blank is the last class.

    Args:
        y_true: (batch, labels), integers.
        y_pred: (batch, time, classes), the output of a softmax.
        input_length, label_length: (batch, 1), the length of each sample.

    Returns:
        (batch, 1).
    """
    counts = ops.cast(ops.reshape(label_length, (-1,)), "int32")
    steps = ops.cast(ops.reshape(input_length, (-1,)), "int32")
    logits = ops.log(convert(y_pred) + _SMALLEST)
    labels = ops.cast(y_true, "int32")
    loss = ops.ctc_loss(labels, logits, counts, steps, logits.shape[-1] - 1)
    return ops.expand_dims(loss, 1)


def ctc_decode(
    y_pred: TensorLike,
    input_length: TensorLike,
    greedy: bool = True,
    beam_width: int = 100,
    top_paths: int = 1,
) -> tuple[list[Tensor], Tensor]:
    """Decode probabilities to labels; the blank is the last class.

    Args:
        y_pred: (batch, time, classes), the output of a softmax.
        input_length: (batch,), the number of steps of each sample.
        greedy: whether to take the best class of each step, without a beam search.
        beam_width, top_paths: as in `ctc_beam_search_decoder`.

    Returns:
        A list of labels (batch, time), int64, filled with -1; and (batch, 1), minus the
        sum of the best logarithms, or (batch, top_paths), log probabilities.
    """
    logits = ops.log(convert(y_pred) + _SMALLEST)
    labels, scores = ops.ctc_decode(
        logits,
        ops.cast(input_length, "int32"),
        "greedy" if greedy else "beam_search",
        int(beam_width),
        int(top_paths),
        mask_index=logits.shape[-1] - 1,
    )
    return [ops.cast(path, "int64") for path in labels], scores


def ctc_label_dense_to_sparse(
    labels: TensorLike, label_lengths: TensorLike
) -> SparseTensor:
    """Convert the first labels of each row to a SparseTensor."""
    rows, lengths = np.asarray(convert(labels)), np.asarray(convert(label_lengths))
    is_label = np.arange(rows.shape[1]) < lengths.reshape(-1, 1)
    return SparseTensor(np.argwhere(is_label), rows[is_label], rows.shape)


make_operations(__name__)
