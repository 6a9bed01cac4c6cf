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
NEVER = -1e30
# The loss of labels without an alignment: -log of the smallest float64, as in
# TensorFlow.
IMPOSSIBLE = 708.4


def _checked(op: str, output: Any, lengths: Any) -> tuple[Tensor, Tensor]:
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
    """Return -log of the probability of the labels, summed over all alignments.

    An alignment emits each label in one or more steps, in order, with blanks anywhere
    between. Equal consecutive labels have a blank between them.

    Args:
        target: (batch, labels), classes.
        output: (batch, steps, classes), logits.
        target_length: (batch,), the number of valid labels.
        output_length: (batch,), the number of valid steps.
        mask_index: the class of the blank.

    Returns:
        (batch,), in float32 or wider. Labels without an alignment (more labels than
        steps) cost 708.4, and have no gradient.
    """
    output, output_length = _checked("ctc_loss", output, output_length)
    labels = ops.cast(target, "int32")
    last = 2 * ops.cast(target_length, "int32")
    if labels.ndim != 2 or {labels.shape[:1], last.shape} != {output.shape[:1]}:
        raise ShapeError(
            "ctc_loss: expected labels (batch, labels), lengths (batch,) and logits "
            f"(batch, steps, classes); received {labels.shape}, {last.shape} and "
            f"{output.shape}"
        )
    batch, count = labels.shape
    # The states of an alignment: blank, first label, blank, second label, ..., blank.
    blanks = ops.full_like(labels, mask_index)
    pairs = ops.reshape(ops.stack([labels, blanks], axis=-1), (batch, 2 * count))
    states = ops.pad(pairs, ((0, 0), (1, 0)), constant_values=mask_index)
    emitted = _emitted(ops.log_softmax(output, axis=-1), states)

    # A label can directly follow a different label.
    before = ops.pad(states, ((0, 0), (2, 0)))[:, :-2]
    may_skip = ops.logical_and(
        ops.arange(2 * count + 1) % 2 == 1, ops.not_equal(states, before)
    )

    def step(reached: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        log_p, time = row
        skipped = ops.where(may_skip, _shifted(reached, 2), NEVER)
        ways = ops.stack([reached, _shifted(reached, 1), skipped])
        following = ops.logsumexp(ways, axis=0) + log_p
        counts = ops.expand_dims(ops.less(time, output_length), 1)
        return ops.where(counts, following, reached), None

    at_start = ops.arange(2 * count + 1) < 2
    first = ops.where(at_start, emitted[0], NEVER)
    times = ops.arange(1, output.shape[1], dtype="int32")
    reached, _ = control.scan(step, first, (emitted[1:], times))
    ends = ops.stack([last, ops.maximum(last - 1, 0)], axis=1)
    final = ops.take_along_axis(reached, ends, axis=1)
    # For an empty label sequence, the two final states are the same state.
    twice = ops.logical_and(ops.equal(ops.expand_dims(last, 1), 0), [[False, True]])
    cost = -ops.logsumexp(ops.where(twice, NEVER, final), axis=1)
    return ops.where(ops.less(cost, -NEVER / 2), cost, IMPOSSIBLE)


def _emitted(log_p: Tensor, states: Tensor) -> Tensor:
    """Return the log probability of each state at each step: (steps, batch, states)."""
    steps = log_p.shape[1]
    shape = (states.shape[0], steps, states.shape[1])
    classes = ops.broadcast_to(ops.expand_dims(states, 1), shape)
    return ops.transpose(ops.take_along_axis(log_p, classes, axis=2), (1, 0, 2))


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift values by a number of states; return the values of the earlier states."""
    return ops.pad(x, ((0, 0), (by, 0)), constant_values=NEVER)[:, :-by]


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
        strategy: "greedy" selects the best class of each step; "beam_search" selects
            the labels with the largest sum over their alignments, with `beam_width`
            candidates.
        beam_width: the number of label sequences that beam search keeps.
        top_paths: the number of label sequences to return.
        merge_repeated: whether the greedy strategy merges repeated classes into one
            label.
        mask_index: the class of the blank.

    Returns:
        Labels, (1 or top_paths, batch, steps), int32, padded with -1; and (batch, 1),
        minus the sum of the best logits, or (batch, top_paths), the log probabilities.
    """
    if strategy not in ("greedy", "beam_search"):
        raise unknown_choice(
            "ctc_decode: Invalid strategy", strategy, ("greedy", "beam_search")
        )
    x, lengths = _checked("ctc_decode", inputs, sequence_lengths)
    if strategy == "greedy":
        return _greedy(x, lengths, merge_repeated, mask_index)
    if not 1 <= top_paths <= beam_width:
        raise ArgumentError(
            "ctc_decode: expected 1 <= top_paths <= beam_width; received "
            f"{top_paths} and {beam_width}"
        )
    return _beam_search(x, lengths, beam_width, top_paths, mask_index)


def _greedy(
    x: Tensor, lengths: Tensor, merge: bool, blank: int
) -> tuple[Tensor, Tensor]:
    steps = ops.arange(x.shape[1], dtype="int32")
    counts = ops.less(steps, ops.expand_dims(lengths, 1))
    scores = -ops.sum(
        ops.where(counts, ops.max(x, axis=-1), 0.0), axis=1, keepdims=True
    )
    classes = ops.where(counts, ops.argmax(x, axis=-1), blank)
    empty = ops.equal(classes, blank)
    if merge:
        before = ops.pad(classes, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        empty = ops.logical_or(empty, ops.equal(classes, before))
    labels = ops.where(empty, -1, classes)
    order = ops.argsort(ops.cast(empty, "int32"), axis=-1)
    return ops.expand_dims(ops.take_along_axis(labels, order, axis=-1), 0), scores


def _beam_search(
    x: Tensor, lengths: Tensor, width: int, top: int, blank: int
) -> tuple[Tensor, Tensor]:
    """Decode by prefix beam search.

    For each label sequence, keep two log probabilities: one sums its alignments that
    end in a blank, the other sums the rest.

    Reference: https://arxiv.org/abs/1408.2873
    """
    batch, steps, _ = x.shape
    log_p = ops.transpose(ops.log_softmax(x, axis=-1), (1, 0, 2))
    start = ops.where(ops.arange(width) == 0, 0.0, NEVER)
    start = ops.cast(ops.broadcast_to(start, (batch, width)), x.dtype)
    paths = ops.full((batch, width, steps), -1, "int32")
    step_indices = ops.arange(steps, dtype="int32")

    def step(state: Any, row: Any) -> Any:
        p, time = row
        paths, in_blank, in_label = state
        following = _extended(paths, in_blank, in_label, p, blank)
        active = ops.less(time, lengths)
        return tuple(
            ops.where(ops.reshape(active, (batch, *(1,) * (new.ndim - 1))), new, old)
            for new, old in zip(following, state, strict=True)
        ), None

    state = paths, start, ops.full_like(start, NEVER)
    (paths, *parts), _ = control.scan(step, state, (log_p, step_indices))
    scores, order = ops.top_k(ops.logaddexp(*parts), top)
    paths = ops.take_along_axis(paths, ops.expand_dims(order, -1), axis=1)
    return ops.transpose(paths, (1, 0, 2)), scores


def _extended(
    paths: Tensor, in_blank: Tensor, in_label: Tensor, p: Tensor, blank: int
) -> tuple[Any, Any, Any]:
    """Extend the paths by one step; return the best unchanged and extended paths."""
    (batch, width, steps), classes = paths.shape, p.shape[-1]
    step_indices = ops.arange(steps, dtype="int32")
    size = ops.sum(ops.cast(ops.not_equal(paths, -1), "int32"), axis=-1, keepdims=True)
    last = ops.max(ops.where(step_indices == size - 1, paths, -1), axis=-1)
    total = ops.logaddexp(in_blank, in_label)
    repeated = ops.take_along_axis(p, ops.maximum(last, 0), axis=1)
    stay = ops.where(ops.equal(last, -1), NEVER, in_label + repeated)
    # Append a label; an equal label needs a blank before it.
    labels = ops.arange(classes, dtype="int32")
    same = ops.equal(ops.expand_dims(last, -1), labels)
    grown = ops.where(same, *(ops.expand_dims(t, -1) for t in (in_blank, total)))
    grown = ops.where(labels == blank, NEVER, grown + ops.expand_dims(p, 1))
    # One extra element collects values without a destination.
    grown = ops.reshape(grown, (batch, width * classes))
    grown = ops.pad(grown, ((0, 0), (0, 1)), constant_values=NEVER)

    # An extended path that equals a kept path adds its probability to that path.
    twin = _twins(paths, size, last, classes)
    stay = ops.logaddexp(stay, ops.take_along_axis(grown, twin, axis=1))
    impossible = ops.full_like(stay, NEVER)
    grown = bind(put_along_axis_p, grown, twin, impossible, axis=1, mode="set")

    in_blank = total + p[:, blank : blank + 1]
    candidates = ops.concatenate([ops.logaddexp(in_blank, stay), grown], axis=1)
    _, best = ops.top_k(candidates, width)
    is_old, new = best < width, ops.maximum(best - width, 0)
    source = ops.minimum(ops.where(is_old, best, new // classes), width - 1)
    added = ops.where(is_old, -1, new % classes)

    def picked(t: Any) -> Any:
        return ops.take_along_axis(t, source, axis=1)

    selected = ops.take_along_axis(paths, ops.expand_dims(source, -1), axis=1)
    end = step_indices == ops.expand_dims(picked(size[:, :, 0]), -1)
    return (
        ops.where(end, ops.expand_dims(added, -1), selected),
        ops.where(is_old, picked(in_blank), NEVER),
        ops.where(is_old, picked(stay), ops.take_along_axis(grown, new, axis=1)),
    )


def _twins(paths: Tensor, size: Any, last: Any, classes: int) -> Tensor:
    """Return, (batch, width), which (path, label) pair equals each path.

    The result is a flat index over (path, label) pairs; out of range if there is none.
    """
    width, steps = paths.shape[1:]
    heads = ops.where(ops.arange(steps, dtype="int32") < size - 1, paths, -1)
    equal = ops.equal(ops.expand_dims(heads, 2), ops.expand_dims(paths, 1))
    parents = ops.all(equal, axis=-1)
    has_twin = ops.logical_and(ops.any(parents, axis=-1), last >= 0)
    index = ops.argmax(ops.cast(parents, "int32"), axis=-1) * classes + last
    return ops.where(has_twin, index, width * classes)
