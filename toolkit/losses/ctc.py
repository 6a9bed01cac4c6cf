"""Connectionist temporal classification (CTC) loss and decoding.

Reference: https://www.cs.toronto.edu/~graves/icml_2006.pdf
"""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, ops
from toolkit.control_flow import loops as control
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.index import put_along_axis_p
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

# The log of probability 0; minus infinity would make the gradient NaN.
LOG_ZERO = -1e30
# The loss of labels without an alignment: -log of the smallest float64, as in
# TensorFlow.
IMPOSSIBLE_LOSS = 708.4


def _check_logits(op: str, output: Any, lengths: Any) -> tuple[Tensor, Tensor]:
    """Return logits (batch, steps, classes), at least float32, and lengths (batch,)."""
    output, lengths = ops.convert_to_tensor(output), ops.cast(lengths, "int32")
    if output.ndim != 3 or lengths.shape != output.shape[:1]:
        raise ShapeError(
            f"{op}: expected logits (batch, steps, classes) and lengths (batch,); "
            f"received shapes {output.shape} and {lengths.shape}"
        )
    return ops.cast(output, dtypes.result_type(output.dtype, "float32")), lengths


@operation
def ctc_loss(
    target: TensorLike,
    output: TensorLike,
    target_length: Any,
    output_length: Any,
    mask_index: int = 0,
) -> Tensor:
    """Compute minus the log probability of labels, summed over all alignments.

    An alignment emits each label in one or more steps, in order, with blanks anywhere
    between. Equal consecutive labels have a blank between them.

    Args:
        target: (batch, labels), integer classes.
        output: (batch, steps, classes), logits.
        target_length: (batch,), the number of valid labels.
        output_length: (batch,), the number of valid steps.
        mask_index: the class of the blank.

    Returns:
        A tensor of shape (batch,), in float32 or wider. Labels without an alignment
        (more labels than steps) cost 708.4, and have no gradient.

    Raises:
        ShapeError: the shapes do not match.

    Reference:
        Graves et al., Connectionist Temporal Classification (2006),
            doi:10.1145/1143844.1143891

    Example:
        >>> from toolkit import ops
        >>> output = ops.zeros((1, 1, 2))  # a blank and a label, with probability 0.5
        >>> print(ops.round(ops.ctc_loss([[1]], output, [1], [1]), 4))
        [0.6931]
    """
    output, output_length = _check_logits("ctc_loss", output, output_length)
    labels = ops.cast(target, "int32")
    last_state = 2 * ops.cast(target_length, "int32")
    if labels.ndim != 2 or {labels.shape[:1], last_state.shape} != {output.shape[:1]}:
        raise ShapeError(
            "ctc_loss: expected labels (batch, labels), lengths (batch,) and logits "
            f"(batch, steps, classes); received {labels.shape}, {last_state.shape} and "
            f"{output.shape}"
        )
    batch, count = labels.shape
    # The states of an alignment: blank, first label, blank, second label, ..., blank.
    blanks = ops.full_like(labels, mask_index)
    pairs = ops.reshape(ops.stack([labels, blanks], axis=-1), (batch, 2 * count))
    states = ops.pad(pairs, ((0, 0), (1, 0)), constant_values=mask_index)
    state_log_probs = _gather_state_log_probs(ops.log_softmax(output, axis=-1), states)

    # A label can directly follow a different label.
    skipped_states = ops.pad(states, ((0, 0), (2, 0)))[:, :-2]
    can_skip = ops.logical_and(
        ops.arange(2 * count + 1) % 2 == 1, ops.not_equal(states, skipped_states)
    )

    def step(path_log_probs: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        log_p, time = row
        after_skip = ops.where(can_skip, _shift_states(path_log_probs, 2), LOG_ZERO)
        predecessors = ops.stack(
            [path_log_probs, _shift_states(path_log_probs, 1), after_skip]
        )
        extended = ops.logsumexp(predecessors, axis=0) + log_p
        is_valid = ops.expand_dims(ops.less(time, output_length), 1)
        return ops.where(is_valid, extended, path_log_probs), None

    is_start = ops.arange(2 * count + 1) < 2
    initial = ops.where(is_start, state_log_probs[0], LOG_ZERO)
    times = ops.arange(1, output.shape[1], dtype="int32")
    path_log_probs, _ = control.scan(step, initial, (state_log_probs[1:], times))
    final_states = ops.stack([last_state, ops.maximum(last_state - 1, 0)], axis=1)
    final_log_probs = ops.take_along_axis(path_log_probs, final_states, axis=1)
    # For an empty label sequence, the two final states are the same state.
    is_duplicate = ops.logical_and(
        ops.equal(ops.expand_dims(last_state, 1), 0), [[False, True]]
    )
    loss = -ops.logsumexp(ops.where(is_duplicate, LOG_ZERO, final_log_probs), axis=1)
    return ops.where(ops.less(loss, -LOG_ZERO / 2), loss, IMPOSSIBLE_LOSS)


def _gather_state_log_probs(log_p: Tensor, states: Tensor) -> Tensor:
    """Return the log probability of each state at each step: (steps, batch, states)."""
    steps = log_p.shape[1]
    shape = (states.shape[0], steps, states.shape[1])
    classes = ops.broadcast_to(ops.expand_dims(states, 1), shape)
    return ops.transpose(ops.take_along_axis(log_p, classes, axis=2), (1, 0, 2))


def _shift_states(x: Tensor, offset: int) -> Tensor:
    """Shift values by a number of states; return the values of the earlier states."""
    return ops.pad(x, ((0, 0), (offset, 0)), constant_values=LOG_ZERO)[:, :-offset]


# --- decoding -------------------------------------------------------------------------


@operation
def ctc_decode(
    inputs: TensorLike,
    sequence_lengths: Any,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int = 0,
) -> tuple[Tensor, Tensor]:
    """Decode the outputs of a CTC model into label sequences.

    Args:
        inputs: (batch, steps, classes), logits.
        sequence_lengths: (batch,), the number of valid steps.
        strategy: "greedy" selects the best class of each step. "beam_search" selects
            the labels with the largest sum over their alignments, with `beam_width`
            candidates.
        beam_width: the number of label sequences that beam search stores.
        top_paths: the number of label sequences to return.
        merge_repeated: whether the greedy strategy merges repeated classes into one
            label.
        mask_index: the class of the blank.

    Returns:
        A pair of tensors. The labels are int32, (1 or top_paths, batch, steps), padded
        with -1. The scores are (batch, 1), minus the sum of the best logits, or (batch,
        top_paths), the log probabilities.

    Raises:
        ArgumentError: the strategy is unsupported, or `top_paths` is not in [1,
            beam_width].

    Reference:
        Graves et al., Connectionist Temporal Classification (2006),
            doi:10.1145/1143844.1143891

    Example:
        >>> from toolkit import ops
        >>> best = ops.array([[1, 1, 0, 2]])  # 0 is the blank
        >>> labels, scores = ops.ctc_decode(ops.one_hot(best, 3), [4])
        >>> labels.tolist()
        [[[1, 2, -1, -1]]]
    """
    if strategy not in ("greedy", "beam_search"):
        raise unknown_choice(
            "ctc_decode: Invalid strategy", strategy, ("greedy", "beam_search")
        )
    x, lengths = _check_logits("ctc_decode", inputs, sequence_lengths)
    if strategy == "greedy":
        return _decode_greedily(x, lengths, merge_repeated, mask_index)
    if not 1 <= top_paths <= beam_width:
        raise ArgumentError(
            "ctc_decode: expected 1 <= top_paths <= beam_width; received "
            f"{top_paths} and {beam_width}"
        )
    return _beam_search(x, lengths, beam_width, top_paths, mask_index)


def _decode_greedily(
    x: Tensor, lengths: Tensor, merge: bool, blank: int
) -> tuple[Tensor, Tensor]:
    steps = ops.arange(x.shape[1], dtype="int32")
    is_valid = ops.less(steps, ops.expand_dims(lengths, 1))
    scores = -ops.sum(
        ops.where(is_valid, ops.max(x, axis=-1), 0.0), axis=1, keepdims=True
    )
    classes = ops.where(is_valid, ops.argmax(x, axis=-1), blank)
    is_removed = ops.equal(classes, blank)
    if merge:
        previous = ops.pad(classes, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        is_removed = ops.logical_or(is_removed, ops.equal(classes, previous))
    labels = ops.where(is_removed, -1, classes)
    order = ops.argsort(ops.cast(is_removed, "int32"), axis=-1)
    return ops.expand_dims(ops.take_along_axis(labels, order, axis=-1), 0), scores


def _beam_search(
    x: Tensor, lengths: Tensor, width: int, top_paths: int, blank: int
) -> tuple[Tensor, Tensor]:
    """Decode by prefix beam search.

    For each label sequence, keep two log probabilities: one sums its alignments that
    end in a blank, the other sums the rest.

    Reference: https://arxiv.org/abs/1408.2873
    """
    batch, steps, _ = x.shape
    log_p = ops.transpose(ops.log_softmax(x, axis=-1), (1, 0, 2))
    start = ops.where(ops.arange(width) == 0, 0.0, LOG_ZERO)
    start = ops.cast(ops.broadcast_to(start, (batch, width)), x.dtype)
    paths = ops.full((batch, width, steps), -1, "int32")
    step_indices = ops.arange(steps, dtype="int32")

    def step(state: tuple[Tensor, ...], row: tuple[Tensor, ...]) -> Any:
        p, time = row
        paths, in_blank, in_label = state
        extended = _extend_paths(paths, in_blank, in_label, p, blank)
        is_valid = ops.less(time, lengths)
        return tuple(
            ops.where(ops.reshape(is_valid, (batch, *(1,) * (new.ndim - 1))), new, old)
            for new, old in zip(extended, state, strict=True)
        ), None

    state = paths, start, ops.full_like(start, LOG_ZERO)
    (paths, *path_log_probs), _ = control.scan(step, state, (log_p, step_indices))
    scores, order = ops.top_k(ops.logaddexp(*path_log_probs), top_paths)
    paths = ops.take_along_axis(paths, ops.expand_dims(order, -1), axis=1)
    return ops.transpose(paths, (1, 0, 2)), scores


def _extend_paths(
    paths: Tensor, in_blank: Tensor, in_label: Tensor, p: Tensor, blank: int
) -> tuple[Any, Any, Any]:
    """Extend the paths by one step; return the best unchanged and extended paths."""
    (batch, width, steps), classes = paths.shape, p.shape[-1]
    step_indices = ops.arange(steps, dtype="int32")
    lengths = ops.sum(
        ops.cast(ops.not_equal(paths, -1), "int32"), axis=-1, keepdims=True
    )
    last_labels = ops.max(ops.where(step_indices == lengths - 1, paths, -1), axis=-1)
    total = ops.logaddexp(in_blank, in_label)
    last_log_p = ops.take_along_axis(p, ops.maximum(last_labels, 0), axis=1)
    unchanged = ops.where(ops.equal(last_labels, -1), LOG_ZERO, in_label + last_log_p)
    # Append a label; an equal label needs a blank before it.
    labels = ops.arange(classes, dtype="int32")
    is_repeated = ops.equal(ops.expand_dims(last_labels, -1), labels)
    extended = ops.where(
        is_repeated, *(ops.expand_dims(t, -1) for t in (in_blank, total))
    )
    extended = ops.where(labels == blank, LOG_ZERO, extended + ops.expand_dims(p, 1))
    # One extra element collects values without a destination.
    extended = ops.reshape(extended, (batch, width * classes))
    extended = ops.pad(extended, ((0, 0), (0, 1)), constant_values=LOG_ZERO)

    # An extended path that equals a kept path adds its probability to that path.
    duplicates = _find_duplicates(paths, lengths, last_labels, classes)
    unchanged = ops.logaddexp(
        unchanged, ops.take_along_axis(extended, duplicates, axis=1)
    )
    impossible = ops.full_like(unchanged, LOG_ZERO)
    extended = bind(
        put_along_axis_p, extended, duplicates, impossible, axis=1, mode="set"
    )

    in_blank = total + p[:, blank : blank + 1]
    candidates = ops.concatenate([ops.logaddexp(in_blank, unchanged), extended], axis=1)
    _, best_indices = ops.top_k(candidates, width)
    is_unchanged, new_indices = (
        best_indices < width,
        ops.maximum(best_indices - width, 0),
    )
    sources = ops.minimum(
        ops.where(is_unchanged, best_indices, new_indices // classes), width - 1
    )
    added_labels = ops.where(is_unchanged, -1, new_indices % classes)

    def gather(t: Any) -> Tensor:
        return ops.take_along_axis(t, sources, axis=1)

    selected = ops.take_along_axis(paths, ops.expand_dims(sources, -1), axis=1)
    is_end = step_indices == ops.expand_dims(gather(lengths[:, :, 0]), -1)
    return (
        ops.where(is_end, ops.expand_dims(added_labels, -1), selected),
        ops.where(is_unchanged, gather(in_blank), LOG_ZERO),
        ops.where(
            is_unchanged,
            gather(unchanged),
            ops.take_along_axis(extended, new_indices, axis=1),
        ),
    )


def _find_duplicates(
    paths: Tensor, lengths: Tensor, last_labels: Tensor, classes: int
) -> Tensor:
    """Return, (batch, width), which (path, label) pair equals each path.

    The result is a flat index over (path, label) pairs; out of range if there is none.
    """
    width, steps = paths.shape[1:]
    prefixes = ops.where(ops.arange(steps, dtype="int32") < lengths - 1, paths, -1)
    is_equal = ops.equal(ops.expand_dims(prefixes, 2), ops.expand_dims(paths, 1))
    is_parent = ops.all(is_equal, axis=-1)
    has_duplicate = ops.logical_and(ops.any(is_parent, axis=-1), last_labels >= 0)
    index = ops.argmax(ops.cast(is_parent, "int32"), axis=-1) * classes + last_labels
    return ops.where(has_duplicate, index, width * classes)
