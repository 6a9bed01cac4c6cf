"""Random numbers by rejection and by counting: gamma, beta, binomial, Poisson."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import extents_of
from toolkit.random.draws import checked_dtype, uniform_of
from toolkit.random.seeds import draw_seed

# Up to this number of trials of a binomial variable are counted one by one.
_FEW = 24


def gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Draw numbers from the gamma distribution with scale 1.

    Args:
        shape: shape of the result.
        alpha: > 0, the shape parameter; it broadcasts to `shape`.
        dtype: a floating dtype, floatx if None.
        seed: an integer, a SeedGenerator, or None for the global generator.

    Reference:
        Marsaglia and Tsang, A Simple Method for Generating Gamma Variables (2000).
    """
    shape, dtype = extents_of(shape), checked_dtype("gamma", dtype)
    return convert(_gamma(draw_seed(seed), shape, alpha, _wide(dtype)), dtype)


def beta(
    shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers from the beta distribution, between 0 and 1.

    Args:
        shape: shape of the result.
        alpha, beta: > 0, the parameters; they broadcast to `shape`.
        dtype, seed: as for `gamma`.
    """
    shape, dtype = extents_of(shape), checked_dtype("beta", dtype)
    keys = _two_keys(draw_seed(seed))
    x, y = (
        _gamma(key, shape, parameter, _wide(dtype))
        for key, parameter in zip(keys, (alpha, beta), strict=True)
    )
    return convert(x / (x + y), dtype)


def binomial(
    shape: Any, counts: Any, probabilities: Any, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers of successes from the binomial distribution.

    Args:
        shape: shape of the result.
        counts: >= 0, numbers of trials; they broadcast to `shape`.
        probabilities: probabilities of success, in [0, 1]; they broadcast to `shape`.
        dtype, seed: as for `gamma`.

    The time is proportional to the number of successes, or of failures if there are
    fewer.
    """
    shape, dtype = extents_of(shape), checked_dtype("binomial", dtype)
    n = ops.broadcast_to(convert(counts, "float64"), shape)
    p = ops.broadcast_to(convert(probabilities, "float64"), shape)
    key, n, p, certain = _halved(draw_seed(seed), n, p)
    rare = ops.minimum(p, 1 - p)
    log_failure = ops.log1p(-rare)

    def go_on(key: Tensor, trials: Tensor, successes: Tensor) -> Tensor:
        return ops.any(trials <= n)

    def step(key: Tensor, trials: Tensor, successes: Tensor) -> Any:
        # The number of trials up to the next success has a geometric distribution.
        key, step_key = _two_keys(key)
        u = 1 - uniform_of(step_key, shape, "float64")
        trials = trials + ops.floor(ops.log(u) / log_failure) + 1
        return key, trials, successes + ops.cast(trials <= n, "float64")

    zero = ops.zeros(shape, "float64")
    _, _, found = ops.while_loop(go_on, step, (key, zero, zero))
    return convert(certain + ops.where(p > 0.5, n - found, found), dtype)


# From this rate on the rejection method below is defined.
_LARGE_RATE = 10.0


def poisson(shape: Any, rate: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Draw numbers from the Poisson distribution.

    Args:
        shape: shape of the result.
        rate: >= 0, the mean; it broadcasts to `shape`. A negative rate gives NaN.
        dtype, seed: as for `gamma`.

    Reference:
        Hörmann, The transformed rejection method for generating Poisson random
        variables (1993).

    Example:
        >>> import toolkit
        >>> float(toolkit.random.poisson((2,), 0.0, seed=1)[0])
        0.0
    """
    shape, dtype = extents_of(shape), checked_dtype("poisson", dtype)
    rates = ops.broadcast_to(convert(rate, "float64"), shape)
    is_valid = ops.logical_and(rates >= 0, ops.isfinite(rates))
    is_large = ops.logical_and(is_valid, rates >= _LARGE_RATE)
    first, second = _two_keys(draw_seed(seed))
    few = _few_events(first, ops.where(is_valid & (rates < _LARGE_RATE), rates, 1.0))
    many = _many_events(second, ops.where(is_large, rates, _LARGE_RATE))
    y = ops.where(is_large, many, few)
    return convert(ops.where(is_valid, y, float("nan")), dtype)


def _few_events(key: Tensor, rates: Tensor) -> Tensor:
    """Return the first count whose cumulative probability is above a uniform one."""
    u = uniform_of(key, tuple(rates.shape), "float64")

    def is_below(k: Tensor, p: Tensor, total: Tensor) -> Tensor:
        return ops.any((total <= u) & (p > 0))

    def step(k: Tensor, p: Tensor, total: Tensor) -> Any:
        goes_on = (total <= u) & (p > 0)
        p = ops.where(goes_on, p * rates / (k + 1), p)
        return ops.where(goes_on, k + 1, k), p, ops.where(goes_on, total + p, total)

    first = ops.exp(-rates)
    return ops.while_loop(is_below, step, (ops.zeros_like(rates), first, first))[0]


def _many_events(key: Tensor, rates: Tensor) -> Tensor:
    b = 0.931 + 2.53 * ops.sqrt(rates)
    a = -0.059 + 0.02483 * b
    scale = ops.log(1.1239 + 1.1328 / (b - 3.4))
    certain = 0.9277 - 3.6224 / (b - 2)
    log_rates = ops.log(rates)

    def is_open(key: Tensor, y: Tensor) -> Tensor:
        return ops.any(y < 0)

    def step(key: Tensor, y: Tensor) -> Any:
        key, step_key = _two_keys(key)
        draws = uniform_of(step_key, (2, *rates.shape), "float64")
        u, v = draws[0] - 0.5, 1 - draws[1]
        edge = ops.maximum(0.5 - ops.abs(u), 1e-15)
        k = ops.floor((2 * a / edge + b) * u + rates + 0.43)
        bound = ops.maximum(k, 0.0) * log_rates - rates - ops.lgamma(k + 1)
        fits = ops.log(v) + scale - ops.log(a / (edge * edge) + b) <= bound
        fits = fits & ops.logical_or(edge >= 0.013, v <= edge)
        accepted = ops.logical_or((edge >= 0.07) & (v <= certain), fits)
        return key, ops.where(accepted & (k >= 0) & (y < 0), k, y)

    return ops.while_loop(is_open, step, (key, ops.full_like(rates, -1.0)))[1]


def _halved(key: Tensor, n: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    """Reduce the number of trials by halving; return also the certain successes.

    Of n uniform numbers, the successes are the numbers below p. The median has a beta
    distribution. If it is below p, all smaller numbers are successes.
    """

    def go_on(key: Tensor, n: Tensor, p: Tensor, certain: Tensor) -> Tensor:
        return ops.any(n > _FEW)

    def step(key: Tensor, n: Tensor, p: Tensor, certain: Tensor) -> Any:
        key, step_key = _two_keys(key)
        first, second = _two_keys(step_key)
        m = ops.floor(n / 2) + 1
        low = _gamma(first, n.shape, m, "float64")
        middle = low / (low + _gamma(second, n.shape, n + 1 - m, "float64"))
        below = middle <= p
        fewer = ops.where(below, n - m, m - 1)
        share = ops.where(below, (p - middle) / (1 - middle), p / middle)
        many = n > _FEW
        return (
            key,
            ops.where(many, fewer, n),
            ops.where(many, ops.clip(share, 0.0, 1.0), p),
            certain + ops.where(many & below, m, 0.0),
        )

    return ops.while_loop(go_on, step, (key, n, p, ops.zeros_like(n)))


def _wide(dtype: str) -> str:
    """Return the dtype to compute in."""
    return "float64" if dtype == "float64" else "float32"


def _two_keys(key: Tensor) -> tuple[Tensor, Tensor]:
    """Derive two keys from one, independent of the keys that seeds give."""
    words = ops.floor(uniform_of(key, (2, 2), "float64") * 2.0**32)
    keys = convert(convert(words, "int64"), "uint32")
    return keys[0], keys[1]


def _gamma(key: Tensor, shape: tuple[int, ...], alpha: Any, dtype: str) -> Tensor:
    alpha = ops.broadcast_to(convert(alpha, dtype), shape)
    key, last = _two_keys(key)
    d = ops.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    c = 1 / ops.sqrt(9 * d)

    def go_on(key: Tensor, y: Tensor) -> Tensor:
        return ops.any(y < 0)

    def step(key: Tensor, y: Tensor) -> Any:
        key, step_key = _two_keys(key)
        draws = uniform_of(step_key, (2, *shape), dtype)
        x = ops.sqrt(2.0) * ops.erfinv(2 * draws[0] - 1)
        v = (1 + c * x) ** 3
        bound = 0.5 * x * x + d - d * v + d * ops.log(ops.maximum(v, 1e-30))
        accepted = (v > 0) & (ops.log1p(-draws[1]) < bound) & (y < 0)
        return key, ops.where(accepted, d * v, y)

    _, y = ops.while_loop(go_on, step, (key, ops.full(shape, -1.0, dtype)))
    # For alpha < 1: the variable for alpha + 1, times a power of a uniform variable.
    small = (1 - uniform_of(last, shape, dtype)) ** (1 / alpha)
    return ops.where(alpha < 1, y * small, y)
