"""Common code for image functions: one internal layout for all layouts of Keras."""

from __future__ import annotations

from collections.abc import Callable

from toolkit import dtypes, settings
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.elementwise import equal, isfinite, where
from toolkit.ops.numeric import logical_and, logical_not, round, saturate_cast
from toolkit.ops.shape import expand_dims, squeeze
from toolkit.ops.spatial import channels_last, in_format
from toolkit.type_aliases import TensorLike

Restore = Callable[[Tensor], Tensor]


def batched(
    op: str, images: TensorLike, data_format: str | None, spatial: int = 2
) -> tuple[Tensor, Restore]:
    """Return images as (batch, *spatial, channels), and the inverse function."""
    x = convert(images)
    if x.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(
            f"{op}: Invalid images rank: expected rank {spatial + 1} (single image) or "
            f"rank {spatial + 2} (batch of images). Received: shape {x.shape}"
        )
    single = x.ndim == spatial + 1

    def restore(y: Tensor) -> Tensor:
        y = in_format(y, data_format)
        return squeeze(y, 0) if single else y

    return channels_last(expand_dims(x, 0) if single else x, data_format), restore


def widened(x: Tensor) -> Tensor:
    """Convert x to float32 or float64, for weighted sums of pixels."""
    if not dtypes.is_float(x.dtype):
        return convert(x, dtypes.result_type(settings.floatx(), "float32"))
    return convert(x, dtypes.result_type(x.dtype, "float32"))


def weighted(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x by weights; NaN or infinity times 0 is 0.

    The gradient of the weight is the gradient of the product, also where the weight is
    0.
    """
    left_out = logical_and(equal(weight, 0), logical_not(isfinite(x)))
    return where(left_out, convert(0.0, x.dtype), x) * weight


def as_pixels(y: Tensor, dtype: str) -> Tensor:
    """Convert y to another dtype; integers are rounded and clipped to their range."""
    if dtypes.is_float(dtype):
        return convert(y, dtype)
    return saturate_cast(round(y), dtype)


def need_floats(op: str, x: Tensor) -> None:
    """Raise an error with advice unless x has a floating dtype."""
    if not dtypes.is_float(x.dtype):
        raise ArgumentError(
            f"{op}: Invalid images dtype: expected float dtype. Received: {x.dtype}"
        )
