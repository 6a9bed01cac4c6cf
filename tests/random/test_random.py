"""Test random numbers: seeds, bits, moments, bounds and errors."""

import random as python_random

import numpy as np
import pytest

from toolkit import errors, function, ops, random
from toolkit.autodiff.tape import GradientTape
from toolkit.ops.symbolic import KerasTensor

DRAWS = {
    "uniform": lambda seed: random.uniform((3, 5), -1.0, 2.0, seed=seed),
    "normal": lambda seed: random.normal((3, 5), 1.0, 2.0, seed=seed),
    "gamma": lambda seed: random.gamma((3, 5), [0.5, 1.0, 2.0, 3.0, 9.0], seed=seed),
    "beta": lambda seed: random.beta((3, 5), 2.0, 3.0, seed=seed),
    "binomial": lambda seed: random.binomial((3, 5), 9.0, 0.3, seed=seed),
    "truncated_normal": lambda seed: random.truncated_normal((3, 5), seed=seed),
    "randint": lambda seed: random.randint((3, 5), -3, 9, seed=seed),
    "categorical": lambda seed: random.categorical(np.zeros((3, 4)), 5, seed=seed),
    "dropout": lambda seed: random.dropout(np.ones((3, 5), "f"), 0.5, seed=seed),
    "shuffle": lambda seed: random.shuffle(np.arange(15).reshape(5, 3), seed=seed),
}


@pytest.fixture(params=DRAWS)
def draw(request):
    return DRAWS[request.param]


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b))


def close(a, b):
    return np.allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


# --- seeds ----------------------------------------------------------------------------


def test_integer_seed_gives_equal_bits_each_time(draw):
    assert same(draw(1), draw(1))
    assert not same(draw(1), draw(2))


def test_generator_gives_new_numbers_each_time(draw):
    seeds, same_seeds = random.SeedGenerator(1), random.SeedGenerator(1)
    first, second = draw(seeds), draw(seeds)
    assert not same(first, second)
    assert same(first, draw(1))  # a new generator starts at the integer's key
    assert same(first, draw(same_seeds)) and same(second, draw(same_seeds))


def test_draws_without_a_seed_depend_on_set_random_seed(draw):
    random.set_random_seed(3)
    first, second = draw(None), draw(None)
    assert not same(first, second)
    random.set_random_seed(3)
    assert same(first, draw(None)) and same(second, draw(None))
    random.set_random_seed(4)
    assert not same(first, draw(None))


def test_traced_draws_equal_eager_draws(draw):
    eager, traced = random.SeedGenerator(1), random.SeedGenerator(1)
    step = function(lambda x: (draw(traced), draw(traced), draw(7)))
    for _ in range(3):
        actual = step(np.zeros(()))
        # The bits are equal, and the values computed from them are equal up to
        # rounding.
        assert all(map(close, actual, (draw(eager), draw(eager), draw(7))))
    assert step.trace_count == 1


def test_second_trace_uses_the_global_generator():
    random.set_random_seed(0)
    eager = [random.uniform((2,)) for _ in range(3)]
    random.set_random_seed(0)
    step = function(lambda x: random.uniform((2,)) if x.ndim else x)
    step(np.zeros(()))
    for expected in eager:  # the first of these calls traces again
        assert same(step(np.zeros(1)), expected)


def test_set_random_seed_seeds_python_and_numpy():
    random.set_random_seed(5)
    first = python_random.random(), np.random.rand(), random.make_default_seed()
    random.set_random_seed(5)
    assert first == (
        *(python_random.random(), np.random.rand()),
        random.make_default_seed(),
    )


def test_bits_are_stable():
    """Check values of a fixed key: a change would break every seeded result."""
    key = np.array([1, 2], np.uint64)
    expected = np.random.Generator(np.random.Philox(key=key)).random(4, np.float32)
    seeds = random.SeedGenerator(1)
    for _ in range(2):
        seeds.next()
    assert same(random.uniform((4,), seed=seeds), expected)


