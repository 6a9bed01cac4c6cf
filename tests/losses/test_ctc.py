"""Test CTC against a sum over all alignments of small cases."""

import itertools

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close, check_grads
from toolkit import errors, ops

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(3, 4, 3))
STEPS = np.array([4, 3, 2], np.int32)


def log_softmax(x):
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def meaning(alignment, blank):
    """Return the labels that an alignment emits."""
    merged = [c for c, _ in itertools.groupby(alignment)]
    return tuple(c for c in merged if c != blank)


def sequences(logits, blank):
    """Return the probability of each sequence of labels."""
    log_p, sequence_probabilities = log_softmax(logits), {}
    for alignment in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        p = np.exp(sum(log_p[t, c] for t, c in enumerate(alignment)))
        labels = meaning(alignment, blank)
        sequence_probabilities[labels] = sequence_probabilities.get(labels, 0.0) + p
    return sequence_probabilities


CASES = [
    (0, [[1, 2], [2, 2], [1, 0]], [2, 2, 1]),
    (2, [[0, 0], [1, 0], [1, 1]], [2, 0, 1]),
]


@pytest.mark.parametrize("blank, labels, counts", CASES)
def test_loss_sums_over_all_alignments(blank, labels, counts):
    arguments = np.array(labels, np.int32), np.array(counts, np.int32)
    actual = ops.ctc_loss(arguments[0], LOGITS, arguments[1], STEPS, mask_index=blank)
    expected = [
        -np.log(sequences(x[:steps], blank)[tuple(row[:count])])
        for x, steps, row, count in zip(LOGITS, STEPS, labels, counts, strict=True)
    ]
    assert_close(actual, expected, factor=10)


def test_loss_has_gradients():
    blank, labels, counts = CASES[0]
    labels, counts = np.array(labels, np.int32), np.array(counts, np.int32)
    check_grads(lambda x: ops.ctc_loss(labels, x, counts, STEPS), [LOGITS])


@pytest.mark.parametrize("blank", [0, 2])
def test_beam_search_finds_the_best_sequences(blank):
    labels, scores = ops.ctc_decode(
        LOGITS, STEPS, "beam_search", beam_width=40, top_paths=3, mask_index=blank
    )
    assert (labels.shape, scores.shape) == ((3, 3, 4), (3, 3))
    for i, steps in enumerate(STEPS):
        by_sequence = sequences(LOGITS[i, :steps], blank)
        best = sorted(by_sequence, key=by_sequence.get, reverse=True)[:3]
        assert_close(scores[i], np.log([by_sequence[b] for b in best]), factor=10)
        for actual, expected in zip(labels.numpy()[:, i], best, strict=True):
            assert actual.tolist() == [*expected, *[-1] * (4 - len(expected))]


def test_labels_without_an_alignment_have_no_gradient():
    """Three equal labels need five steps; the other samples are unchanged."""
    labels = np.array([[1, 1, 1], [2, 1, 0], [1, 0, 0]], "int32")
    x = toolkit.Variable(LOGITS.astype("float32"))
    with toolkit.GradientTape() as tape:
        cost = ops.ctc_loss(labels, x, np.array([3, 2, 1]), STEPS)
        total = ops.sum(cost)
    gradient = np.abs(tape.gradient(total, x).numpy()).max(axis=(1, 2))
    assert cost[0] == np.float32(708.4) and max(cost[1:]) < 10
    assert gradient[0] == 0 and min(gradient[1:]) > 0


def test_greedy_decoding():
    best = np.array([[1, 1, 0, 1], [2, 2, 2, 0]])
    logits = np.eye(3)[best] * 3.0
    lengths = np.array([4, 2], np.int32)
    labels, scores = ops.ctc_decode(logits, lengths)
    assert labels.tolist() == [[[1, 1, -1, -1], [2, -1, -1, -1]]]
    assert scores.tolist() == [[-12.0], [-6.0]]
    labels, _ = ops.ctc_decode(logits, lengths, merge_repeated=False)
    assert labels.tolist() == [[[1, 1, 1, -1], [2, 2, -1, -1]]]


@pytest.mark.parametrize("strategy", ["greedy", "beam_search"])
def test_decoding_is_traced(strategy):
    def decode(x):
        return ops.ctc_decode(x, STEPS, strategy, beam_width=5, top_paths=1)

    x = ops.convert_to_tensor(LOGITS.astype("float32"))
    for traced, eager in zip(toolkit.function(decode)(x), decode(x), strict=True):
        assert_close(traced, eager.numpy())


def test_invalid_arguments_are_refused():
    with pytest.raises(errors.ArgumentError, match="strategy"):
        ops.ctc_decode(LOGITS, STEPS, "best")
    with pytest.raises(errors.ArgumentError, match="top_paths"):
        ops.ctc_decode(LOGITS, STEPS, "beam_search", beam_width=2, top_paths=3)
    with pytest.raises(errors.ShapeError, match="ctc_loss"):
        ops.ctc_loss(np.ones((2, 2)), LOGITS, np.ones(2), STEPS)
