"""Random numbers from explicit keys: uniform, normal, categorical, permutations.

Philox generates them: the same key gives the same bits, traced or not.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes, ops
from toolkit.arguments import is_int
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.ir import Kind, Primitive, Spec, letters, primitive
from toolkit.ops.checks import extents_of
from toolkit.ops.symbolic import operation
from toolkit.random.seeds import draw_seed, drawing

random_uniform_p: Primitive = primitive(
    "random_uniform",
    Kind.RANDOM,
    lambda key, shape, dtype: Spec(shape, dtype),
    axes=lambda key, shape, dtype: f"_->{letters(len(shape))}",
)

# Significant bits of a half-precision float: this number of random bits fits exactly.
_HALF_BITS = {"bfloat16": 8, "float16": 11}
# P(|z| < 2) of a standard normal variable, erf(2 / sqrt(2)).
_ERF_OF_TWO = math.erf(math.sqrt(2))


def check_dtype(op: str, dtype: object) -> str:
    """Return the name of a dtype that must be floating."""
    name = dtypes.standardize(dtype)
    if not dtypes.is_float(name):
        raise DTypeError(f"random.{op}: expected a floating dtype; received {name}")
    return name


def draw_uniform(key: Tensor, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Return uniform numbers on [0, 1), in float64 for float64 and else in float32."""
    wide_dtype = "float64" if dtype == "float64" else "float32"
    return bind(random_uniform_p, key, shape=shape, dtype=wide_dtype)


def _draw_unit(seed: Any, shape: tuple[int, ...], dtype: str) -> Tensor:
    return draw_uniform(draw_seed(seed), shape, dtype)


