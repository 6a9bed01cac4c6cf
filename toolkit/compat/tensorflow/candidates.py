"""Candidate sampling: samplers of classes, and losses over many classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import ops, random as core
from toolkit.compat.tensorflow.arguments import check_within, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.seeds import source
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import Array, SeedLike, TensorLike

Candidates = tuple[Tensor, Tensor, Tensor]
# A logit whose class has probability 0.
_LOWEST = float(np.finfo(np.float32).min)


# --- samplers -------------------------------------------------------------------------


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes with equal probability.

    Args:
        true_classes: (batch, num_true), the classes of the samples.
        num_true: the number of classes of a sample.
        num_sampled: the number of classes to draw.
        unique: whether each class is drawn once at most.
        range_max: the number of classes.
        seed: of the operation.

    Returns:
        The drawn classes, (num_sampled,), int64; and the expected counts of the true
        classes and of the drawn classes.
    """
    weights = np.ones(int(range_max))
    sizes = num_true, num_sampled, unique
    return _sample_classes(
        "uniform_candidate_sampler", true_classes, *sizes, weights, seed
    )


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes with probability log((k + 2) / (k + 1)) / log(range_max + 1).

    This is a model for words in the order of their frequency. Arguments and results are
    as in `uniform_candidate_sampler`.
    """
    weights = np.log1p(1 / (np.arange(int(range_max)) + 1.0))
    sizes = num_true, num_sampled, unique
    name = "log_uniform_candidate_sampler"
    return _sample_classes(name, true_classes, *sizes, weights, seed)


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
    seed: Any = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes with the probabilities of a list or a file.

    Args:
        true_classes, num_true, num_sampled, unique, range_max, seed: as in
            `uniform_candidate_sampler`.
        vocab_file: a file with one class per line, whose last field after a comma is
            its weight; the alternative is `unigrams`.
        distortion: the exponent of the weights.
        num_reserved_ids: the number of classes before the first class of the list;
            they are never drawn.
        num_shards, shard: only 1 and 0.
        unigrams: the weights.

    Raises:
        ArgumentError: neither or both of vocab_file and unigrams are given, or the
            number of weights is not range_max.
    """
    name = "fixed_unigram_candidate_sampler"
    refuse(name, num_shards=(num_shards, 1), shard=(shard, 0))
    if bool(vocab_file) == bool(len(unigrams)):
        raise ArgumentError(f"{name}: expected either vocab_file or unigrams")
    if vocab_file:
        lines = Path(vocab_file).read_text("utf-8").splitlines()
        unigrams = [float(line.rsplit(",", 1)[-1]) for line in lines if line.strip()]
    weights = np.asarray(unigrams, "float64") ** distortion
    weights = np.concatenate([np.zeros(int(num_reserved_ids)), weights])
    if len(weights) != int(range_max):
        raise ArgumentError(
            f"{name}: expected range_max={len(weights)}, the number of classes; "
            f"received {range_max}"
        )
    sizes = num_true, num_sampled, unique
    return _sample_classes(name, true_classes, *sizes, weights, seed)


def all_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Candidates:
    """Return the classes below num_sampled, and ones.

    `unique` and `seed` have no effect: each class is drawn once.
    """
    classes = _validate_true_classes(
        "all_candidate_sampler", true_classes, num_true, None
    )
    count = int(num_sampled)
    return ops.arange(count, dtype="int64"), ops.ones(classes.shape), ops.ones((count,))


def _validate_true_classes(
    function: str, classes: Any, num_true: int, limit: int | None
) -> Tensor:
    classes = convert(classes, "int64")
    if classes.ndim != 2 or classes.shape[1] != int(num_true):
        raise ShapeError(
            f"{function}: expected true_classes of shape (batch, {num_true}); received "
            f"{tuple(classes.shape)}"
        )
    if limit is not None:
        check_within(function, classes, limit)
    return classes


def _sample_classes(
    function: str,
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    weights: Array,
    seed: SeedLike,
) -> Candidates:
    """Draw classes by their weights, and return their expected counts."""
    classes = _validate_true_classes(function, true_classes, num_true, len(weights))
    count, p = int(num_sampled), weights / weights.sum()
    if count < 1 or unique and count > np.count_nonzero(p):
        raise ArgumentError(
            f"{function}: expected num_sampled from 1 to the number of classes, "
            f"{np.count_nonzero(p)}; received {count}"
        )
    key = source(seed)
    with np.errstate(divide="ignore"):
        logits = convert(np.log(p)[None], "float32")
    if not unique:
        samples = core.categorical(logits, count, "int64", key)[0]
        expected = convert(p * count, "float32")
        return samples, ops.take(expected, classes, 0), ops.take(expected, samples, 0)
    # Gumbel top-k: the order of the first occurrences in draws with replacement.
    noise = -ops.log(-ops.log(core.uniform((1, len(p)), 1e-30, 1.0, seed=key)))
    samples = ops.cast(ops.top_k(logits + noise, count)[1][0], "int64")
    met = ops.cumsum(ops.take(convert(p, "float32"), samples, 0))[:-1]
    # The number of draws until the next new class has a geometric distribution.
    waits = ops.log(core.uniform(met.shape, 1e-30, 1.0, seed=key))
    waits = 1 + ops.floor(waits / ops.log(ops.minimum(met, 1 - 1e-6)))
    tries = 1 + ops.sum(waits)

    def expected_count(which: Tensor) -> Tensor:
        log_complement = ops.log1p(-ops.take(convert(p, "float32"), which, 0))
        return -ops.expm1(tries * log_complement)

    return samples, expected_count(classes), expected_count(samples)


