"""Tests of random numbers and class samplers: distributions, repeats and refusals."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, OutOfRangeError, ShapeError


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.7, 4.0, 9.9, 10.0, 35.0, 1e4, 1e9])
def test_poisson_numbers_have_mean_and_variance_of_their_rate(rate):
    x = toolkit.random.poisson((4000,), rate, "float64", seed=3).numpy()
    assert (x == np.floor(x)).all() and (x >= 0).all()
    error = 5 * np.sqrt(max(rate, 1e-9) / 4000)
    assert abs(x.mean() - rate) <= error
    assert abs(x.var() - rate) <= 5 * np.sqrt((rate + 2 * rate**2) / 4000) + 1e-9


@pytest.mark.parametrize("rate", [3.0, 12.0])
def test_poisson_numbers_have_their_probabilities(rate):
    import math

    x = toolkit.random.poisson((20000,), rate, seed=5).numpy().astype(int)
    counts = np.bincount(x, minlength=30)[:30]
    expected = [
        20000 * math.exp(-rate) * rate**k / math.factorial(k) for k in range(30)
    ]
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_poisson_numbers_in_traces_and_without_a_rate():
    draw = lambda: toolkit.random.poisson((5,), [0.5, 3, 20, 200, -1.0], seed=7)  # noqa: E731
    np.testing.assert_array_equal(draw(), toolkit.function(draw)())
    assert np.isnan(draw().numpy()).tolist() == [False] * 4 + [True]


def test_shapes_and_dtypes_of_counts():
    x = tf.random.poisson([3], [1.0, 20.0], dtype=tf.int32, seed=1)
    assert x.shape == (3, 2) and x.dtype == tf.int32
    y = tf.random.stateless_poisson([3, 2], [1, 2], [1.0, 20.0])
    assert y.shape == (3, 2) and y.dtype == tf.int32
    z = tf.random.stateless_binomial([3], [1, 2], 10.0, 0.5)
    assert z.dtype == tf.int32 and (z.numpy() <= 10).all()
    g = tf.random.stateless_gamma([1000], [1, 2], 3.0, 2.0)
    assert abs(float(tf.reduce_mean(g)) - 1.5) < 0.15


STATELESS = {
    "poisson": lambda seed: tf.random.stateless_poisson([8], seed, 30.0),
    "binomial": lambda seed: tf.random.stateless_binomial([8], seed, 100.0, 0.4),
    "gamma": lambda seed: tf.random.stateless_gamma([8], seed, 3.0),
    "shuffle": lambda seed: tf.random.experimental.stateless_shuffle(
        tf.range(20), seed
    ),
    "index": lambda seed: tf.random.experimental.index_shuffle(tf.range(20), seed, 19),
    "split": lambda seed: tf.random.split(seed, 4),
    "fold_in": lambda seed: tf.random.fold_in(seed, 3),
    "truncated": lambda seed: tf.random.stateless_parameterized_truncated_normal(
        [8], seed
    ),
}


@pytest.mark.parametrize("name", STATELESS)
def test_the_same_seed_gives_the_same_numbers(name):
    function = STATELESS[name]
    one, repeated, other = (
        function(tf.constant(s)).numpy() for s in ([1, 2],) * 2 + ([3, 4],)
    )
    np.testing.assert_array_equal(one, repeated)
    assert (one != other).any()
    traced = tf.function(function)(tf.constant([1, 2]))
    np.testing.assert_allclose(traced, one, 1e-5)


def test_derived_seeds():
    seeds = tf.random.split(tf.constant([1, 2]), 100).numpy()
    assert seeds.shape == (100, 2) and len({tuple(s) for s in seeds}) == 100
    folded = [tf.random.fold_in([1, 2], i).numpy() for i in range(100)]
    assert len({tuple(s) for s in folded}) == 100
    with pytest.raises(ShapeError, match="seed: expected two integers"):
        tf.random.split([1, 2, 3])


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (3, 4), (-9, -6), (-1, 8)])
def test_bounds_of_truncated_normal_numbers(low, high):
    x = tf.random.stateless_parameterized_truncated_normal(
        [4000], [1, 2], minvals=float(low), maxvals=float(high)
    ).numpy()
    assert (low <= x).all() and (x <= high).all()
    points = np.linspace(low, high, 4001)
    density = np.exp(-(points**2) / 2)
    mean = (points * density).sum() / density.sum()
    assert abs(x.mean() - mean) < 0.08


def test_numbers_of_a_generator():
    generator = tf.random.Generator.from_seed(1)
    assert generator.make_seeds(3).shape == (2, 3)
    assert generator.uniform_full_int([2], tf.int64).dtype == tf.int64
    assert generator.binomial([4], 10.0, 0.5).dtype == tf.int32
    assert tf.random.Algorithm.PHILOX == tf.random.experimental.Algorithm.PHILOX


SAMPLERS = {
    "uniform": lambda *a: tf.random.uniform_candidate_sampler(*a, seed=1),
    "log_uniform": lambda *a: tf.random.log_uniform_candidate_sampler(*a, seed=1),
    "unigram": lambda *a: tf.nn.fixed_unigram_candidate_sampler(
        *a, unigrams=[float(i + 1) for i in range(10)], seed=1
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("unique", [False, True])
def test_expected_counts_are_means_of_counts(name, unique):
    counts, expected = np.zeros(10), np.zeros(10)
    everything = np.arange(10)[None]
    for _ in range(400):
        sampled, true, _ = SAMPLERS[name](everything, 10, 4, unique, 10)
        np.add.at(counts, sampled.numpy(), 1)
        expected += true.numpy()[0]
        assert not unique or len(set(sampled.numpy())) == 4
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 5).all()


def test_reserved_classes_and_files_of_weights(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("a,1\nb,0\nc,3\n", encoding="utf-8")
    sampled, true, _ = tf.nn.fixed_unigram_candidate_sampler(
        [[0, 1, 3]], 3, 50, False, 4, vocab_file=str(file), num_reserved_ids=1
    )
    assert set(sampled.numpy()) == {1, 3}
    np.testing.assert_allclose(true, [[0, 12.5, 37.5]])


REFUSED = {
    "uniform([[0]], 1, 11, True, 10)": (ArgumentError, "num_sampled"),
    "uniform([[0]], 2, 3, True, 10)": (ShapeError, r"\(batch, 2\)"),
    "uniform([0], 1, 3, True, 10)": (ShapeError, r"\(batch, 1\)"),
    "uniform([[20]], 1, 3, True, 10)": (OutOfRangeError, "uniform_candidate_sampler"),
    "unigram([[0]], 1, 3, True, 9)": (ArgumentError, "range_max=10"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_refusals_of_samplers(call):
    error, message = REFUSED[call]
    with pytest.raises(error, match=message):
        eval(call, SAMPLERS)


def test_sampled_losses_train():
    toolkit.utils.set_random_seed(0)
    weights = tf.Variable(tf.random.normal((50, 8), seed=1))
    biases = tf.Variable(tf.zeros(50))
    inputs = tf.random.normal((32, 8), seed=2)
    labels = tf.reshape(tf.range(32, dtype=tf.int64), (32, 1))
    optimizer = tf.keras.optimizers.Adam(0.1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            options = weights, biases, labels, inputs, 10, 50
            loss = tf.reduce_mean(tf.nn.sampled_softmax_loss(*options))
            loss = loss + tf.reduce_mean(tf.nn.nce_loss(*options))
        variables = [weights, biases]
        optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        return loss

    losses = [float(step()) for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_the_smallest_elements():
    x = tf.constant([[1.0, 4.0, 2.0], [3.0, 0.0, 9.0]])
    values, indices = tf.math.approx_min_k(x, 1, reduction_dimension=0)
    assert values.numpy().tolist() == [[1, 0, 2]]
    assert indices.numpy().tolist() == [[0, 1, 0]] and indices.dtype == tf.int32
