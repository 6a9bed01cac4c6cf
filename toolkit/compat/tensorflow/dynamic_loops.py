"""Loops whose variables can change their shapes between iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops, tree
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ArgumentError, DTypeError

# A loop with at most this number of iterations can be unrolled in the graph.
_UNROLLED = 128


class _ShapeChanged(Exception):
    """Signal that an iteration of a traced loop changes a shape."""


def run_dynamic_shape_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    limit: int | None,
) -> Any:
    """Run a loop and return the final values of its variables.

    Outside of a trace it is a Python loop. In a trace it is one operation if no shape
    changes. If a shape changes, the loop is unrolled while `cond` is static.

    Raises:
        NeedsValues: a shape changes, and the number of iterations is dynamic.
        ArgumentError, DTypeError: the body returns another structure or dtype.
    """
    if state.trace is not None:
        try:
            return ops.while_loop(cond, _require_fixed_shapes(body), loop_vars, limit)
        except _ShapeChanged:
            pass
    single = not isinstance(loop_vars, (tuple, list))
    values = tree.map_structure(convert, (loop_vars,) if single else tuple(loop_vars))
    steps = 0
    while limit is None or steps < limit:
        holds = cond(*values)
        if state.trace is not None:
            holds = _static_condition(holds, steps)
        if not holds:
            break
        values = _step(body, values)
        steps += 1
    if single:
        return values[0]
    return list(values) if isinstance(loop_vars, list) else values


def _static_condition(holds: Any, steps: int) -> Any:
    """Return the static value of a condition in a trace."""
    value = holds.static_value() if isinstance(holds, Tensor) else holds
    if value is None or steps >= _UNROLLED:
        raise NeedsValues("tf.while_loop with changing shapes")
    return value


def _step(body: Callable[..., Any], values: Any) -> Any:
    """Return the variables after an iteration, with the same structure and dtypes."""
    result = body(*values)
    result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    result = tree.map_structure(convert, result)
    try:
        tree.assert_same_structure(values, result)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"while_loop: the body must keep the structure of its variables: {error}"
        ) from error
    for old, new in zip(tree.flatten(values), tree.flatten(result), strict=True):
        if old.dtype != new.dtype:
            raise DTypeError(
                f"while_loop: the body must keep the dtype {old.dtype} of a variable; "
                f"received {new.dtype}"
            )
    return result


def _require_fixed_shapes(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a body that stops the trace of a loop at a change of shape."""

    def step(*values: Any) -> Any:
        result = body(*values)
        results = result if isinstance(result, (tuple, list)) else (result,)
        pairs = zip(tree.flatten(values), tree.flatten(tuple(results)), strict=False)
        if any(tuple(old.shape) != tuple(convert(new).shape) for old, new in pairs):
            raise _ShapeChanged
        return result

    return step
