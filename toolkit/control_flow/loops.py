"""Control flow: while_loop, fori_loop, scan, map, vectorized_map.

In eager mode these are Python control flow. Inside a trace each becomes one node with
sub-graphs. Variables that a body writes are carried and assigned afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from toolkit import dtypes, ops, tree
from toolkit.arguments import is_int
from toolkit.autodiff.control import linearize
from toolkit.autodiff.tape import GradientTape, fill_gradients
from toolkit.control_flow.bodies import (
    Body,
    captured_sources,
    carried_values,
    check_carry,
    check_condition,
    find_equal_carries,
    outer_values,
    pack,
    trace_body,
    written_variables,
)
from toolkit.control_flow.branches import cond
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind, state
from toolkit.core.trace import Trace, inline
from toolkit.core.variable import assign_all
from toolkit.errors import ArgumentError, ArgumentTypeError, GradientError
from toolkit.ir import Graph, Kind, Primitive, Spec, primitive
from toolkit.ops.checks import extents_of
from toolkit.ops.symbolic import operation

# The named primitive that a scan becomes if nothing differentiates it, with attributes.
Label: TypeAlias = tuple[Primitive, tuple[tuple[str, Any], ...]] | None

# --- primitives -----------------------------------------------------------------------


def _while_vjp(
    g: Any,
    y: Any,
    *inputs: Tensor,
    condition: Graph,
    body: Graph,
    carry: int,
    maximum_iterations: int | None,
) -> Any:
    """Run the loop again as a scan, and differentiate that."""
    if maximum_iterations is None:
        raise GradientError(
            "while_loop: the gradient of a traced loop needs maximum_iterations, so "
            "that the memory for its steps is bounded"
        )
    with GradientTape(watch_accessed_variables=False) as tape:
        xs = [ops.reshape(x, x.shape) for x in inputs]  # new identities
        tape.watch([x for x in xs if dtypes.is_float(x.dtype)])
        consts = xs[carry:]
        outputs = _bounded_while(
            lambda *values: inline(condition, [*values, *consts])[0],
            lambda *values: inline(body, [*values, *consts]),
            tuple(xs[:carry]),
            maximum_iterations,
        )
    return tape.gradient(outputs, xs, fill_gradients(g, y))


def _scan_spec(*specs: Spec, body: Graph, carry: int, length: int, **_: object) -> Any:
    finals = [v.spec for v in body.outputs[:carry]]
    stacked = [
        Spec((length, *v.spec.shape), v.spec.dtype) for v in body.outputs[carry:]
    ]
    return tuple(finals + stacked)


def _scan_vjp(
    g: Any, y: Any, *inputs: Tensor, body: Graph, backward: Any, **attrs: Any
) -> Any:
    """Return the gradients: a reverse scan over the residuals of the forward scan."""
    needs_residual_gradients = backward is not None and any(
        d is not None for d in g[backward.outputs :]
    )
    if backward is None or needs_residual_gradients:
        # A gradient of a gradient: the residuals have a gradient too. Run forward
        # again, and store the residuals of the larger body.
        needs_gradient = tuple(dtypes.is_float(x.dtype) for x in inputs)
        body, backward = linearize(body, needs_gradient, **attrs)
        y = bind(scan_p, *inputs, body=body, backward=backward, **attrs)
    gs = fill_gradients(g[: backward.outputs], y[: backward.outputs])
    return backward.apply(gs, y, inputs, _bind_scan)


while_p: Primitive = primitive(
    "while_loop",
    Kind.CONTROL,
    lambda *xs, body, **attrs: tuple(v.spec for v in body.outputs),
    vjp=_while_vjp,
)
scan_p: Primitive = primitive("scan", Kind.CONTROL, _scan_spec, vjp=_scan_vjp)


def _bind_scan(
    body: Graph,
    inputs: Sequence[Tensor],
    carry: int,
    xs: int,
    length: int,
    reverse: bool,
    label: Label = None,
) -> tuple[Tensor, ...]:
    """Apply a scan; if a tape needs its gradient, store its residuals.

    label: the named primitive to apply instead, if no tape needs the gradient.
    """
    representatives = find_equal_carries(body, carry)
    unique = sorted(set(representatives))
    if length and len(unique) < carry:
        unique_inputs = [*(body.inputs[i] for i in unique), *body.inputs[carry:]]
        unique_outputs = [*(body.outputs[i] for i in unique), *body.outputs[carry:]]
        body = Graph(tuple(unique_inputs), body.nodes, tuple(unique_outputs))
        inputs = [*(inputs[i] for i in unique), *inputs[carry:]]
        results = _bind_scan(body, inputs, len(unique), xs, length, reverse, label)
        return (
            *(results[unique.index(i)] for i in representatives),
            *results[len(unique) :],
        )
    num_outputs = 0
    backward = None
    attrs = {"carry": carry, "xs": xs, "length": length, "reverse": reverse}
    if any(tape.watches(inputs) for tape in state.tapes):
        needs_gradient = tuple(dtypes.is_float(x.dtype) for x in inputs)
        num_outputs = len(body.outputs)
        body, backward = linearize(body, needs_gradient, **attrs)
    elif label is not None:
        label_attrs: Any = {"body": body, "backward": None, **attrs, "facts": label[1]}
        return tuple(bind(label[0], *inputs, **label_attrs))
    outputs = bind(scan_p, *inputs, body=body, backward=backward, **attrs)
    return outputs[:num_outputs] if num_outputs else outputs


# --- public functions -----------------------------------------------------------------


@operation
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    maximum_iterations: Any = None,
) -> Any:
    """Update variables while a condition is true.

    Args:
        cond: a function of the loop variables that returns a boolean scalar.
        body: a function of the loop variables that returns new ones, with the same
            shapes and dtypes.
        loop_vars: the first values: a tuple or list of tensors or structures, or one
            tensor.
        maximum_iterations: the limit of iterations. None means no limit. The gradient
            of a traced loop needs it as a number; otherwise it may be a traced tensor.

    Returns:
        The last values, in the structure of `loop_vars`.

    Example:
        >>> from toolkit import ops
        >>> int(ops.while_loop(lambda i: i < 10, lambda i: (i + 3,), (0,))[0])
        12
    """
    is_single = not isinstance(loop_vars, (tuple, list))
    values = tree.map_structure(
        convert, (loop_vars,) if is_single else tuple(loop_vars)
    )

    def step(*args: Any) -> Any:
        results = body(*args)
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    if maximum_iterations is not None and not is_int(maximum_iterations):
        limit = convert(maximum_iterations)
        if limit.static_value() is None:
            values = _while_with_traced_limit(limit, cond, step, values)
            return _pack_loop_vars(values, loop_vars)
        maximum_iterations = int(limit)
    if state.trace is None:
        count = 0
        while (maximum_iterations is None or count < maximum_iterations) and cond(
            *values
        ):
            values = _run_checked_step(step, values)
            count += 1
    else:
        condition, placeholders = trace_body("while_loop", cond, *values)
        check_condition(condition)
        if maximum_iterations is not None and state.tapes:
            values = _bounded_while(cond, step, values, maximum_iterations)
        else:
            bodies = condition, placeholders, *trace_body("while_loop", step, *values)
            values = _traced_while(*bodies, values, maximum_iterations)
    return _pack_loop_vars(values, loop_vars)


def _pack_loop_vars(values: Any, loop_vars: Any) -> Any:
    """Return the values in the container of the loop variables, or a single value."""
    if not isinstance(loop_vars, (tuple, list)):
        return values[0]
    return list(values) if isinstance(loop_vars, list) else values


def _while_with_traced_limit(limit: Tensor, cond: Any, step: Any, values: Any) -> Any:
    """Run a loop with a traced bound on the number of steps."""
    final = while_loop(
        lambda count, values: ops.logical_and(count < limit, cond(*values)),
        lambda count, values: (count + 1, step(*values)),
        (ops.zeros((), limit.dtype), values),
    )
    return final[1]


def _run_checked_step(step: Callable[..., Any], values: Any) -> Any:
    results = tree.map_structure(convert, step(*values))
    check_carry("while_loop", tree.flatten(values), tree.flatten(results))
    return results


def _bounded_while(cond_fn: Any, step: Any, values: Any, limit: int) -> Any:
    """Run a bounded loop as a scan, which has a gradient: each step is conditional."""

    def scan_step(carry: Any, _: Any) -> Any:
        is_running = cond_fn(*carry)
        return cond(is_running, lambda: tuple(step(*carry)), lambda: tuple(carry)), None

    return scan(scan_step, values, length=limit)[0]


def _traced_while(
    condition: Body,
    condition_vars: Any,
    body: Body,
    body_vars: Any,
    values: Any,
    limit: int | None,
) -> Any:
    initial = tree.flatten(values)
    check_carry("while_loop", initial, body.outputs)
    written = written_variables([body])
    sources = captured_sources([condition, body], excluded=written)
    finals = carried_values(body, written)
    graphs = [
        traced_body.graph(
            [*tree.flatten(inputs), *(traced_body.placeholder_for(v) for v in written)],
            sources,
            outputs,
        )
        for traced_body, inputs, outputs in (
            (condition, condition_vars, condition.outputs),
            (body, body_vars, [*body.outputs, *finals]),
        )
    ]
    results = bind(
        while_p,
        *initial,
        *outer_values(written),
        *outer_values(sources),
        condition=graphs[0],
        body=graphs[1],
        carry=len(initial) + len(written),
        maximum_iterations=limit,
    )
    assign_all(zip(written, results[len(initial) :], strict=True))
    return tree.pack_sequence_as(values, results[: len(initial)])


@operation
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any
) -> Any:
    """Apply a function to an index and a value, for each index in a range.

    It computes `for i in range(lower, upper): value = body_fun(i, value)`.

    Args:
        lower: the first index, an integer or an integer scalar.
        upper: the end of the range, which is not an index.
        body_fun: a function of (i, value) that returns a value with the same shapes and
            dtypes.
        init_val: the first value, a structure of tensors.

    Returns:
        The last value.

    Example:
        >>> from toolkit import ops
        >>> int(ops.fori_loop(0, 4, lambda i, total: total + i, 0))
        6
    """
    if is_int(lower) and is_int(upper):
        counter = ops.arange(lower, max(lower, upper), dtype="int32")
        step = lambda value, i: (body_fun(i, value), None)  # noqa: E731
        return scan(step, init_val, counter)[0]
    start = convert(lower, "int32")
    return while_loop(
        lambda i, value: i < upper,
        lambda i, value: (i + 1, body_fun(i, value)),
        (start, init_val),
    )[1]


@operation
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Pass a carry through a function along the first axis of tensors.

    Args:
        f: a function of (carry, x) that returns (new carry, y). The carry keeps its
            shapes and dtypes.
        init: the first carry, a structure of tensors.
        xs: a structure of tensors of shape (length, ...), or None.
        length: the number of iterations. None means the first extent of `xs`.
        reverse: whether to iterate from the last element to the first; ys keep their
            order.
        unroll: whether the graph repeats the body instead of looping. An integer is the
            limit of repeated iterations; an integer of at least `length` means True.

    Returns:
        A pair of the last carry, and the ys, stacked along a new first axis.

    Example:
        >>> from toolkit import ops
        >>> step = lambda total, x: (total + x, total + x)
        >>> total, sums = ops.scan(step, 0.0, ops.ones((3,)))
        >>> float(total), sums.tolist()
        (3.0, [1.0, 2.0, 3.0])
    """
    return run_scan(f, init, xs, length, reverse, unroll)


