"""From a convolution or its input gradient to calls: packing, then correlating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from math import prod

from toolkit import dtypes
from toolkit.backends.base import aligned
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.conv import geometry
from toolkit.backends.numpy.jit.conv.correlate import Plan, emit_correlation
from toolkit.backends.numpy.jit.conv.feed import channels
from toolkit.backends.numpy.jit.conv.geometry import Axes, Window
from toolkit.backends.numpy.jit.conv.pack import Layout, emit_pack
from toolkit.backends.numpy.jit.conv.problem import (
    anchored,
    elements,
    lanes_of,
    tap_stride,
    windows,
)
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
from toolkit.ir import Graph, Spec

_WORK: Reference = ("work", 0)
# Multiply-adds that are worth a task of their own, and elements of weights.
_LEAST_STRIP, _LEAST_PACK = 1 << 20, 1 << 16


def lower_conv(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """A convolution and its epilogue."""
    operands = anchored(body, inputs)
    if operands is None:
        return None
    anchor, (x, w) = body.nodes[0], (inputs[i] for i in operands)
    extents = (x.spec.shape[1:-1], anchor.outputs[0].spec.shape[1:-1])
    seen = geometry.collapse(windows(anchor.attrs, w.spec.shape[:-2], *extents, x))
    groups, filters = anchor.attrs["groups"], w.spec.shape[-1]
    channels = (groups, w.spec.shape[-2], filters // groups)
    plan = _plan(x, seen, (geometry.forward(seen),), channels)
    return _lower(body, inputs, operands, plan, turned=False)


def lower_conv_input_grad(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """An input gradient and its epilogue."""
    operands = anchored(body, inputs)
    if operands is None:
        return None
    anchor, (g, w) = body.nodes[0], (inputs[i] for i in operands)
    extents = (anchor.attrs["spatial"], g.spec.shape[1:-1])
    seen = geometry.collapse(windows(anchor.attrs, w.spec.shape[:-2], *extents, g))
    groups, filters = anchor.attrs["groups"], w.spec.shape[-1]
    channels = (groups, filters // groups, w.spec.shape[-2])
    plan = _plan(g, seen, geometry.backward(seen), channels)
    return _lower(body, inputs, operands, plan, turned=True)


def _plan(
    images: Operand,
    seen: Sequence[Window],
    sweeps: tuple[Axes, ...],
    groups: tuple[int, int, int],
) -> Plan:
    """How to correlate images.

    Args:
        images: the operand.
        seen: the windows over them.
        sweeps: the correlations that have to be computed.
        groups: how many, their input channels, and their output channels.
    """
    dtype = images.spec.dtype
    lanes, available = lanes_of(dtype), registers()
    at = channels(*groups, elements(images)[-1], lanes)
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


def _lower(
    body: Graph,
    inputs: Sequence[Operand],
    operands: tuple[int, int],
    plan: Plan,
    turned: bool,
) -> Lowered | None:
    """The calls: packing if the weights do not lie as they are read, and the rest.

    Args:
        body: the anchor and its epilogue.
        inputs: of the body.
        operands: which inputs are the images and the weights.
        plan: how to correlate them.
        turned: whether the weights are read along their outputs, from the last tap on.
    """
    images, w = (inputs[i] for i in operands)
    step = tap_stride(w)
    if step is None:
        return None
    spec = body.nodes[0].outputs[0].spec
    if not spec.size:
        return Lowered()
    packing, source = [], ("in", operands[1])
    if turned or not w.is_contiguous or not plan.is_packed:
        packing = [_pack(w, step, operands[1], plan, turned)]
        source = _WORK
    strips = _strips(spec, plan)
    rows = spec.shape[0] * strips
    all_inputs = [("in", i) for i in range(len(body.inputs))]
    all_outputs = [("out", i) for i in range(len(body.outputs))]
    batch = [("in", operands[0])] + [
        ("in", i) for i, x in enumerate(body.inputs) if x.spec.shape == spec.shape
    ]
    call = Call(
        Code(emit_correlation, Described(body), plan, operands[0]),
        (*all_inputs, *all_outputs, source),
        numbers=(strips, elements(images)[0]),
        rows=rows,
        grain=partition(rows),
        row_operands=frozenset([*batch, *all_outputs] if strips == 1 else []),
        flops=2 * spec.size * prod(plan.taps) * plan.channels.depth,
        nbytes=sum(x.spec.nbytes for x in (*body.inputs, *body.outputs)),
    )
    work = aligned(plan.weights * dtypes.itemsize(plan.dtype)) if packing else 0
    return Lowered([*packing, call], work)


def _strips(spec: Spec, plan: Plan) -> int:
    """In how many parts an image's rows are computed: a small batch is few rows."""
    outer = [axes[0].count for axes in plan.sweeps if len(axes) > 1]
    work = spec.size // spec.shape[0] * prod(plan.taps) * plan.channels.depth
    wanted = min(-(-TASKS // spec.shape[0]), work // _LEAST_STRIP, *outer)
    return max(1, wanted) if outer else 1


def _pack(w: Operand, step: int, index: int, plan: Plan, turned: bool) -> Call:
    """The call that packs weights.

    Args:
        w: the weights.
        step: elements from one tap to the next.
        index: which operand they are.
        plan: who reads them.
        turned: from the last tap on, along their outputs.
    """
    at, taps, (*_, first, last) = plan.channels, prod(plan.taps), elements(w)
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
        (("in", index), _WORK),
        numbers=astuple(layout),
        rows=rows,
        grain=rows if plan.weights < _LEAST_PACK else partition(rows),
        nbytes=2 * w.spec.nbytes,
    )