def compute_accidental_hits(
    true_classes: TensorLike,
    sampled_candidates: TensorLike,
    num_true: int,
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Candidates:
    """Return the drawn classes that are true classes; `seed` has no effect.

    Args:
        true_classes: (batch, num_true).
        sampled_candidates: (num_sampled,).
        num_true: the number of classes of a sample.

    Returns:
        The sample, int32, and the index of the drawn class, int64, of each hit; and for
        each hit the lowest float32, to add to its logit.
    """
    function = "compute_accidental_hits"
    classes = np.asarray(_validate_true_classes(function, true_classes, num_true, None))
    candidates = np.asarray(convert(sampled_candidates, "int64"))
    rows, _, numbers = np.nonzero(classes[:, :, None] == candidates)
    weights = np.full(len(rows), _LOWEST, "float32")
    return convert(rows, "int32"), convert(numbers, "int64"), convert(weights)


# --- losses ---------------------------------------------------------------------------


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: TensorLike,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the cross entropy of a softmax over true and drawn classes.

    Args:
        weights: (num_classes, features), or a list of its parts along the first axis.
        biases: (num_classes,).
        labels: (batch, num_true), classes.
        inputs: (batch, features).
        num_sampled: the number of classes to draw for the batch.
        num_classes: the number of classes.
        num_true: the number of labels of a sample.
        sampled_values: the result of a sampler; `log_uniform_candidate_sampler` by
            default.
        remove_accidental_hits: whether to ignore drawn classes that are labels.
        seed: of the sampler.

    Returns:
        (batch,).
    """
    sampled = sampled_values or log_uniform_candidate_sampler(
        labels, num_true, num_sampled, True, num_classes, seed
    )
    logits, targets = _compute_sampled_logits(
        *("sampled_softmax_loss", weights, biases, labels, inputs, num_true),
        *(sampled, remove_accidental_hits),
    )
    return ops.negative(ops.sum(targets * ops.log_softmax(logits, -1), -1))


def nce_loss(
    weights: Any,
    biases: Any,
    labels: TensorLike,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the loss of noise contrastive estimation.

    Args:
        weights, biases, labels, inputs, num_sampled, num_classes, num_true,
            sampled_values, remove_accidental_hits: as in `sampled_softmax_loss`.

    Returns:
        (batch,).
    """
    sampled = sampled_values or log_uniform_candidate_sampler(
        labels, num_true, num_sampled, True, num_classes
    )
    logits, targets = _compute_sampled_logits(
        *("nce_loss", weights, biases, labels, inputs, num_true),
        *(sampled, remove_accidental_hits),
    )
    return ops.sum(ops.softplus(logits) - targets * logits, -1)


def _compute_sampled_logits(
    function: str,
    weights: Any,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_true: int,
    sampled: tuple[Tensor, ...],
    removes_hits: bool,
) -> tuple[Tensor, Tensor]:
    """Return logits and targets, (batch, num_true + num_sampled)."""
    if isinstance(weights, (list, tuple)):
        weights = ops.concatenate([convert(shard) for shard in weights], 0)
    weights, biases, x = convert(weights), convert(biases), convert(inputs)
    classes = _validate_true_classes(function, labels, num_true, weights.shape[0])
    if x.ndim != 2 or x.shape[1:] != weights.shape[1:]:
        raise ShapeError(
            f"{function}: expected inputs (batch, {weights.shape[-1]}) for weights of "
            f"shape {tuple(weights.shape)}; received {tuple(x.shape)}"
        )
    candidates, *counts = (ops.stop_gradient(y) for y in sampled)
    true_log, drawn_log = (convert(ops.log(count), x.dtype) for count in counts)
    rows = ops.take(weights, classes, 0)
    true = ops.sum(rows * ops.expand_dims(x, 1), -1) + ops.take(biases, classes, 0)
    other = ops.matmul(x, ops.transpose(ops.take(weights, candidates, 0)))
    other = other + ops.take(biases, candidates, 0)
    if removes_hits:
        candidates = ops.cast(candidates, "int64")
        hits = ops.any(ops.equal(ops.expand_dims(classes, 2), candidates), 1)
        other = ops.where(hits, _LOWEST, other)
    logits = ops.concatenate([true - true_log, other - drawn_log], -1)
    targets = [ops.full_like(true, 1 / int(num_true)), ops.zeros_like(other)]
    return logits, ops.concatenate(targets, -1)


make_operations(__name__)
