"""`tf.image`: random changes of images, from a stream or from a given seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow import random
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.image import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.random import uniform
from toolkit.type_aliases import SeedLike, TensorLike

__all__ = (
    *("random_brightness", "random_contrast", "random_flip_left_right"),
    *("random_flip_up_down", "random_hue", "random_saturation"),
    *("stateless_random_brightness", "stateless_random_contrast"),
    *("stateless_random_flip_left_right", "stateless_random_flip_up_down"),
    *("stateless_random_hue", "stateless_random_saturation"),
)


def _validate_range(
    function: str, low: Any, high: Any, maximum: float | None = None
) -> Any:
    """Return the validated ends of a range as floats."""
    low, high = float(low), float(high)
    if (
        not low < high
        and not low == high == 0
        or maximum is not None
        and high > maximum
    ):
        limit = "" if maximum is None else f" of at most {maximum}"
        raise ArgumentError(
            f"{function}: expected an increasing range{limit}; received {low} to {high}"
        )
    return low, high


def _symmetric_range(function: str, radius: float, limit: float | None = None) -> Any:
    """Return the range from -most to most."""
    return _validate_range(function, -float(radius), radius, limit)


def _positive(function: str, low: Any, high: Any) -> Any:
    low, high = _validate_range(function, low, high)
    if low < 0:
        raise ArgumentError(f"{function}: expected lower >= 0; received {low}")
    return low, high


def _draw_uniform(ends: tuple[float, float], seed: SeedLike | None) -> Tensor:
    return uniform((), *ends, seed=random.source(seed))


def _make_stateless(ends: tuple[float, float], seed: TensorLike) -> Tensor:
    sampler: Callable[..., Tensor] = random.stateless_uniform
    return sampler((), seed, *ends)


def random_brightness(image: Any, max_delta: Any, seed: Any = None) -> Tensor:
    """Apply `adjust_brightness` with a random delta of at most max_delta."""
    ends = _symmetric_range("random_brightness", max_delta)
    return adjust_brightness(image, _draw_uniform(ends, seed))


def stateless_random_brightness(
    image: TensorLike, max_delta: Any, seed: TensorLike
) -> Tensor:
    """Apply `random_brightness` with a seed of two integers."""
    ends = _symmetric_range("stateless_random_brightness", max_delta)
    return adjust_brightness(image, _make_stateless(ends, seed))


def random_contrast(
    image: TensorLike, lower: Any, upper: Any, seed: SeedLike | None = None
) -> Tensor:
    """Apply `adjust_contrast` with a random factor."""
    ends = _positive("random_contrast", lower, upper)
    return adjust_contrast(image, _draw_uniform(ends, seed))


def stateless_random_contrast(
    image: TensorLike, lower: Any, upper: Any, seed: TensorLike
) -> Tensor:
    """Apply `random_contrast` with a seed of two integers."""
    ends = _positive("stateless_random_contrast", lower, upper)
    return adjust_contrast(image, _make_stateless(ends, seed))


def random_saturation(
    image: TensorLike, lower: Any, upper: Any, seed: SeedLike | None = None
) -> Tensor:
    """Apply `adjust_saturation` with a random factor."""
    ends = _positive("random_saturation", lower, upper)
    return adjust_saturation(image, _draw_uniform(ends, seed))


def stateless_random_saturation(
    image: TensorLike, lower: Any, upper: Any, seed: Any = None
) -> Tensor:
    """Apply `random_saturation` with a seed of two integers."""
    ends = _positive("stateless_random_saturation", lower, upper)
    return adjust_saturation(image, _make_stateless(ends, seed))


def random_hue(image: Any, max_delta: Any, seed: Any = None) -> Tensor:
    """Apply `adjust_hue` with a random delta of at most max_delta, which is at most
    0.5."""
    return adjust_hue(
        image, _draw_uniform(_symmetric_range("random_hue", max_delta, 0.5), seed)
    )


def stateless_random_hue(image: TensorLike, max_delta: Any, seed: TensorLike) -> Tensor:
    """Apply `random_hue` with a seed of two integers."""
    ends = _symmetric_range("stateless_random_hue", max_delta, 0.5)
    return adjust_hue(image, _make_stateless(ends, seed))


def random_flip_left_right(image: TensorLike, seed: SeedLike | None = None) -> Tensor:
    """Apply `flip_left_right` to each image with probability 0.5."""
    return _flip_at_random(
        image, -2, lambda shape: uniform(shape, seed=random.source(seed))
    )


def random_flip_up_down(image: TensorLike, seed: SeedLike | None = None) -> Tensor:
    """Apply `flip_up_down` to each image with probability 0.5."""
    return _flip_at_random(
        image, -3, lambda shape: uniform(shape, seed=random.source(seed))
    )


def stateless_random_flip_left_right(image: TensorLike, seed: TensorLike) -> Tensor:
    """Apply `random_flip_left_right` with a seed of two integers."""
    return _flip_at_random(
        image, -2, lambda shape: random.stateless_uniform(shape, seed)
    )


def stateless_random_flip_up_down(image: TensorLike, seed: TensorLike) -> Tensor:
    """Apply `random_flip_up_down` with a seed of two integers."""
    return _flip_at_random(
        image, -3, lambda shape: random.stateless_uniform(shape, seed)
    )


def _flip_at_random(
    image: TensorLike, axis: int, sample: Callable[[Any], Tensor]
) -> Tensor:
    x = convert(image)
    shape = (x.shape[0], 1, 1, 1) if x.ndim == 4 else ()
    return ops.where(sample(shape) < 0.5, ops.flip(x, axis), x)


make_operations(__name__)
