"""Launches of fused bodies, and of single nodes as bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import Body
from toolkit.backends.cupy.cuda.flat import emit_flat
from toolkit.backends.cupy.cuda.generators import generate
from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Launch,
    Scratch,
    rebase_launch,
    scratch_bytes,
)
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.rows import emit_rows
from toolkit.backends.cupy.cuda.scalars import CUDAScalars
from toolkit.backends.cupy.cuda.splitting import split_body, strip_labels
from toolkit.ir import PRIMITIVES, Constant, Graph, Node, Value
from toolkit.plans.loops.iteration_space import (
    REDUCTIONS,
    accesses_row_element,
    can_share_loop,
    classify_reduction,
    index_problem,
    is_reduction,
    is_reshape_like,
)
from toolkit.plans.loops.plan import FULL, identity
from toolkit.plans.loops.rule_digests import scalar_operations_of
from toolkit.plans.operands import Operand, align_up as aligned_bytes, contiguous


def is_fusable(node: Node) -> bool:
    """Return whether a node can be part of a generated kernel."""
    values = (*node.inputs, *node.outputs)
    if any(v.spec.dtype not in STORED for v in values):
        return False
    if node.op.name in REDUCTIONS:
        return is_reduction(node) or is_reshape_like(node)
    return accesses_row_element(node) or _has_scalar_rule(node)


def _has_scalar_rule(node: Node) -> bool:
    """Return whether a node is elementwise and has a scalar rule in CUDA."""
    if node.op.scalar is None:
        return False
    return all(CUDAScalars.has(name) for name, _ in scalar_operations_of(node))


def generate_fused(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a fused node."""
    body = node.attrs["body"]
    if not all(is_fusable(n) or is_reshape_like(n) for n in body.nodes):
        return None
    if any(y.spec.size == 0 for y in outputs):
        return ()
    if not can_share_loop(body.nodes):
        return None
    return _generate_subgraphs(body, inputs, outputs, aligned)


def _generate_subgraphs(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a split body, with scratch memory between its parts."""
    located: dict[Value, tuple[Operand, Buffer | Scratch]] = {}
    for k, (x, operand) in enumerate(
        zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True)
    ):
        located[x] = operand, Buffer(k)
    launches: list[Launch] = []
    end = 0
    makers = body.producers()
    for subgraph in split_body(body, inputs):
        for x in subgraph.inputs:
            if x not in located:  # of another shape
                root = strip_labels(makers, x)
                located[x] = contiguous(x.spec), located[root][1]
        for y in subgraph.outputs:
            if y not in located:
                located[y] = contiguous(y.spec), Scratch(end, y.spec.nbytes)
                end += aligned_bytes(y.spec.nbytes)
        entries = [located[x] for x in (*subgraph.inputs, *subgraph.outputs)]
        operands, count = [operand for operand, _ in entries], len(subgraph.inputs)
        part_launches = _generate_subgraph(
            subgraph, operands[:count], operands[count:], aligned
        )
        if part_launches is None:
            return None
        launches += [
            rebase_launch(one, [address for _, address in entries], end)
            for one in part_launches
        ]
        end += aligned_bytes(scratch_bytes(part_launches))
    return launches


def _generate_subgraph(
    subgraph: Graph,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    aligned: bool,
) -> Sequence[Launch] | None:
    """Return the launches of one part of a body, which alone can be a single node."""
    if can_share_loop(subgraph.nodes):
        return generate_body(subgraph, inputs, outputs, aligned)
    if len(subgraph.nodes) > 1:
        return None
    return generate(subgraph.nodes[0], inputs, outputs, aligned)


def generate_single(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of one elementwise node."""
    if any(x.spec.dtype not in STORED for x in (*inputs, *outputs)):
        return None
    if not _has_scalar_rule(node):
        return None
    if outputs[0].spec.size == 0:
        return ()
    graph = Graph(tuple(node.inputs), (node,), tuple(node.outputs))
    return generate_body(graph, inputs, outputs, aligned)


def generate_body(
    graph: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a body whose values share one iteration space."""
    if any(x.spec.dtype not in STORED for x in (*inputs, *outputs)):
        return None
    body = Body(graph, inputs, outputs, aligned)
    plan = body.plan
    if plan.accesses_elements and plan.column_loops > 1:
        return None
    if all(step.role == FULL for step in plan.steps) and not plan.accesses_elements:
        return [emit_flat(body)]
    picks = [node for node in graph.nodes if accesses_row_element(node)]
    problem = ""
    if picks:
        attrs = picks[0].attrs
        shifted = attrs.get("shifted", False)
        problem = index_problem(picks[0].op.name, attrs["axis"], shifted)
    return emit_rows(body, problem)


def generate_reduction(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a reduction over any axes."""
    (x,), name, axis = inputs, node.op.name, node.attrs["axis"]
    if outputs[0].spec.size == 0:
        return ()
    if x.spec.size == 0 or (
        name.startswith("arg") and classify_reduction(node) == "none"
    ):
        number = 0 if name.startswith("arg") else identity(name, x.spec.dtype)
        return _fill(number, x, outputs[0])
    axes = axis if isinstance(axis, tuple) else (axis,)
    remaining = [a for a in range(x.spec.ndim) if a not in axes]
    wide = [a for a in range(x.spec.ndim) if x.spec.shape[a] > 1]
    inner = min(wide, key=lambda a: abs(x.strides[a]), default=None)
    # Elements that are adjacent in memory become adjacent columns.
    if name.startswith("arg") or inner not in remaining:
        order, axes = [*remaining, *axes], tuple(range(len(remaining), x.spec.ndim))
    else:
        order, axes = [*axes, *remaining], tuple(range(len(axes)))
    shape = [x.spec.shape[a] for a in order]
    operand = Operand(x.spec.with_shape(shape), tuple(x.strides[a] for a in order))
    source = Value(operand.spec)
    result = Value(outputs[0].spec.with_shape(x.spec.shape[a] for a in remaining))
    reduced = axes[0] if name.startswith("arg") else axes
    attrs = {"axis": reduced, "keepdims": False}
    body = Graph((source,), (Node(node.op, (source,), attrs, (result,)),), (result,))
    return generate_body(body, (operand,), outputs, aligned)


def _fill(number: Any, x: Operand, output: Operand) -> Sequence[Launch] | None:
    """Fill an output with one number, for any input."""
    spec = output.spec
    content = dtypes.numpy_dtype(spec.dtype).type(number).reshape((1,) * spec.ndim)
    result, one = Value(spec), Constant(content)
    node = Node(PRIMITIVES["stop_gradient"], (one,), {}, (result,))
    graph = Graph((Value(x.spec),), (node,), (result,))
    return generate_body(graph, (x,), (output,), True)