def run_scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    unroll: int | bool,
    label: Label = None,
) -> tuple[Any, Any]:
    """Run `scan`, as a named primitive with attributes if `label` has one."""
    if not callable(f):
        raise ArgumentTypeError(f"scan: `f` should be a callable. Received: {f!r}")
    if not isinstance(unroll, bool) and unroll < 1:
        raise ArgumentError(f"scan: {unroll=} must be an positive integer or boolean.")
    init = tree.map_structure(convert, init)
    xs = None if xs is None else tree.map_structure(convert, xs)
    leaves = [] if xs is None else tree.flatten(xs)
    lengths: list[Any] = [] if length is None else [*extents_of(length)]
    lengths = [*lengths, *(x.shape[0] if x.ndim else None for x in leaves)]
    if not lengths or None in lengths or any(n != lengths[0] for n in lengths):
        problem = "expected `length`, or xs of one leading extent, to scan over and no "
        raise ArgumentError(f"scan: {problem}other; received {length=} and xs={leaves}")
    steps: Any = lengths[0]
    is_eager = state.trace is None or state.trace.unrolls_loops
    if is_eager or unroll is True or 1 < unroll >= steps:
        return _unrolled_scan(f, init, xs, steps, reverse)
    return _traced_scan(f, init, xs, steps, reverse, label)


