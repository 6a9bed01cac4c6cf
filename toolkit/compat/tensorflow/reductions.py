"""Sums, means, minima, maxima and related reductions along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import axes
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.type_aliases import AxisLike
from toolkit.core.convert import convert
from toolkit.core.dialects import dtype_of
from toolkit.core.tensor import Tensor
from toolkit.errors import DTypeError
from toolkit.type_aliases import Axis, TensorLike

_ALLOWED: dict[str, tuple[Callable[[str], bool], str]] = {
    **dict.fromkeys(("all", "any"), (lambda dtype: dtype == "bool", "booleans")),
    "sum": (lambda dtype: dtype != "bool", "numbers"),
    **dict.fromkeys(
        ("logsumexp", "std", "variance"),
        (lambda dtype: dtype in dtypes.INEXACT, "floats"),
    ),
}


def _make_extreme(reduction: Any, start: str) -> Any:
    """Wrap a reduction so that an empty one returns its neutral element."""

    def reduce_tensor(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
        if x.size:
            return reduction(x, axis, keepdims)
        initial = float(start) if dtypes.is_float(dtype_of(x)) else None
        if initial is None:
            limits = dtypes.lowest(dtype_of(x)), dtypes.highest(dtype_of(x))
            return reduction(x, axis, keepdims, limits[start == "inf"])
        return reduction(x, axis, keepdims, initial)

    return reduce_tensor


def _logsumexp(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    if x.size:
        return ops.logsumexp(x, axis, keepdims)
    return ops.log(ops.sum(ops.exp(x), axis, keepdims))


def _make_reduction(reduction: Any, kind: str) -> Any:
    def reduce_tensor(
        input_tensor: TensorLike,
        axis: AxisLike | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Tensor:
        x = convert(input_tensor)
        if not allowed(dtype_of(x)):
            raise DTypeError(f"reduce_{kind}: expected {kinds}; received {dtype_of(x)}")
        return convert(reduction(x, axes(axis), bool(keepdims)), dtype_of(x))

    allowed, kinds = _ALLOWED.get(kind, _ALLOWED["sum"])

    reduce_tensor.__name__ = reduce_tensor.__qualname__ = f"reduce_{kind}"
    reduce_tensor.__doc__ = f"The {kind} along axes, in the dtype of the input."
    return reduce_tensor


def _mean(x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    if x.dtype in dtypes.INEXACT:
        if x.size:
            return ops.mean(x, axis, keepdims)
        total = ops.sum(x, axis, keepdims)  # NaN for an empty reduction
        return total * float("nan") if total.size else total
    # As in TensorFlow, the quotient of integers is truncated.
    total = ops.sum(x, axis, keepdims)
    count = x.size // max(total.size, 1)
    return ops.sign(total) * ops.floor_divide(ops.absolute(total), count)


reduce_all: Any = _make_reduction(ops.all, "all")
reduce_any: Any = _make_reduction(ops.any, "any")
reduce_euclidean_norm: Any = _make_reduction(
    lambda x, axis, keepdims: ops.sqrt(ops.sum(ops.square(x), axis, keepdims)),
    "euclidean_norm",
)
reduce_logsumexp: Any = _make_reduction(_logsumexp, "logsumexp")
reduce_max: Any = _make_reduction(_make_extreme(ops.max, "-inf"), "max")
reduce_mean: Any = _make_reduction(_mean, "mean")
reduce_min: Any = _make_reduction(_make_extreme(ops.min, "inf"), "min")
reduce_prod: Any = _make_reduction(ops.prod, "prod")
reduce_std: Any = _make_reduction(ops.std, "std")
reduce_sum: Any = _make_reduction(ops.sum, "sum")
reduce_variance: Any = _make_reduction(ops.var, "variance")


make_operations(__name__)
