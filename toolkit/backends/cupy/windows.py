"""Convolutions as products on gathered windows, where cuDNN does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toolkit import dtypes
from toolkit.backends.cupy.cuda.columns import Windows, columns, images
from toolkit.backends.cupy.cuda.launch import Buffer
from toolkit.backends.cupy.products import Matrix, multiply
from toolkit.backends.cupy.steps import Address, Lowered, NotLowered, StepBuilder
from toolkit.ir import Graph, Node, Spec
from toolkit.plans.operands import Operand, contiguous


def lower_by_windows(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower a single convolution or one of its gradients to steps."""
    node = body.nodes[0]
    if len(body.nodes) > 1 or not all(x.spec.size for x in (*inputs, *outputs)):
        return None
    if any(x is not y for x, y in zip(node.inputs, body.inputs, strict=False)):
        return None
    builder = StepBuilder()
    try:
        _LOWERINGS[node.op.name](builder, node, inputs, outputs[0].spec, precision)
    except NotLowered:
        return None
    return builder.build()


def _forward(
    builder: StepBuilder, node: Node, inputs: Sequence[Operand], y: Spec, precision: str
) -> None:
    x, w = inputs
    windows = _windows(node, w.spec.shape[:-2], y.shape[1:-1])
    columns = _gather_windows(builder, Buffer(0), x, windows)
    weights = _by_group(_as_row_major(builder, Buffer(1), w), w.spec, windows.groups)
    multiply(
        builder, columns, weights, _by_group(Buffer(2), y, windows.groups), precision
    )


def _kernel_grad(
    builder: StepBuilder, node: Node, inputs: Sequence[Operand], w: Spec, precision: str
) -> None:
    x, g = inputs
    windows = _windows(node, w.shape[:-2], g.spec.shape[1:-1])
    columns = _transpose(_gather_windows(builder, Buffer(0), x, windows))
    gradient = _by_group(_as_row_major(builder, Buffer(1), g), g.spec, windows.groups)
    target = _by_group(Buffer(2), w, windows.groups)
    multiply(builder, columns, gradient, target, precision)


def _input_grad(
    builder: StepBuilder, node: Node, inputs: Sequence[Operand], x: Spec, precision: str
) -> None:
    g, w = inputs
    windows = _windows(node, w.spec.shape[:-2], g.spec.shape[1:-1])
    # Half-precision values sum over windows in float32, and round once.
    sum_dtype = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    matrix = Spec(windows.matrix(x).shape, sum_dtype)
    target = builder.allocate(matrix.nbytes)
    gradient = _by_group(_as_row_major(builder, Buffer(0), g), g.spec, windows.groups)
    weights = _by_group(_as_row_major(builder, Buffer(1), w), w.spec, windows.groups)
    columns = _as_rows(target, matrix)
    multiply(builder, gradient, _transpose(weights), columns, precision)
    builder.launch(images(x, windows, sum_dtype), [target, Buffer(2)])


_LOWERINGS = {
    "conv": _forward,
    "conv_input_grad": _input_grad,
    "conv_kernel_grad": _kernel_grad,
}


def _windows(node: Node, kernel: Sequence[int], counts: Sequence[int]) -> Windows:
    names = ("strides", "padding", "dilation", "groups")
    return Windows(tuple(kernel), tuple(counts), *(node.attrs[k] for k in names))


def _as_row_major(builder: StepBuilder, address: Address, operand: Operand) -> Address:
    return address if operand.is_contiguous else builder.copy(address, operand)


def _gather_windows(
    builder: StepBuilder, address: Address, x: Operand, windows: Windows
) -> Matrix:
    """Return the pixels of each window as rows, by group."""
    matrix = windows.matrix(x.spec)
    target = builder.allocate(matrix.nbytes)
    builder.launch(columns(x, windows), [address, target])
    return _as_rows(target, matrix)


def _as_rows(address: Address, matrix: Spec) -> Matrix:
    """Return a (groups, windows, elements per window) matrix on contiguous memory."""
    groups, batch, *lead = matrix.shape
    half = (len(lead) - 1) // 2
    rows, depth = batch * prod(lead[:half]), prod(lead[half:])
    return Matrix(address, contiguous(matrix.with_shape((groups, rows, depth))))


def _by_group(address: Address, spec: Spec, groups: int) -> Matrix:
    """Return an array (..., groups * filters) as (groups, rows, filters)."""
    rows, count = prod(spec.shape[:-1]), spec.shape[-1]
    item = dtypes.itemsize(spec.dtype)
    inner = count // groups
    strides = (inner * item, count * item, item)
    return Matrix(address, Operand(spec.with_shape((groups, rows, inner)), strides))


def _transpose(x: Matrix) -> Matrix:
    """Return the transposed matrices."""
    *batch, m, n = x.spec.shape
    *outer, down, across = (s * x.itemsize for s in x.strides)
    spec = x.spec.with_shape((*batch, n, m))
    return Matrix(x.address, Operand(spec, (*outer, across, down)))
