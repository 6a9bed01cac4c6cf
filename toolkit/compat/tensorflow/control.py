"""Traceable control flow: cond, while_loop, map_fn and related functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Any

import numpy as np

from toolkit import ops, tree
from toolkit.compat.tensorflow.arguments import dtype_name, refuse
from toolkit.compat.tensorflow.arrays import convert_to_tensor
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.debugging import assert_type
from toolkit.compat.tensorflow.dynamic_loops import run_dynamic_shape_loop
from toolkit.compat.tensorflow.modes import (
    NeedsValues,
    building_graph,
    mode,
    require_eager,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.layers.remat import remat
from toolkit.type_aliases import DTypeLike, InitializerLike, TensorLike


def cond(
    pred: TensorLike,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return `true_fn()` if the boolean `pred` holds, else `false_fn()`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x = tf.constant(3.0)
        >>> float(tf.cond(x > 2.0, lambda: x, lambda: -x))
        3.0
    """
    if true_fn is None or false_fn is None:
        raise ArgumentError("cond: expected both true_fn and false_fn")
    return ops.cond(pred, true_fn, false_fn)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: int | None = None,
    name: str | None = None,
) -> Any:
    """Apply `body` to the loop variables while `cond` holds.

    Args:
        cond, body: functions of the variables.
        loop_vars: a list or tuple of (structures of) tensors.
        shape_invariants: shapes, with None for dynamic extents. Without them, shapes
            cannot change in a traced function. A `tf.function` with a loop that changes
            a shape, and has a dynamic number of steps, runs eagerly.
        parallel_iterations, swap_memory: have no effect.
        back_prop: False stops gradients at the result.
        maximum_iterations: a bound on the number of steps; gradients inside a traced
            function need it.
    """
    limit = None if maximum_iterations is None else int(maximum_iterations)

    def holds(*variables: Any) -> Any:
        result = cond(*variables)
        if not isinstance(result, (bool, np.bool_)):
            result = convert(result)
            if result.ndim:
                raise ShapeError(
                    "while_loop: expected cond to return one boolean; received shape "
                    f"{tuple(result.shape)}"
                )
        return result

    if state.trace is None or shape_invariants is not None:
        finals = run_dynamic_shape_loop(holds, body, loop_vars, limit)
    else:
        finals = ops.while_loop(holds, body, loop_vars, limit)
    return finals if back_prop else tree.map_structure(ops.stop_gradient, finals)


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = None,
) -> Any:
    """Return the value of the first function whose condition holds, or of the default.

    Args:
        pred_fn_pairs: pairs (condition, function without arguments).
        default: the function if no condition holds; the last function if None.
        exclusive, strict: have no effect: the first function always counts.
    """
    pairs = list(pred_fn_pairs)
    result = pairs.pop()[1] if default is None else default
    for pred, function in reversed(pairs):
        result = partial(ops.cond, pred, function, result)
    return result()


def switch_case(
    branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None
) -> Any:
    """Return the value of the function with this index, or of the default."""
    if isinstance(branch_fns, dict):
        branch_fns = list(branch_fns.items())
    pairs = [f if isinstance(f, tuple) else (i, f) for i, f in enumerate(branch_fns)]
    index = convert(branch_index)
    return case([(ops.equal(index, i), f) for i, f in pairs], default or pairs[-1][1])


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: DTypeLike | None = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Apply a function to each row, and stack the results.

    Args:
        fn: from a row of each tensor to a nest of tensors.
        elems: a nest of tensors with the same number of rows.
        fn_output_signature: the required dtypes, or TensorSpecs, of the result.
        dtype: the legacy name of fn_output_signature.
        parallel_iterations, swap_memory: have no effect.
        back_prop, infer_shape: only True.
    """
    refuse("map_fn", back_prop=(back_prop, True), infer_shape=(infer_shape, True))
    result = ops.map(fn, tree.map_structure(convert, elems))
    signature = dtype if fn_output_signature is None else fn_output_signature
    if signature is not None:
        expected_dtypes = [
            getattr(spec, "dtype", spec) for spec in tree.flatten(signature)
        ]
        for y, expected in zip(tree.flatten(result), expected_dtypes, strict=True):
            assert_type(y, expected, "map_fn: the dtype of the result of fn")
    return result


def vectorized_map(
    fn: Callable[[Any], Any],
    elems: Any,
    fallback_to_while_loop: bool = True,
    warn: bool = True,
) -> Any:
    """Apply a function as `map_fn`, to all rows in parallel if possible.

    Args:
        fn, elems: as in `map_fn`.
        fallback_to_while_loop, warn: have no effect: there is no loop as a fallback.
    """
    return ops.vectorized_map(fn, tree.map_structure(convert, elems))


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: InitializerLike | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return all states of a recurrence (state, row) -> next state.

    Without an initializer, the first row is the first state and the first result.

    Args:
        fn: from a state and a row to the next state, nests of tensors.
        elems: a nest of tensors with the same number of rows.
        initializer: the first state.
        reverse: start with the last row.
        parallel_iterations, swap_memory: have no effect.
        back_prop, infer_shape: only True.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.scan(lambda total, x: total + x, tf.range(1, 5)).numpy().tolist()
        [1, 3, 6, 10]
    """
    refuse("scan", back_prop=(back_prop, True), infer_shape=(infer_shape, True))
    elems = tree.map_structure(convert, elems)
    if reverse:
        elems = tree.map_structure(lambda x: ops.flip(x, 0), elems)
    first = initializer
    if first is None:
        first = tree.map_structure(lambda x: x[0], elems)
        elems = tree.map_structure(lambda x: x[1:], elems)
    start = tree.map_structure(convert, first)

    def step(state: Any, row: Any) -> Any:
        new_state = fn(state, row)
        return new_state, new_state

    states = ops.scan(step, start, elems)[1]
    if initializer is None:
        states = tree.map_structure(
            lambda one, remaining: ops.concatenate([one[None], remaining], 0),
            start,
            states,
        )
    if reverse:
        states = tree.map_structure(lambda x: ops.flip(x, 0), states)
    return states


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: InitializerLike | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the last state of `scan`, with the same arguments.

    `parallel_iterations` and `swap_memory` have no effect.
    """
    states = scan(fn, elems, initializer, back_prop=back_prop)
    return tree.map_structure(lambda x: x[-1], states)


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: InitializerLike | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the result of `foldl` from the last row to the first.

    `parallel_iterations` and `swap_memory` have no effect.
    """
    states = scan(fn, elems, initializer, back_prop=back_prop, reverse=True)
    return tree.map_structure(lambda x: x[0], states)