def _unrolled_scan(f: Any, carry: Any, xs: Any, length: int, reverse: bool) -> Any:
    ys: list[Any] = []
    for t in reversed(range(length)) if reverse else range(length):
        x = None if xs is None else tree.map_structure(lambda leaf, t=t: leaf[t], xs)
        input_leaves = tree.flatten(carry)
        carry, y = f(carry, x)
        carry = tree.map_structure(convert, carry)
        check_carry("scan", input_leaves, tree.flatten(carry))
        ys.append(y)
    if not ys:
        return carry, _empty_outputs(f, carry, xs)
    ys = ys[::-1] if reverse else ys
    if all(leaf is None for leaf in tree.flatten(ys[0])):
        return carry, ys[0]
    return carry, tree.map_structure(lambda *steps: ops.stack(list(steps)), *ys)


def _empty_outputs(f: Any, carry: Any, xs: Any) -> Any:
    """Return the ys of a scan of length 0: the shapes of one step, without elements."""
    element = None if xs is None else tree.map_structure(_element, xs)
    with Trace("scan") as trace:
        arguments = tree.map_structure(
            lambda x: x if x is None else trace.placeholder(x.spec), (carry, element)
        )
        ys = f(*arguments)[1]
    return tree.map_structure(
        lambda y: y if y is None else ops.zeros((0, *y.shape), y.dtype), ys
    )


