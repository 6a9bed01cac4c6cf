"""Gradients in graphs: one operation, which uses the tape of the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.tensors import GraphStep, GraphTensor
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, GradientError, UnsupportedError

_NO_GRADIENT = frozenset(("StopGradient", "VariableV2", "Placeholder"))


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: object = False,
    aggregation_method: object = None,
    stop_gradients: Any = None,
    unconnected_gradients: str = "none",
) -> list[Any]:
    """Return the gradients of the sum of `ys` by each of `xs`.

    Args:
        ys, xs: a tensor of the graph or several; `xs` can be Variables.
        grad_ys: weights of the elements of `ys`; ones if None.
        name: a scope for the operation.
        colocate_gradients_with_ops, gate_gradients, aggregation_method: hints about the
            device and the order of additions, which have no effect.
        stop_gradients: only None; use `tf.stop_gradient`.
        unconnected_gradients: "none" or "zero", for xs on which no y depends.

    Returns:
        One tensor, or None, for each of `xs`.
    """
    if stop_gradients is not None:
        raise UnsupportedError("gradients: use tf.stop_gradient, not stop_gradients")
    unconnected = str(getattr(unconnected_gradients, "value", unconnected_gradients))
    if unconnected not in ("none", "zero"):
        raise ArgumentError(
            "gradients: unconnected_gradients: expected 'none' or 'zero'; received "
            f"{unconnected_gradients!r}"
        )
    ys, xs = (list(v) if isinstance(v, (list, tuple)) else [v] for v in (ys, xs))
    weights = grad_ys if isinstance(grad_ys, (list, tuple)) else [grad_ys] * len(ys)
    weights = [
        g if g is None or isinstance(g, KerasTensor) else convert(g) for g in weights
    ]
    _check(ys, xs, weights)
    reached = connected_xs(ys, xs)
    reached_xs = [x for x in xs if x in reached]
    zero = unconnected == "zero"
    if not reached_xs:
        return [ops.zeros_like(x) if zero else None for x in xs]
    graph = ys[0].graph
    step = GraphStep(_differentiate, "Gradients", watched=tuple(reached_xs))
    symbols = [KerasTensor(x.shape, x.dtype) for x in reached_xs]
    with graph.name_scope(name):
        graph.append(step, (ys, reached_xs, weights), symbols)
    by_source = dict(zip(reached_xs, symbols, strict=True))
    zeros = {x: ops.zeros_like(x) for x in xs if zero and x not in by_source}
    return [by_source.get(x, zeros.get(x)) for x in xs]


def _check(ys: list[Any], xs: list[Any], weights: list[Any]) -> None:
    if len(weights) != len(ys):
        raise ArgumentError(
            f"gradients: expected {len(ys)} grad_ys, one for each of ys; received "
            f"{len(weights)}"
        )
    for x in (*ys, *xs):
        if not isinstance(x, (GraphTensor, Variable)):
            raise GradientError(
                f"gradients: expected tensors and Variables of a graph; received {x!r}"
            )


def _differentiate(run: Any, ys: Any, xs: Any, weights: Any) -> list[Any]:
    sources = [
        run.cell(x)
        if isinstance(x, (GraphVariable, Variable)) and x not in run.symbol_values
        else run.value(x)
        for x in xs
    ]
    ys, weights = run.values(ys), run.values(weights)
    weights = [
        ops.ones_like(y) if g is None else g for y, g in zip(ys, weights, strict=True)
    ]
    return run.tape.gradient(ys, sources, weights, "zero")


def connected_xs(ys: Iterable[Any], xs: Iterable[Any]) -> set[Any]:
    """Return the xs on which a y depends through floating values."""
    targets, stack = set(xs), list(ys)
    visited: set[Any] = set()
    while stack:
        x = stack.pop()
        if x in visited:
            continue
        visited.add(x)
        if isinstance(x, GraphTensor) and dtypes.is_float(x.dtype):
            if x.op.type not in _NO_GRADIENT:
                stack += x.op.inputs
                stack += getattr(x.op.node.op, "variables", ())
    return targets & visited