def test_seed_generator():
    seeds = random.SeedGenerator(5, name="mine")
    assert seeds.next().numpy().tolist() == [5, 0]
    assert seeds.next(ordered=False).numpy().tolist() == [5, 1]
    assert seeds.state.path == "mine/seed_generator_state"
    assert not seeds.state.trainable
    assert seeds.get_config() == {"seed": 5, "name": "mine"}
    restored = random.SeedGenerator.from_config(seeds.get_config())
    assert restored.next().numpy().tolist() == [5, 0]
    random.set_random_seed(1)
    first = random.SeedGenerator().next()
    random.set_random_seed(1)
    assert same(first, random.SeedGenerator().next())


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "1"])
def test_invalid_seeds(seed):
    with pytest.raises(errors.ArgumentError, match="xpected .*an integer"):
        random.uniform((2,), seed=seed)
    with pytest.raises(errors.ArgumentError, match="xpected .*an integer"):
        random.SeedGenerator(seed)
    with pytest.raises(errors.ArgumentError, match="xpected .*an integer"):
        random.set_random_seed(seed)


# --- distributions --------------------------------------------------------------------

N = 200_000


def check_moments(x, mean, stddev):
    """Check moments within 5 standard errors, in float64."""
    x = np.asarray(x, np.float64)
    assert abs(x.mean() - mean) < 5 * stddev / np.sqrt(x.size)
    assert abs(x.std() - stddev) < 5 * stddev / np.sqrt(x.size)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_uniform(dtype):
    x = random.uniform((N,), dtype=dtype, seed=1)
    assert x.dtype == dtype
    values = np.asarray(x.numpy(), np.float64)
    assert values.min() >= 0 and values.max() < 1
    if dtype != "bfloat16":  # which rounds down to multiples of 1 / 256
        check_moments(values, 0.5, 1 / np.sqrt(12))
    check_moments(random.uniform((N,), 2, 5, seed=1), 3.5, 3 / np.sqrt(12))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normal(dtype):
    x = random.normal((N,), 1.0, 2.0, dtype, seed=1)
    assert x.dtype == dtype
    check_moments(x.numpy(), 1, 2)
    values = np.asarray(x.numpy(), np.float64)
    share = np.mean(abs(values - 1) < 2)
    assert abs(share - 0.6827) < 0.005
    halves = values[: N // 2] - 1, values[N // 2 :] - 1
    assert (
        abs(np.mean(halves[0] * halves[1])) < 0.06
    )  # the two numbers of a pair are independent


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0, 4), (2, 3, 5)])
def test_shapes(shape):
    for draw in (random.uniform, random.normal, random.truncated_normal):
        x = draw(shape, seed=1)
        assert (x.shape, x.dtype) == (shape, "float32")
    assert random.randint(shape, 0, 2, seed=1).shape == shape


def test_truncated_normal():
    x = random.truncated_normal((N,), 1.0, 3.0, seed=1).numpy()
    assert abs(x - 1).max() <= 6
    check_moments(x, 1, 3 * 0.87962566103423978)


@pytest.mark.parametrize(
    "draw, mean, variance",
    [
        (lambda **seed: random.gamma((N,), 0.5, **seed), 0.5, 0.5),
        (lambda **seed: random.gamma((N,), 3.0, **seed), 3.0, 3.0),
        (lambda **seed: random.beta((N,), 2.0, 3.0, **seed), 0.4, 0.04),
        (lambda **seed: random.binomial((N,), 10.0, 0.7, **seed), 7.0, 2.1),
        (lambda **seed: random.binomial((N,), 4.0, 0.0, **seed), 0.0, 0.0),
        (lambda **seed: random.binomial((N,), 4.0, 1.0, **seed), 4.0, 0.0),
    ],
)
def test_moments(draw, mean, variance):
    x = draw(seed=1).numpy()
    assert abs(x.mean() - mean) < 0.05 * (mean + 1)
    assert abs(x.var() - variance) < 0.05 * (variance + 1)


