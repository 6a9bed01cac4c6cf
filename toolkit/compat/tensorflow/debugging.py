"""`tf.debugging`: assertions about values and shapes.

A `tf.function` with assertions about values runs eagerly, after a warning, so that each
call checks them. In the training step of `fit` such an assertion is a TraceError. A
trace can check shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import config, dtypes, ops
from toolkit.compat.tensorflow.boundary import make_recordable
from toolkit.compat.tensorflow.modes import NeedsValues, is_inferring_shapes
from toolkit.compat.tensorflow.printing import format_value
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from toolkit.type_aliases import DTypeLike, TensorLike

# The error of failed assertions; in TensorFlow it is `tf.errors.InvalidArgumentError`.
InvalidArgumentError = ArgumentError


def _check(
    holds: Any,
    condition: str,
    message: str | None,
    *values: Any,
    summarize: int | None = None,
) -> None:
    holds = convert(holds)
    if holds.static_value() is None:
        if is_inferring_shapes():
            return
        raise NeedsValues(f"a check ({condition})")
    if bool(np.all(holds.numpy())):
        return
    edge = 3 if summarize is None else summarize
    received = "; ".join(format_value(x, edge) for x in values)
    raise ArgumentError(
        f"{message or condition}: expected {condition}; received {received}"
    )


def _make_comparison(name: str, compare: Callable[..., Any], words: str) -> Any:
    def check(
        x: TensorLike,
        y: TensorLike,
        message: str | None = None,
        summarize: int | None = None,
        name: str | None = None,
    ) -> None:
        x, y = convert(x), convert(y)
        _check(compare(x, y), f"x {words} y", message, x, y, summarize=summarize)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raise an ArgumentError unless x {words} y everywhere."
    return check


assert_equal: Any = _make_comparison("assert_equal", ops.equal, "==")
assert_none_equal: Any = _make_comparison("assert_none_equal", ops.not_equal, "!=")
assert_greater: Any = _make_comparison("assert_greater", ops.greater, ">")
assert_greater_equal: Any = _make_comparison(
    "assert_greater_equal", ops.greater_equal, ">="
)
assert_less: Any = _make_comparison("assert_less", ops.less, "<")
assert_less_equal: Any = _make_comparison("assert_less_equal", ops.less_equal, "<=")


def _make_sign_check(name: str, compare: Callable[..., Any], words: str) -> Any:
    def check(
        x: TensorLike,
        message: str | None = None,
        summarize: int | None = None,
        name: str | None = None,
    ) -> None:
        x = convert(x)
        _check(compare(x, 0), f"x {words} 0", message, x, summarize=summarize)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raise an ArgumentError unless x {words} 0 everywhere."
    return check


assert_positive: Any = _make_sign_check("assert_positive", ops.greater, ">")
assert_non_negative: Any = _make_sign_check(
    "assert_non_negative", ops.greater_equal, ">="
)
assert_negative: Any = _make_sign_check("assert_negative", ops.less, "<")
assert_non_positive: Any = _make_sign_check("assert_non_positive", ops.less_equal, "<=")


def Assert(
    condition: Any, data: Any, summarize: Any = None, name: str | None = None
) -> None:
    """Raise an ArgumentError with the data unless a condition holds."""
    _check(condition, "the condition to hold", None, *data, summarize=summarize)


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: Any = None,
    summarize: Any = None,
    name: str | None = None,
) -> None:
    """Raise an ArgumentError unless |x - y| <= atol + rtol * |y| everywhere.

    Both tolerances are 10 times the distance from 1 to the next number of the dtype.
    """
    x, y = convert(x), convert(y)
    tolerance = 10 * float(np.spacing(np.ones((), dtypes.numpy_dtype(x.dtype))))
    rtol, atol = (tolerance if t is None else t for t in (rtol, atol))
    bound = atol + rtol * ops.absolute(y)
    _check(ops.absolute(x - y) <= bound, "x near y", message, x, y, summarize=summarize)


def assert_rank(
    x: TensorLike, rank: Any, message: str | None = None, name: str | None = None
) -> None:
    """Raise a ShapeError unless x has this number of axes."""
    shape = tuple(convert(x).shape)
    if len(shape) != int(rank):
        raise ShapeError(
            f"{message or 'assert_rank'}: expected rank {int(rank)}; received {shape}"
        )


def assert_rank_at_least(
    x: TensorLike, rank: Any, message: str | None = None, name: str | None = None
) -> None:
    """Raise a ShapeError unless x has at least this number of axes."""
    shape = tuple(convert(x).shape)
    if len(shape) < int(rank):
        raise ShapeError(
            f"{message or 'assert_rank_at_least'}: expected rank {int(rank)} or more; "
            f"received {shape}"
        )


def assert_rank_in(
    x: TensorLike, ranks: Any, message: str | None = None, name: str | None = None
) -> None:
    """Raise a ShapeError unless the number of axes of x is in `ranks`."""
    shape = tuple(convert(x).shape)
    if len(shape) not in map(int, ranks):
        raise ShapeError(
            f"{message or 'assert_rank_in'}: expected a rank among {tuple(ranks)}; "
            f"received {shape}"
        )


def assert_integer(
    x: TensorLike, message: str | None = None, name: str | None = None
) -> None:
    """Raise a DTypeError unless x has an integer dtype."""
    dtype = convert(x).dtype
    if not dtypes.is_integer(dtype):
        raise DTypeError(
            f"{message or 'assert_integer'}: expected integers; received {dtype}"
        )


def assert_scalar(
    tensor: TensorLike, message: str | None = None, name: str | None = None
) -> Tensor:
    """Return the tensor; raise a ShapeError if it has axes."""
    assert_rank(tensor, 0, message)
    return convert(tensor)


def assert_type(
    tensor: TensorLike,
    tf_type: DTypeLike,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raise a DTypeError unless a tensor has this dtype."""
    dtype, expected = convert(tensor).dtype, dtypes.standardize(tf_type)
    if dtype != expected:
        raise DTypeError(
            f"{message or 'assert_type'}: expected {expected}; received {dtype}"
        )