def _traced_scan(
    f: Any, init: Any, xs: Any, length: int, reverse: bool, label: Label
) -> Any:
    def step(carry: Any, x: Any) -> Any:
        return f(carry, None if xs is None else x)

    element = [] if xs is None else tree.map_structure(_element, xs)
    body, (carry_in, x_in) = trace_body("scan", step, init, element)
    carry = tree.flatten(init)
    n = len(carry)
    check_carry("scan", carry, body.outputs[:n])
    written = written_variables([body])
    finals = carried_values(body, written)
    sources = captured_sources([body], excluded=written)
    graph = body.graph(
        [
            *tree.flatten(carry_in),
            *(body.placeholder_for(v) for v in written),
            *tree.flatten(x_in),
        ],
        sources,
        [*body.outputs[:n], *finals, *body.outputs[n:]],
    )
    x_leaves = [] if xs is None else tree.flatten(xs)
    inputs = [*carry, *outer_values(written), *x_leaves, *outer_values(sources)]
    num_carried = n + len(written)
    sizes = (num_carried, len(x_leaves), length)
    outputs = _bind_scan(graph, inputs, *sizes, reverse, label)
    assign_all(zip(written, outputs[n:num_carried], strict=True))
    new_carry, y_structure = body.structure
    return pack(new_carry, outputs[:n]), pack(y_structure, outputs[num_carried:])


def _element(x: Tensor) -> Tensor:
    """Return a placeholder for one step's slice, with its spec only."""
    return Tensor(None, Spec(x.shape[1:], x.dtype))


@operation
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Apply a function to each slice along the first axis, and stack the results.

    Args:
        f: a function of one slice that returns a structure of tensors.
        xs: a structure of tensors of shape (n, ...).

    Returns:
        A structure like the results of `f`, with a new first axis of extent n.

    Example:
        >>> from toolkit import ops
        >>> ops.map(lambda x: x * x, ops.array([1, 2, 3])).tolist()
        [1, 4, 9]
    """
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


@operation
def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Apply a function to each element of a batch, and stack the results.

    The elements are computed in sequence, as by `map`.

    Args:
        function: a function of one element that returns a structure of tensors.
        elements: a structure of tensors of shape (batch, ...).

    Returns:
        A structure like the results of `function`, with a new first axis.

    Example:
        >>> from toolkit import ops
        >>> ops.vectorized_map(ops.sum, ops.array([[1, 2], [3, 4]])).tolist()
        [3, 7]
    """
    return map(function, elements)
