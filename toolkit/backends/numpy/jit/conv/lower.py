"""From a convolution or its input gradient to calls: packing, then correlating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from math import prod

from toolkit import dtypes
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.conv import geometry
from toolkit.backends.numpy.jit.conv.correlate import Plan, emit_correlation
from toolkit.backends.numpy.jit.conv.feed import channels
from toolkit.backends.numpy.jit.conv.pack import Layout, emit_pack
from toolkit.backends.numpy.jit.conv.problem import (
    anchored,
    elements,
    lanes_of,
    tap_stride,
    windows,
)
from toolkit.backends.numpy.jit.conv.steps import Steps
from toolkit.backends.numpy.jit.conv.tiles import best_vectors, registers
from toolkit.backends.numpy.jit.epilogue import Described
from toolkit.backends.numpy.jit.lowering import (
    TASKS,
    Call,
    Lowered,
    Operand,
    Reference,
    partition,
)
from toolkit.ir import Graph, Node, Spec

# Multiply-adds that are worth a task of their own, and elements of weights.
_LEAST_STRIP, _LEAST_PACK = 1 << 20, 1 << 16


def lower_conv(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """A convolution and its epilogue."""
    return _lower(body, inputs, turned=False)


def lower_conv_input_grad(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """An input gradient and its epilogue."""
    return _lower(body, inputs, turned=True)


def _lower(body: Graph, inputs: Sequence[Operand], turned: bool) -> Lowered | None:
    """The calls: packing if the weights do not lie as they are read, and the rest.

    Args:
        body: the anchor and its epilogue.
        inputs: of the body.
        turned: whether the weights are read along their outputs, from the last tap on.
    """
    operands = anchored(body, inputs)
    if operands is None:
        return None
    anchor, spec = body.nodes[0], body.nodes[0].outputs[0].spec
    if not spec.size:
        return Lowered()
    (images, x), (weights, w) = ((inputs[i], ("in", i)) for i in operands)
    steps = Steps()
    if anchor.attrs["groups"] > 1 and elements(images)[-1] != 1:
        images, x = steps.row_major(images, x)
    if tap_stride(weights) is None:
        weights, w = steps.row_major(weights, w)
    plan = _plan(anchor, images, weights, turned)
    if turned or not weights.is_contiguous or not plan.is_packed:
        packed = steps.take(plan.weights * dtypes.itemsize(plan.dtype))
        steps.calls.append(_pack(weights, (w, packed), plan, turned))
        w = packed
    steps.calls.append(_correlation(body, plan, (x, w), images))
    return steps.lowered()


def _plan(anchor: Node, images: Operand, weights: Operand, turned: bool) -> Plan:
    """How to correlate images with weights."""
    attrs, *size, depth, filters = anchor.attrs, *weights.spec.shape
    spatial, out = images.spec.shape[1:-1], anchor.outputs[0].spec.shape[1:-1]
    groups, filters = attrs["groups"], filters // attrs["groups"]
    if turned:
        spatial, out = out, spatial
        depth, filters = filters, depth
    seen = geometry.collapse(windows(attrs, size, spatial, out, images))
    sweeps = geometry.backward(seen) if turned else (geometry.forward(seen),)
    dtype = images.spec.dtype
    lanes, available = lanes_of(dtype), registers()
    at = channels(groups, depth, filters, elements(images)[-1], lanes)
    if at.spread:
        # Half of them hold inputs, which the taps of a row share.
        available //= 2
    rows = [axes[-1].count for axes in sweeps]
    return Plan(
        dtype=dtype,
        lanes=lanes,
        registers=available,
        sweeps=sweeps,
        taps=tuple(window.size for window in seen),
        channels=at,
        vectors=best_vectors(at.width, lanes, rows, available),
    )


def _correlation(
    body: Graph, plan: Plan, read: tuple[Reference, Reference], images: Operand
) -> Call:
    """The call that computes the outputs of a body.

    Args:
        body: the anchor and its epilogue.
        plan: how to correlate.
        read: where the images and the weights are.
        images: how they lie in memory.
    """
    spec = body.nodes[0].outputs[0].spec
    strips = _strips(spec, plan)
    rows = spec.shape[0] * strips
    inputs = [("in", i) for i in range(len(body.inputs))]
    outputs = [("out", i) for i in range(len(body.outputs))]
    full = [
        place
        for place, value in zip(inputs, body.inputs, strict=True)
        if value.spec.shape == spec.shape
    ]
    return Call(
        Code(emit_correlation, Described(body), plan),
        (*inputs, *outputs, *read),
        numbers=(strips, elements(images)[0]),
        rows=rows,
        grain=partition(rows),
        row_operands=frozenset([read[0], *full, *outputs] if strips == 1 else []),
        flops=2 * spec.size * prod(plan.taps) * plan.channels.depth,
        nbytes=sum(value.spec.nbytes for value in (*body.inputs, *body.outputs)),
    )


def _strips(spec: Spec, plan: Plan) -> int:
    """In how many parts an image's rows are computed: a small batch is few rows."""
    outer = [axes[0].count for axes in plan.sweeps if len(axes) > 1]
    work = spec.size // spec.shape[0] * prod(plan.taps) * plan.channels.depth
    wanted = min(-(-TASKS // spec.shape[0]), work // _LEAST_STRIP, *outer)
    return max(1, wanted) if outer else 1


def _pack(
    weights: Operand, places: tuple[Reference, Reference], plan: Plan, turned: bool
) -> Call:
    """The call that packs weights from one place to the other."""
    at, taps, (*_, first, last) = plan.channels, prod(plan.taps), elements(weights)
    step = tap_stride(weights) or 0
    group = (at.depth if turned else at.spread or at.width) * last
    inputs, outputs = (last, first) if turned else (first, last)
    spread = plan.lanes // (at.spread or plan.lanes) * group
    layout = Layout(
        taps=taps,
        depth=at.depth,
        width=at.width,
        vectors=plan.vectors,
        start=(taps - 1) * step if turned else 0,
        block=group,
        tap=-step if turned else step,
        input=inputs,
        output=outputs,
        group=group,
        vector=spread if at.spread else plan.lanes * outputs,
    )
    neighbours = outputs == 1 and (not at.spread or group == at.spread)
    rows = at.blocks * taps
    return Call(
        Code(emit_pack, plan.dtype, plan.lanes, at.spread, neighbours),
        places,
        numbers=astuple(layout),
        rows=rows,
        grain=rows if plan.weights < _LEAST_PACK else partition(rows),
        nbytes=2 * weights.spec.nbytes,
    )