def test_randint():
    x = random.randint((N,), -2, 3, seed=1)
    assert x.dtype == "int32"
    assert np.unique(x.numpy()).tolist() == [-2, -1, 0, 1, 2]
    check_moments(x.numpy(), 0, np.sqrt(2))
    wide = random.randint((1000,), 0, 2**53, dtype="int64", seed=1).numpy()
    assert wide.dtype == np.int64 and len(np.unique(wide % 1024)) > 500
    low = np.array([0, 100])
    assert (
        random.randint((50, 2), low, low + 2, seed=1).numpy() // 100 == [0, 1]
    ).all()


def test_categorical():
    p = np.array([[0.1, 0.2, 0.7, 0.0], [1.0, 0.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype("f")
    x = random.categorical(logits, 50_000, dtype="int64", seed=1)
    assert (x.shape, x.dtype) == ((2, 50_000), "int64")
    for row, expected in zip(x.numpy(), p, strict=True):
        frequencies = np.bincount(row, minlength=4) / row.size
        assert abs(frequencies - expected).max() < 0.01
        assert (frequencies[expected == 0] == 0).all()


def test_dropout():
    x = np.full((400, 500), 2, np.float32)
    y = random.dropout(x, 0.25, seed=1).numpy()
    assert np.unique(y).tolist() == [0, np.float32(2 * (1 / 0.75))]
    assert abs(np.mean(y == 0) - 0.25) < 0.005
    assert same(random.dropout(x, 0.0), x)
    assert not random.dropout(x, 1.0).numpy().any()
    assert random.dropout(x.astype("float16"), 0.5, seed=1).dtype == "float16"


def test_dropout_with_a_noise_shape():
    x = np.ones((4, 6, 5), np.float32)
    y = random.dropout(x, 0.5, noise_shape=(None, 1, None), seed=1).numpy()
    assert (y == y[:, :1]).all() and 0 < (y == 0).mean() < 1
    with pytest.raises(errors.ShapeError, match="noise_shape"):
        random.dropout(x, 0.5, noise_shape=(3, 6, 5))


def test_gradient_of_dropout():
    x = ops.convert_to_tensor(np.ones((50,), np.float32))
    with GradientTape() as tape:
        tape.watch(x)
        y = random.dropout(x, 0.5, seed=1)
    assert same(tape.gradient(y, x), y)


def test_shuffle():
    x = np.arange(30).reshape(10, 3)
    y = random.shuffle(x, seed=1).numpy()
    assert not same(x, y) and same(np.sort(y, axis=0), x)
    z = random.shuffle(x, axis=1, seed=1).numpy()
    assert same(np.sort(z, axis=1), x) and same(z - z[:1], np.repeat(x[:, :1], 3, 1))


def test_symbols():
    x = KerasTensor((None, 4))
    assert random.dropout(x, 0.5).shape == (None, 4)
    assert random.categorical(x, 3).shape == (None, 3)
    assert random.shuffle(x).shape == (None, 4)


def test_invalid_arguments_of_random():
    with pytest.raises(errors.DTypeError, match="expected a floating dtype"):
        random.normal((2,), dtype="int32")
    with pytest.raises(errors.DTypeError, match="expected an integer dtype"):
        random.randint((2,), 0, 2, dtype="float32")
    with pytest.raises(errors.ArgumentError, match="minval=3, maxval=3"):
        random.randint((2,), 3, 3)
    with pytest.raises(errors.ArgumentError, match=r"rate in \[0, 1\]; received 1.5"):
        random.dropout(np.ones(2), 1.5)
    with pytest.raises(errors.ShapeError, match=r"logits of shape \(batch, classes\)"):
        random.categorical(np.ones(3), 2)
    with pytest.raises(errors.ArgumentError, match="shuffle: expected an axis"):
        random.shuffle(np.ones(3), axis=1)


def test_a_call_that_fails_draws_one_key():
    seeds, same_seeds = random.SeedGenerator(1), random.SeedGenerator(1)
    for _ in range(3):
        with pytest.raises(errors.ToolkitError):
            random.normal((2, -3), seed=seeds)
        same_seeds.next()
    np.testing.assert_array_equal(seeds.state, same_seeds.state)