def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
) -> None:
    """Raise a ShapeError unless the tensors have the given symbolic extents.

    Args:
        shapes: pairs (tensor, extents): integers, None for any, or names. A name has
            the same extent in all shapes.
        data: tensors to show in the error.
        summarize: the number of elements to show at each end; 3 if None.
        message: prefix of the error.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x, y = tf.zeros((2, 3)), tf.zeros((3, 4))
        >>> tf.debugging.assert_shapes([(x, ("N", "K")), (y, ("K", 4))])
    """
    sizes: dict[str, int] = {}
    for x, extents in shapes.items() if isinstance(shapes, dict) else shapes:
        shape = tuple(convert(x).shape)
        expected = [sizes.setdefault(n, m) if isinstance(n, str) else n
                  for n, m in zip(extents, shape, strict=False)]  # fmt: skip
        fits = len(extents) == len(shape) and all(
            n in (None, m) for n, m in zip(expected, shape, strict=True)
        )
        if not fits:
            edge = 3 if summarize is None else summarize
            shows = "".join(f"; {format_value(x, edge)}" for x in data or ())
            raise ShapeError(
                f"{message or 'assert_shapes'}: expected {tuple(extents)} with "
                f"{sizes}; received {shape}{shows}"
            )


def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor:
    """Return the tensor; raise an ArgumentError if an element is infinite or NaN."""
    x = convert(tensor)
    _check(ops.isfinite(x), "finite numbers", message, x)
    return x


def assert_all_finite(x: TensorLike, message: str, name: str | None = None) -> Tensor:
    """Call `check_numerics`."""
    return check_numerics(x, message)


def is_numeric_tensor(tensor: TensorLike) -> bool:
    """Return whether the argument is a tensor of numbers."""
    return ops.is_tensor(tensor) and convert(tensor).dtype != "bool"


def enable_traceback_filtering() -> None:
    """Hide toolkit's lines in the tracebacks of errors."""
    config.enable_traceback_filtering()


def disable_traceback_filtering() -> None:
    """Show toolkit's lines in the tracebacks of errors."""
    config.disable_traceback_filtering()


def is_traceback_filtering_enabled() -> bool:
    """Return whether tracebacks hide toolkit's lines."""
    return config.is_traceback_filtering_enabled()


def set_log_device_placement(enabled: bool) -> None:
    """Raise unless `enabled` is False; `Function.inspect` shows the devices."""
    if enabled:
        raise UnsupportedError(
            "set_log_device_placement: see `inspect` of a traced function instead"
        )


globals().update(
    {
        name: make_recordable(check)
        for name, check in globals().items()
        if name == "Assert" or name.startswith("assert_")
    }
)