@drawing
def uniform(
    shape: Any,
    minval: Any = 0.0,
    maxval: Any = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Tensor:
    """Draw numbers from the uniform distribution on [minval, maxval), up to rounding.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        minval: the lower bound, which broadcasts to `shape`.
        maxval: the upper bound, which broadcasts to `shape`.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops, random
        >>> x = random.uniform((1000,), seed=1)
        >>> round(float(ops.mean(x)), 1), bool(ops.all((x >= 0) & (x < 1)))
        (0.5, True)
    """
    dtype = check_dtype("uniform", dtype)
    x = _draw_unit(seed, extents_of(shape), dtype)
    if dtype in _HALF_BITS:
        steps = 2.0 ** _HALF_BITS[dtype]
        x = convert(ops.floor(x * steps) / steps, dtype)
    if isinstance(minval, float) and isinstance(maxval, float):
        return x if (minval, maxval) == (0, 1) else x * (maxval - minval) + minval
    low = convert(minval, dtype)
    return x * (convert(maxval, dtype) - low) + low


@drawing
def normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers from the normal distribution.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        mean: the mean, which broadcasts to `shape`.
        stddev: the standard deviation, which broadcasts to `shape`.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Reference:
        Box and Muller, A Note on the Generation of Random Normal Deviates (1958),
            doi:10.1214/aoms/1177706645

    Example:
        >>> from toolkit import ops, random
        >>> x = random.normal((10000,), mean=5.0, stddev=2.0, seed=1)
        >>> round(float(ops.mean(x)), 1), round(float(ops.std(x)), 1)
        (5.0, 2.0)
    """
    shape, dtype = extents_of(shape), check_dtype("normal", dtype)
    size = math.prod(shape)
    # Box-Muller transform: the angle and the radius of a point give two coordinates.
    pairs = _draw_unit(seed, (2, (size + 1) // 2), dtype)
    radius = ops.sqrt(-2.0 * ops.log1p(-pairs[0]))
    angle = (2 * math.pi) * pairs[1]
    points = ops.concatenate([radius * ops.cos(angle), radius * ops.sin(angle)])
    return _scale_and_shift(ops.reshape(points[:size], shape), mean, stddev, dtype)


def _scale_and_shift(x: Tensor, mean: Any, stddev: Any, dtype: str) -> Tensor:
    if (type(mean), type(stddev)) != (float, float) or (mean, stddev) != (0, 1):
        x = x * convert(stddev, x.dtype) + convert(mean, x.dtype)
    return convert(x, dtype)


@drawing
def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None
) -> Tensor:
    """Draw numbers from the normal distribution, within 2 standard deviations.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        mean: the mean, which broadcasts to `shape`.
        stddev: the standard deviation before the truncation, which broadcasts to
            `shape`.
        dtype: a floating dtype. None means floatx.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`, with elements in [mean - 2 *
        stddev, mean + 2 * stddev].

    Example:
        >>> from toolkit import ops, random
        >>> x = random.truncated_normal((1000,), seed=1)
        >>> bool(ops.all(ops.absolute(x) <= 2))
        True
    """
    dtype = check_dtype("truncated_normal", dtype)
    x = _draw_unit(seed, extents_of(shape), dtype) * 2.0 - 1.0
    z = math.sqrt(2) * ops.erfinv(_ERF_OF_TWO * x)
    return _scale_and_shift(ops.clip(z, -2.0, 2.0), mean, stddev, dtype)


@drawing
def randint(
    shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None
) -> Tensor:
    """Draw integers from the uniform distribution on [minval, maxval).

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        minval: the lowest integer, which broadcasts to `shape`.
        maxval: the end of the range, at most 2 ** 53 above `minval`, which broadcasts
            to `shape`.
        dtype: an integer dtype.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Raises:
        DTypeError: `dtype` is not an integer dtype.
        ArgumentError: the range is empty or too large.

    Example:
        >>> from toolkit import ops, random
        >>> x = random.randint((1000,), 1, 7, seed=1)  # a die
        >>> int(ops.min(x)), int(ops.max(x))
        (1, 6)
    """
    name = dtypes.standardize(dtype)
    if not dtypes.is_integer(name):
        raise DTypeError(f"random.randint: expected an integer dtype; received {name}")
    if is_int(minval) and is_int(maxval):
        if not 0 < maxval - minval <= 2**53:
            raise ArgumentError(
                "random.randint: expected 0 < maxval - minval <= 2 ** 53; received "
                f"minval={minval}, maxval={maxval}"
            )
    low, high = convert(minval, "int64"), convert(maxval, "int64")
    x = _draw_unit(seed, extents_of(shape), "float64")
    offset = convert(ops.floor(x * convert(high - low, "float64")), "int64")
    return convert(offset + low, name)


@operation
@drawing
def categorical(
    logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None
) -> Tensor:
    """Draw classes with the probabilities softmax(logits).

    Args:
        logits: (batch, classes), numbers.
        num_samples: the number of draws for each row.
        dtype: an integer dtype.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor of shape (batch, num_samples) and dtype `dtype`, with elements in [0,
        classes).

    Raises:
        ShapeError: `logits` does not have 2 axes.

    Example:
        >>> from toolkit import random
        >>> random.categorical([[0.0, 100.0, 0.0]], 4, seed=1).tolist()
        [[1, 1, 1, 1]]
    """
    (logits,) = floating(logits)
    if logits.ndim != 2:
        raise ShapeError(
            "random.categorical: expected logits of shape (batch, classes); received "
            f"{logits.shape}"
        )
    wide_dtype = dtypes.result_type(logits.dtype, "float32")
    batch, classes = logits.shape
    # The largest of logits plus Gumbel noise is a draw from their softmax.
    x = _draw_unit(seed, (batch, num_samples, classes), wide_dtype)
    noise = -ops.log(-ops.log1p(-x))
    scores = ops.expand_dims(convert(logits, wide_dtype), 1) + noise
    return convert(ops.argmax(scores, axis=-1), dtypes.standardize(dtype))


@operation
@drawing
def dropout(
    inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None
) -> Tensor:
    """Set random elements to 0, and multiply all other elements by 1 / (1 - rate).

    The expected value of each element stays the same.

    Args:
        inputs: numbers of any shape.
        rate: the probability that an element becomes 0, in [0, 1].
        noise_shape: the shape of the draws, which broadcasts to the shape of `inputs`.
            None means the shape of `inputs`, and None as an extent means that extent.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A floating tensor with the shape of `inputs`.

    Raises:
        ArgumentError: `rate` is not in [0, 1].

    Reference:
        Srivastava et al., Dropout (2014),
            https://jmlr.org/papers/v15/srivastava14a.html

    Example:
        >>> from toolkit import ops, random
        >>> x = random.dropout(ops.ones((1000,)), rate=0.5, seed=1)
        >>> ops.unique(x).tolist()
        [0.0, 2.0]
    """
    if not 0 <= rate <= 1:
        raise ArgumentError(f"random.dropout: expected rate in [0, 1]; received {rate}")
    (x,) = floating(inputs)
    if rate == 0:
        return x
    if rate == 1:
        return ops.zeros_like(x)
    is_retained = ops.greater_equal(
        _draw_unit(seed, _noise_shape(x, noise_shape), "float32"), rate
    )
    return ops.where(is_retained, x * (1 / (1 - rate)), 0.0)


def _noise_shape(x: Tensor, noise_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if noise_shape is None:
        return x.shape
    if len(noise_shape) > x.ndim:
        raise ShapeError(
            f"random.dropout: noise_shape {tuple(noise_shape)} has more axes than "
            f"inputs of shape {x.shape}"
        )
    extents = x.shape[x.ndim - len(noise_shape) :]
    pairs = list(zip(noise_shape, extents, strict=True))
    if any(n is not None and n not in (1, extent) for n, extent in pairs):
        raise ShapeError(
            f"random.dropout: noise_shape {tuple(noise_shape)} does not broadcast to "
            f"inputs of shape {x.shape}"
        )
    return tuple(extent if n is None else n for n, extent in pairs)


@operation
@drawing
def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Tensor:
    """Return the slices of a tensor along an axis in random order.

    Args:
        x: a tensor with at least 1 axis.
        axis: the axis to permute. The default is the first axis.
        seed: an integer, a `SeedGenerator`, or None for the global generator.

    Returns:
        A tensor with the shape and dtype of `x`.

    Raises:
        ArgumentError: `axis` is out of range.

    Example:
        >>> from toolkit import ops, random
        >>> x = random.shuffle(ops.arange(5), seed=1)
        >>> sorted(x.tolist())
        [0, 1, 2, 3, 4]
    """
    x = convert(x)
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError(
            f"random.shuffle: expected an axis in [{-x.ndim}, {x.ndim}); "
            f"received {axis}"
        )
    order = ops.argsort(_draw_unit(seed, (x.shape[axis],), "float64"))
    return ops.take(x, order, axis=axis)
