"""The description of a convolution, from a node's attributes and operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.numpy.jit.kernels.conv.geometry import Window, collapse
from toolkit.ir import Spec
from toolkit.plans.operands import Operand


def element_strides(operand: Operand) -> list[int]:
    """Return the strides of an operand in elements, 1 along axes of one element."""
    size = dtypes.itemsize(operand.spec.dtype)
    axes = zip(operand.spec.shape, operand.strides, strict=True)
    return [1 if n == 1 else stride // size for n, stride in axes]


def windows(
    attrs: Mapping[str, Any],
    size: Sequence[int],
    spatial: Sequence[int],
    out: Sequence[int],
    read: Operand,
    other: Operand | None = None,
) -> tuple[Window, ...]:
    """Return the spatial axes of a convolution.

    Args:
        attrs: strides, padding and dilation.
        size: of a window.
        spatial, out: the extents of the images, and the number of windows.
        read: the operand whose pixels a kernel reads tap by tap.
        other: another operand, which has a pixel for each window.
    """
    steps = element_strides(other)[1:-1] if other else [0] * len(size)
    axes = zip(
        spatial,
        out,
        size,
        attrs["strides"],
        attrs["dilation"],
        (low for low, _ in attrs["padding"]),
        element_strides(read)[1:-1],
        steps,
        strict=True,
    )
    return tuple(Window(*axis) for axis in axes)


def correlation_windows(
    attrs: Mapping[str, Any],
    size: Sequence[int],
    images: Operand,
    result: Spec,
    is_input_grad: bool = False,
) -> tuple[Window, ...]:
    """Return the windows of a convolution or input gradient, on the fewest axes.

    Args:
        attrs: as for `windows`.
        size: of a window.
        images, result: the operand that is not the weights, and the result.
        is_input_grad: whether it is an input gradient.
    """
    spatial, out = images.spec.shape[1:-1], result.shape[1:-1]
    if is_input_grad:
        spatial, out = out, spatial
    return collapse(windows(attrs, size, spatial, out, images))


def gradient_windows(
    attrs: Mapping[str, Any], size: Sequence[int], images: Operand, gradients: Operand
) -> tuple[Window, ...]:
    """Return the windows of a kernel gradient, on the fewest axes."""
    extents = images.spec.shape[1:-1], gradients.spec.shape[1:-1]
    return collapse(windows(attrs, size, *extents, images, gradients))


def select_strided_pixels(attrs: Mapping[str, Any], images: Operand) -> Operand:
    """Return the pixels that windows of one pixel read."""
    batch, *spatial, channels = images.spec.shape
    steps = (1, *attrs["strides"], 1)
    extents = (-(-n // step) for n, step in zip(spatial, attrs["strides"], strict=True))
    strides = (n * step for n, step in zip(images.strides, steps, strict=True))
    return Operand(images.spec.with_shape((batch, *extents, channels)), tuple(strides))


def tap_stride(w: Operand) -> int | None:
    """Return the stride of the weights' taps in elements, or None if it varies."""
    stride, outer_extent = None, 1
    axes = zip(w.spec.shape[:-2], element_strides(w)[:-2], strict=True)
    for extent, step in reversed([axis for axis in axes if axis[0] != 1]):
        if stride is None:
            stride = step
        elif step != stride * outer_extent:
            return None
        outer_extent *= extent
    return stride or 0
