"""Branches: cond and switch.

In eager mode the selected branch runs. Inside a trace both become sub-graphs of a node.
Variables that a branch writes become outputs and are assigned afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toolkit import dtypes, ops
from toolkit.autodiff.control import gradient_graph
from toolkit.autodiff.tape import fill_gradients
from toolkit.control_flow.bodies import (
    Body,
    captured_sources,
    final_values,
    outer_values,
    pack,
    trace_body,
    written_variables,
)
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.core.variable import assign_all
from toolkit.errors import ShapeError
from toolkit.ir import Graph, Kind, Primitive, primitive
from toolkit.ops.symbolic import operation


def _cond_vjp(
    g: Any, y: Any, predicate: Tensor, *inputs: Tensor, **graphs: Graph
) -> Any:
    """Return the gradient of the branch that was taken, as another cond."""
    needs_gradient = tuple(dtypes.is_float(x.dtype) for x in inputs)
    backward = {
        name: gradient_graph(graph, needs_gradient) for name, graph in graphs.items()
    }
    gradients = iter(
        bind(cond_p, predicate, *inputs, *fill_gradients(g, y), **backward)
    )
    return [
        None,
        *(next(gradients) if is_needed else None for is_needed in needs_gradient),
    ]


cond_p: Primitive = primitive(
    "cond",
    Kind.CONTROL,
    lambda predicate, *xs, true, false: tuple(v.spec for v in true.outputs),
    vjp=_cond_vjp,
)


@operation
def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Return true_fn() if a condition is true, and false_fn() otherwise.

    Args:
        pred: a boolean scalar.
        true_fn: a function without arguments that returns a structure of tensors.
        false_fn: a function without arguments that returns a structure with the same
            shapes and dtypes.

    Returns:
        The result of the selected function.

    Raises:
        ShapeError: `pred` is not a scalar, or the results of a trace have different
            shapes.

    Example:
        >>> from toolkit import ops
        >>> float(ops.cond(True, lambda: 1.0, lambda: 2.0))
        1.0
    """
    if isinstance(pred, bool):
        return true_fn() if pred else false_fn()
    predicate = convert(pred, "bool")
    if predicate.size != 1:
        raise ShapeError(f"cond: expected a scalar pred; received {predicate.shape}")
    if predicate.static_value() is not None:
        return true_fn() if predicate else false_fn()
    true_body, _ = trace_body("cond", true_fn)
    false_body, _ = trace_body("cond", false_fn)
    specs = [[x.spec for x in body.outputs] for body in (true_body, false_body)]
    if repr(true_body.structure) != repr(false_body.structure) or (
        specs[0] != specs[1]
    ):
        raise ShapeError(
            f"cond: both branches must return the same structure, shapes and dtypes; "
            f"received {specs[0]} and {specs[1]}"
        )
    return pack(true_body.structure, bind_branches(predicate, true_body, false_body))


def bind_branches(
    predicate: Tensor, true_body: Body, false_body: Body
) -> Sequence[Tensor]:
    """Return the outputs of the selected branch; both have outputs with the same specs.

    Variables that a branch assigns are also assigned.
    """
    written = written_variables([true_body, false_body])
    finals = [final_values(body, written) for body in (true_body, false_body)]
    sources = captured_sources([true_body, false_body])
    graphs = [
        body.graph([], sources, [*body.outputs, *final])
        for body, final in zip((true_body, false_body), finals, strict=True)
    ]
    if not graphs[0].outputs:
        return ()
    predicate = ops.reshape(predicate, ())
    outputs = bind(
        cond_p, predicate, *outer_values(sources), true=graphs[0], false=graphs[1]
    )
    count = len(true_body.outputs)
    assign_all(zip(written, outputs[count:], strict=True))
    return outputs[:count]


@operation
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Call one of several functions, selected by an index.

    Args:
        index: an integer scalar. It is limited to the range of the indices of
            `branches`.
        branches: a sequence of functions of `operands`, whose results have the same
            shapes and dtypes.
        operands: the arguments of the selected function.

    Returns:
        The result of `branches[index](*operands)`.

    Example:
        >>> from toolkit import ops
        >>> branches = [lambda x: x + 1, lambda x: x * 10]
        >>> int(ops.switch(1, branches, 5))
        50
    """
    index = ops.clip(convert(index, "int32"), 0, len(branches) - 1)
    *earlier, result = [partial(branch, *operands) for branch in branches]
    for i, branch in reversed([*enumerate(earlier)]):
        result = partial(cond, ops.equal(index, i), branch, result)
    return result()