def group(*inputs: object, name: str | None = None) -> None:
    """Do nothing: the `inputs` have been computed."""


def no_op(name: str | None = None) -> None:
    """Do nothing."""


def control_dependencies(control_inputs: Any) -> AbstractContextManager[Any]:
    """In a graph, run the given operations before the operations recorded inside.

    Elsewhere it has no effect: operations run, and are traced, in the order of the
    code.
    """
    if building_graph():
        return mode.graph().control_dependencies(control_inputs)
    return nullcontext()


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function; its gradient recomputes intermediate values."""
    return remat(f)


def py_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Call a Python function with concrete tensors.

    Without `func` it returns a decorator, whose function is called with its arguments.

    The gradient is the gradient of the tensor operations in the function. A
    `tf.function` that calls `py_function` runs eagerly, after a warning.

    Args:
        func: takes tensors with values; returns one value, or several.
        inp: a list of tensors.
        Tout: the dtype of the result, or a list of dtypes. Numbers and arrays become
            tensors of this dtype.

    Raises:
        TraceError: inside a traced function, other than a `tf.function`.
    """
    if func is None:
        return _make_decorator(py_function, Tout)
    return _call_python("py_function", func, inp, Tout)


def _make_decorator(
    call: Callable[..., Any], Tout: DTypeLike | None
) -> Callable[..., Any]:
    """Return a decorator of functions that `py_function` or `numpy_function` calls."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*args: Any) -> Any:
            return call(function, list(args), Tout)

        return wrapped

    return decorate


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: DTypeLike | None = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Call a function as `py_function`, with NumPy arrays and without a gradient.

    `stateful` has no effect: func is always called.
    """

    if func is None:
        return _make_decorator(numpy_function, Tout)

    def of_arrays(*xs: Any) -> Any:
        result = func(*(x.numpy() for x in xs))
        return tree.map_structure(np.asarray, result)

    return _call_python("numpy_function", of_arrays, inp, Tout)


def _call_python(
    name: str, func: Callable[..., Any], inp: Any, Tout: DTypeLike | None
) -> Any:
    require_eager(name)
    xs = [convert_to_tensor(x) for x in inp]
    if any(isinstance(x, Tensor) and x.static_value() is None for x in xs):
        raise NeedsValues(name)
    result = func(*xs)
    if not isinstance(Tout, (list, tuple)):
        return None if Tout is None else _cast_result(name, result, Tout)
    result = result if isinstance(result, (list, tuple)) else [result]
    if Tout and len(result) != len(Tout):
        raise ArgumentError(
            f"{name}: expected {len(Tout)} results for Tout; received {len(result)}"
        )
    return [_cast_result(name, y, t) for y, t in zip(result, Tout, strict=False)]


def _cast_result(name: str, y: Any, dtype: DTypeLike) -> Any:
    """Convert a result to a tensor of the declared dtype."""
    expected = dtype_name(dtype)
    if isinstance(y, Tensor) and y.dtype != expected:
        raise DTypeError(f"{name}: expected a result of {expected}; received {y.dtype}")
    return convert_to_tensor(y, dtype)


make_operations(__name__, besides="control_dependencies recompute_grad")
