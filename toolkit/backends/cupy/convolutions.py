"""Convolutions as steps: cuDNN graphs, or products on gathered windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from toolkit.backends.cupy.cuda.launch import Buffer, Scratch
from toolkit.backends.cupy.epilogues import match_epilogue
from toolkit.backends.cupy.signatures import (
    Geometry,
    Signature,
    convolution,
    filters,
    images,
)
from toolkit.backends.cupy.steps import Address, Dnn, Lowered, NotLowered, StepBuilder
from toolkit.ir import Graph, Spec
from toolkit.plans.operands import Operand, contiguous

if TYPE_CHECKING:
    from toolkit.ir import Node

OPS = {
    "conv": "conv_fprop",
    "conv_input_grad": "conv_dgrad",
    "conv_kernel_grad": "conv_wgrad",
}
# Operations that can follow, in the order that cuDNN's precompiled engines apply them.
# Any other order compiles at run time, and strict float32 does not support even that.
FOLLOWERS = {
    (): (),
    ("bias",): ("bias",),
    ("bias", "relu"): ("bias", "relu"),
    ("bias", "add"): ("add", "bias"),
    ("bias", "add", "relu"): ("add", "bias", "relu"),
}
# The padding of each axis, before and after.
Widths = Sequence[tuple[int, int]]
# cuDNN has no convolution of float64.
DTYPES = frozenset({"float16", "bfloat16", "float32"})
# Upper limits for gradients of filters as products: channels, elements per window, and
# bytes of the matrix of all windows. Measured on an H200, see `_has_few_channels`.
MAX_CHANNELS, MAX_WINDOW_ELEMENTS, MAX_MATRIX_BYTES = 4, 32, 64 << 20


def supports_dtype(dtype: str) -> bool:
    """Return whether cuDNN convolves a dtype."""
    return dtype in DTYPES


def lower_by_cudnn(
    body: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand], precision: str
) -> Lowered | None:
    """Lower a convolution or one of its gradients, with its epilogue, to steps.

    Images stay channels-last. Filters are transposed before a call, and their gradient
    is transposed after it.

    Args:
        body: the convolution, and the elementwise nodes on its result.
        inputs, outputs: the operands of the body.
        precision: the float32 precision: "highest", "strict" or "tf32".
    """
    node, epilogue = body.nodes[0], match_epilogue(body)
    if epilogue is None or epilogue.steps not in FOLLOWERS or len(outputs) != 1:
        return None
    follow = FOLLOWERS[epilogue.steps]
    extras = dict(
        zip((s for s in epilogue.steps if s != "relu"), epilogue.extra, strict=True)
    )
    following = [extras[step] for step in follow if step != "relu"]
    op, dtype = OPS[node.op.name], outputs[0].spec.dtype
    if not supports_dtype(dtype) or not all(x.spec.size for x in (*inputs, *outputs)):
        return None
    numbers = {x: i for i, x in enumerate(body.inputs)}
    if any(x not in numbers for x in (*node.inputs, *following)):
        return None
    if op == "conv_wgrad" and precision == "tf32" and _has_few_channels(node):
        return None
    builder = StepBuilder()
    pairs: list[tuple[Address, Operand]] = [
        (Buffer(numbers[x]), inputs[numbers[x]]) for x in (*node.inputs, *following)
    ]
    first, second, *extra = pairs
    is_gradient = op == "conv_wgrad"
    specs, attrs = [x.spec for x in (*node.inputs, *node.outputs)], node.attrs
    widths = ((0, 0), *attrs["padding"], (0, 0))
    is_padded = op != "conv_fprop" and dtype == "float32" and _is_asymmetric(widths)
    try:
        # images with zeros in memory need no padding, so the engine defect does not
        # apply
        if is_padded:
            attrs = {**attrs, "padding": ((0, 0),) * len(attrs["padding"])}
            image = 0 if is_gradient else 2
            specs[image] = _padded_spec(specs[image], widths)
        if is_padded and is_gradient:
            first = _pad(builder, *first, widths)
        # c would have the padded shape, and the result is a slice of it
        if is_padded and "add" in follow:
            at = [step for step in follow if step != "relu"].index("add")
            extra[at] = _pad(builder, *extra[at], widths)
        addresses = [_as_row_major(builder, *first)]
        addresses.append(
            _as_row_major(builder, *second)
            if is_gradient
            else _transpose_filters(builder, *second)
        )
        addresses += [_as_row_major(builder, *pair) for pair in extra]
        result = Buffer(len(inputs))
        scratch = (
            builder.allocate(specs[2].nbytes) if is_gradient or is_padded else None
        )
        target = scratch or result
        signature = _signature(op, specs, attrs, follow, precision)
        builder.steps.append(Dnn(signature, (*addresses, target)))
        if is_gradient:
            _restore_filters(builder, target, outputs[0].spec, result)
        elif scratch is not None:
            _crop(builder, scratch, specs[2], widths, outputs[0].spec, result)
    except NotLowered:
        return None
    return builder.build()


def _signature(
    op: str, specs: Sequence[Spec], attrs: Any, follow: Sequence[str], precision: str
) -> Signature:
    kinds = {
        "conv_fprop": (images, filters, images),
        "conv_dgrad": (images, filters, images),
        "conv_wgrad": (images, images, filters),
    }[op]
    shapes = [kind(x.shape) for kind, x in zip(kinds, specs, strict=True)]
    dtype, geometry = specs[-1].dtype, Geometry.of(attrs)
    return convolution(op, shapes, geometry, dtype, precision, follow)


def _has_few_channels(node: Node) -> bool:
    """Return whether a gradient of filters has too few channels for fast cuDNN engines.

    For float32 with 3 x 3 filters and 3 channels, cuDNN's plans take twice as long as
    gathered windows and a product (measured on an H200). Tensor cores read four
    channels at once. Larger windows and larger matrices are not measured, so cuDNN
    computes them.
    """
    gradient, kernel = node.inputs[1].spec, node.outputs[0].spec
    *sizes, channels, count = kernel.shape
    window = prod(sizes) * channels
    nbytes = gradient.nbytes // count * window
    return bool(
        kernel.dtype == "float32"
        and len(sizes) == 2
        and node.attrs["groups"] == 1
        and channels <= MAX_CHANNELS
        and window <= min(MAX_WINDOW_ELEMENTS, count)
        and nbytes <= MAX_MATRIX_BYTES
    )


def _is_asymmetric(widths: Widths) -> bool:
    """Return whether the padding before images differs from the padding after them.

    With such padding, cuDNN's engines 1, 18 and 50 (tested in 9.19) return wrong
    float32 gradients without an error.
    """
    return any(low != high for low, high in widths)


def _padded_spec(image: Spec, widths: Widths) -> Spec:
    pairs = zip(image.shape, widths, strict=True)
    return image.with_shape(low + n + high for n, (low, high) in pairs)


def _pad(
    builder: StepBuilder, address: Address, image: Operand, widths: Widths
) -> tuple[Address, Operand]:
    """Copy images into memory with zeros around them."""
    spec = _padded_spec(image.spec, widths)
    target = builder.allocate(spec.nbytes)
    attrs = {"widths": widths, "value": 0.0}
    builder.generate("pad", [image], [address], [target], [spec], **attrs)
    return target, contiguous(spec)


def _crop(
    builder: StepBuilder,
    address: Scratch,
    wide: Spec,
    widths: Widths,
    spec: Spec,
    to: Address,
) -> None:
    """Copy images without their padding."""
    source = contiguous(wide)
    pairs = zip(source.strides, widths, strict=True)
    first = sum(stride * low for stride, (low, _) in pairs)
    inner = Scratch(address.offset + first, wide.nbytes - first)
    builder.copy(inner, Operand(spec, source.strides), to)


def _as_row_major(builder: StepBuilder, address: Address, operand: Operand) -> Address:
    """Return an operand in row-major order; copy it if necessary."""
    return address if operand.is_contiguous else builder.copy(address, operand)


def _transpose_filters(
    builder: StepBuilder, address: Address, kernel: Operand
) -> Address:
    """Transpose a kernel (*size, channels, filters) to filters first, channels last."""
    order = (kernel.spec.ndim - 1, *range(kernel.spec.ndim - 1))
    spec = kernel.spec.with_shape(kernel.spec.shape[axis] for axis in order)
    strides = tuple(kernel.strides[axis] for axis in order)
    return builder.copy(address, Operand(spec, strides))


def _restore_filters(
    builder: StepBuilder, address: Address, spec: Spec, target: Address
) -> None:
    """Transpose filters from cuDNN's order back to (*size, channels, filters)."""
    *lead, count = spec.shape
    source = contiguous(spec.with_shape((count, *lead)))
    strides = (*source.strides[1:], source.strides[0])
    builder.copy(address, Operand(spec, strides), target)
