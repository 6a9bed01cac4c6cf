"""Random numbers by rejection and by counting: gamma, beta, binomial, Poisson."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.operation_replays import replayed
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import extents_of
from toolkit.random.draws import check_dtype, draw_uniform
from toolkit.random.seeds import draw_seed

# The largest number of trials of a binomial variable that are counted individually.
_MAX_COUNTED_TRIALS = 24


def gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Draw numbers from the gamma distribution with scale 1.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        alpha: the shape parameter, > 0, which broadcasts to `shape`. It is the mean.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Reference:
        Marsaglia and Tsang, A Simple Method for Generating Gamma Variables (2000),
            doi:10.1145/358407.358414

    Example:
        >>> from toolkit import ops, random
        >>> x = random.gamma((10000,), alpha=3.0, seed=1)
        >>> round(float(ops.mean(x)), 1)
        3.0
    """
    shape, dtype = extents_of(shape), check_dtype("gamma", dtype)
    return convert(
        _draw_gamma(draw_seed(seed), shape, alpha, _compute_dtype(dtype)), dtype
    )


def beta(
    shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers from the beta distribution on [0, 1].

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        alpha: the first parameter, > 0, which broadcasts to `shape`.
        beta: the second parameter, > 0, which broadcasts to `shape`. The mean is alpha
            / (alpha + beta).
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops, random
        >>> x = random.beta((10000,), alpha=1.0, beta=3.0, seed=1)
        >>> round(float(ops.mean(x)), 2)
        0.25
    """
    shape, dtype = extents_of(shape), check_dtype("beta", dtype)
    keys = _split_key(draw_seed(seed))
    x, y = (
        _draw_gamma(key, shape, parameter, _compute_dtype(dtype))
        for key, parameter in zip(keys, (alpha, beta), strict=True)
    )
    return convert(x / (x + y), dtype)


def binomial(
    shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers of successes from the binomial distribution.

    The time is proportional to the number of successes, or of failures if there are
    fewer.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        counts: the numbers of trials, >= 0, which broadcast to `shape`.
        probabilities: the probabilities of success, in [0, 1], which broadcast to
            `shape`.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`, with whole numbers in [0, counts].

    Example:
        >>> from toolkit import random
        >>> random.binomial((3,), counts=5, probabilities=1.0, seed=1).tolist()
        [5.0, 5.0, 5.0]
    """
    shape, dtype = extents_of(shape), check_dtype("binomial", dtype)
    n = ops.broadcast_to(convert(counts, "float64"), shape)
    p = ops.broadcast_to(convert(probabilities, "float64"), shape)
    key, n, p, certain = _halve_trials(draw_seed(seed), n, p)
    log_failure = ops.log1p(-ops.minimum(p, 1 - p))

    def needs_step(key: Tensor, trials: Tensor, successes: Tensor) -> Tensor:
        return ops.any(trials <= n)

    def step(key: Tensor, trials: Tensor, successes: Tensor) -> Any:
        return _binomial_step(key, trials, successes, n, log_failure)

    zero = ops.zeros(shape, "float64")
    _, _, counted_successes = ops.while_loop(needs_step, step, (key, zero, zero))
    return convert(
        certain + ops.where(p > 0.5, n - counted_successes, counted_successes), dtype
    )


@replayed
def _binomial_step(
    key: Tensor, trials: Tensor, successes: Tensor, n: Tensor, log_failure: Tensor
) -> tuple[Tensor, ...]:
    """Add the trials up to the next success, which have a geometric distribution."""
    key, step_key = _split_key(key)
    u = 1 - draw_uniform(step_key, tuple(n.shape), "float64")
    trials = trials + ops.floor(ops.log(u) / log_failure) + 1
    return key, trials, successes + ops.cast(trials <= n, "float64")


# From this rate on the rejection method below is defined.
_LARGE_RATE = 10.0


def poisson(shape: Any, rate: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Draw numbers from the Poisson distribution.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        rate: the mean, >= 0, which broadcasts to `shape`. A negative rate gives NaN.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`, with whole numbers.

    Reference:
        Hörmann, The Transformed Rejection Method for Generating Poisson Random
            Variables (1993), doi:10.1016/0167-6687(93)90997-4

    Example:
        >>> from toolkit import ops, random
        >>> x = random.poisson((10000,), rate=4.0, seed=1)
        >>> round(float(ops.mean(x)), 1)
        4.0
    """
    shape, dtype = extents_of(shape), check_dtype("poisson", dtype)
    rates = ops.broadcast_to(convert(rate, "float64"), shape)
    is_valid = ops.logical_and(rates >= 0, ops.isfinite(rates))
    is_large = ops.logical_and(is_valid, rates >= _LARGE_RATE)
    small_key, large_key = _split_key(draw_seed(seed))
    small_counts = _draw_small_counts(
        # A rate of 0 needs no steps.
        small_key,
        ops.where(is_valid & (rates < _LARGE_RATE), rates, 0.0),
    )
    large_counts = _draw_large_counts(
        large_key, ops.where(is_large, rates, _LARGE_RATE), is_large
    )
    y = ops.where(is_large, large_counts, small_counts)
    return convert(ops.where(is_valid, y, float("nan")), dtype)


def _draw_small_counts(key: Tensor, rates: Tensor) -> Tensor:
    """Return the first count whose cumulative probability is above a uniform one."""
    u = draw_uniform(key, tuple(rates.shape), "float64")

    def needs_step(k: Tensor, p: Tensor, total: Tensor) -> Tensor:
        return ops.any((total <= u) & (p > 0))

    def step(k: Tensor, p: Tensor, total: Tensor) -> Any:
        return _count_step(k, p, total, u, rates)

    p_zero = ops.exp(-rates)
    return ops.while_loop(needs_step, step, (ops.zeros_like(rates), p_zero, p_zero))[0]


@replayed
def _count_step(
    k: Tensor, p: Tensor, total: Tensor, u: Tensor, rates: Tensor
) -> tuple[Tensor, ...]:
    """Add the probability of the next count where the total is below u."""
    is_active = (total <= u) & (p > 0)
    p = ops.where(is_active, p * rates / (k + 1), p)
    return ops.where(is_active, k + 1, k), p, ops.where(is_active, total + p, total)


def _draw_large_counts(key: Tensor, rates: Tensor, is_needed: Tensor) -> Tensor:
    """Return counts where they are needed, and 0 elsewhere."""

    def needs_step(key: Tensor, y: Tensor) -> Tensor:
        return ops.any(y < 0)

    def step(key: Tensor, y: Tensor) -> Any:
        return _rejection_step(key, y, rates)

    initial = ops.where(is_needed, -1.0, ops.zeros_like(rates))
    return ops.while_loop(needs_step, step, (key, initial))[1]


@replayed
def _rejection_step(key: Tensor, y: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Draw the counts that are still negative; some of them stay negative."""
    b = 0.931 + 2.53 * ops.sqrt(rates)
    a = -0.059 + 0.02483 * b
    scale = ops.log(1.1239 + 1.1328 / (b - 3.4))
    squeeze = 0.9277 - 3.6224 / (b - 2)
    key, step_key = _split_key(key)
    draws = draw_uniform(step_key, (2, *rates.shape), "float64")
    u, v = draws[0] - 0.5, 1 - draws[1]
    edge = ops.maximum(0.5 - ops.abs(u), 1e-15)
    k = ops.floor((2 * a / edge + b) * u + rates + 0.43)
    bound = ops.maximum(k, 0.0) * ops.log(rates) - rates - ops.lgamma(k + 1)
    is_accepted = ops.log(v) + scale - ops.log(a / (edge * edge) + b) <= bound
    is_accepted = is_accepted & ops.logical_or(edge >= 0.013, v <= edge)
    is_drawn = ops.logical_or((edge >= 0.07) & (v <= squeeze), is_accepted)
    return key, ops.where(is_drawn & (k >= 0) & (y < 0), k, y)


def _halve_trials(key: Tensor, n: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    """Reduce the number of trials by halving; return also the certain successes.

    Of n uniform numbers, the successes are the numbers below p. The median has a beta
    distribution. If it is below p, all smaller numbers are successes.
    """

    def needs_step(key: Tensor, n: Tensor, p: Tensor, certain: Tensor) -> Tensor:
        return ops.any(n > _MAX_COUNTED_TRIALS)

    def step(key: Tensor, n: Tensor, p: Tensor, certain: Tensor) -> Any:
        key, step_key = _split_key(key)
        first_key, second_key = _split_key(step_key)
        m = ops.floor(n / 2) + 1
        lower_gamma = _draw_gamma(first_key, n.shape, m, "float64")
        median = lower_gamma / (
            lower_gamma + _draw_gamma(second_key, n.shape, n + 1 - m, "float64")
        )
        is_below = median <= p
        remaining_trials = ops.where(is_below, n - m, m - 1)
        remaining_p = ops.where(is_below, (p - median) / (1 - median), p / median)
        needs_halving = n > _MAX_COUNTED_TRIALS
        return (
            key,
            ops.where(needs_halving, remaining_trials, n),
            ops.where(needs_halving, ops.clip(remaining_p, 0.0, 1.0), p),
            certain + ops.where(needs_halving & is_below, m, 0.0),
        )

    return ops.while_loop(needs_step, step, (key, n, p, ops.zeros_like(n)))


def _compute_dtype(dtype: str) -> str:
    """Return the dtype to compute in."""
    return "float64" if dtype == "float64" else "float32"


@replayed
def _split_key(key: Tensor) -> tuple[Tensor, Tensor]:
    """Derive two keys from one, independent of the keys that seeds give."""
    words = ops.floor(draw_uniform(key, (2, 2), "float64") * 2.0**32)
    keys = convert(convert(words, "int64"), "uint32")
    return keys[0], keys[1]


def _draw_gamma(
    key: Tensor, shape: tuple[int, ...], alpha: Tensor | float, dtype: str
) -> Tensor:
    alpha = ops.broadcast_to(convert(alpha, dtype), shape)
    key, power_key = _split_key(key)
    c, d = _gamma_constants(alpha)

    def needs_step(key: Tensor, y: Tensor) -> Tensor:
        return ops.any(y < 0)

    def step(key: Tensor, y: Tensor) -> Any:
        return _gamma_step(key, y, c, d)

    _, y = ops.while_loop(needs_step, step, (key, ops.full(shape, -1.0, dtype)))
    return _correct_small_alpha(power_key, y, alpha)


@replayed
def _gamma_constants(alpha: Tensor) -> tuple[Tensor, Tensor]:
    d = ops.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    return 1 / ops.sqrt(9 * d), d


@replayed
def _gamma_step(key: Tensor, y: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Draw the numbers that are still negative; some of them stay negative."""
    key, step_key = _split_key(key)
    draws = draw_uniform(step_key, (2, *y.shape), y.dtype)
    x = ops.sqrt(2.0) * ops.erfinv(2 * draws[0] - 1)
    v = (1 + c * x) ** 3
    bound = 0.5 * x * x + d - d * v + d * ops.log(ops.maximum(v, 1e-30))
    is_accepted = (v > 0) & (ops.log1p(-draws[1]) < bound) & (y < 0)
    return key, ops.where(is_accepted, d * v, y)


@replayed
def _correct_small_alpha(key: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """For alpha < 1, multiply the variable for alpha + 1 by a random power."""
    power = (1 - draw_uniform(key, tuple(y.shape), y.dtype)) ** (1 / alpha)
    return ops.where(alpha < 1, y * power, y)
