"""Convolutions as steps: cuDNN graphs, or products on gathered windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit.backends.base import Operand, contiguous
from toolkit.backends.cupy.cuda.launch import Buffer, Scratch
from toolkit.backends.cupy.epilogues import epilogue_of
from toolkit.backends.cupy.signatures import (
    Geometry,
    Signature,
    convolution,
    filters,
    images,
)
from toolkit.backends.cupy.steps import Dnn, Lowered, NotLowered, Pieces, Place
from toolkit.ir import Graph, Spec

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
# bytes of the matrix of all windows. Measured on an H200, see `_is_of_pictures`.
FEW_CHANNELS, MOST_SEEN, MOST_GATHERED = 4, 32, 64 << 20


def takes(dtype: str) -> bool:
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
    node, found = body.nodes[0], epilogue_of(body)
    if found is None or found.steps not in FOLLOWERS or len(outputs) != 1:
        return None
    follow = FOLLOWERS[found.steps]
    extras = dict(
        zip((s for s in found.steps if s != "relu"), found.extra, strict=True)
    )
    following = [extras[step] for step in follow if step != "relu"]
    op, dtype = OPS[node.op.name], outputs[0].spec.dtype
    if not takes(dtype) or not all(x.spec.size for x in (*inputs, *outputs)):
        return None
    numbers = {x: i for i, x in enumerate(body.inputs)}
    if any(x not in numbers for x in (*node.inputs, *following)):
        return None
    if op == "conv_wgrad" and precision == "tf32" and _is_of_pictures(node):
        return None
    pieces = Pieces()
    pairs: list[tuple[Place, Operand]] = [
        (Buffer(numbers[x]), inputs[numbers[x]]) for x in (*node.inputs, *following)
    ]
    first, second, *extra = pairs
    is_gradient = op == "conv_wgrad"
    specs, attrs = [x.spec for x in (*node.inputs, *node.outputs)], node.attrs
    widths = ((0, 0), *attrs["padding"], (0, 0))
    is_padded = op != "conv_fprop" and dtype == "float32" and _is_uneven(widths)
    try:
        # images with zeros in memory need no padding, so the engine defect does not
        # apply
        if is_padded:
            attrs = {**attrs, "padding": ((0, 0),) * len(attrs["padding"])}
            image = 0 if is_gradient else 2
            specs[image] = _wide(specs[image], widths)
        if is_padded and is_gradient:
            first = _padded(pieces, *first, widths)
        # c would have the padded shape, and the result is a slice of it
        if is_padded and "add" in follow:
            at = [step for step in follow if step != "relu"].index("add")
            extra[at] = _padded(pieces, *extra[at], widths)
        places = [_whole(pieces, *first)]
        places.append(
            _whole(pieces, *second) if is_gradient else _turned(pieces, *second)
        )
        places += [_whole(pieces, *pair) for pair in extra]
        result = Buffer(len(inputs))
        made = pieces.take(specs[2].nbytes) if is_gradient or is_padded else None
        target = made or result
        signature = _signature(op, specs, attrs, follow, precision)
        pieces.steps.append(Dnn(signature, (*places, target)))
        if is_gradient:
            _turn_back(pieces, target, outputs[0].spec, result)
        elif made is not None:
            _cut(pieces, made, specs[2], widths, outputs[0].spec, result)
    except NotLowered:
        return None
    return pieces.done()


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


def _is_of_pictures(node: Any) -> bool:
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
        and channels <= FEW_CHANNELS
        and window <= min(MOST_SEEN, count)
        and nbytes <= MOST_GATHERED
    )


def _is_uneven(widths: Widths) -> bool:
    """Return whether the padding before images differs from the padding after them.

    With such padding, cuDNN's engines 1, 18 and 50 (tested in 9.19) return wrong
    float32 gradients without an error.
    """
    return any(low != high for low, high in widths)


def _wide(image: Spec, widths: Widths) -> Spec:
    pairs = zip(image.shape, widths, strict=True)
    return image.with_shape(low + n + high for n, (low, high) in pairs)


def _padded(
    pieces: Pieces, place: Place, image: Operand, widths: Widths
) -> tuple[Place, Operand]:
    """Copy images into memory with zeros around them."""
    spec = _wide(image.spec, widths)
    target = pieces.take(spec.nbytes)
    attrs = {"widths": widths, "value": 0.0}
    pieces.generate("pad", [image], [place], [target], [spec], **attrs)
    return target, contiguous(spec)


def _cut(
    pieces: Pieces, place: Scratch, wide: Spec, widths: Widths, spec: Spec, to: Place
) -> None:
    """Copy images without their padding."""
    source = contiguous(wide)
    pairs = zip(source.strides, widths, strict=True)
    first = sum(stride * low for stride, (low, _) in pairs)
    inner = Scratch(place.offset + first, wide.nbytes - first)
    pieces.copy(inner, Operand(spec, source.strides), to)


def _whole(pieces: Pieces, place: Place, operand: Operand) -> Place:
    """Return an operand in row-major order; copy it if necessary."""
    return place if operand.is_contiguous else pieces.copy(place, operand)


def _turned(pieces: Pieces, place: Place, kernel: Operand) -> Place:
    """Transpose a kernel (*size, channels, filters) to filters first, channels last."""
    order = (kernel.spec.ndim - 1, *range(kernel.spec.ndim - 1))
    spec = kernel.spec.with_shape(kernel.spec.shape[axis] for axis in order)
    strides = tuple(kernel.strides[axis] for axis in order)
    return pieces.copy(place, Operand(spec, strides))


def _turn_back(pieces: Pieces, place: Place, spec: Spec, target: Place) -> None:
    """Transpose filters from cuDNN's order back to (*size, channels, filters)."""
    *rest, count = spec.shape
    source = contiguous(spec.with_shape((count, *rest)))
    strides = (*source.strides[1:], source.strides[0])
    pieces.copy(place, Operand(spec, strides), target)
