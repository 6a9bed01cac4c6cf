"""Unfolding of images of few channels along their last axis.

A block of 32 terms is much more than three channels. But the inputs of a window along
the last axis are contiguous, for all of their channels. As channels of one pixel, which
overlap with the channels of the next pixel, they fill a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.calls import Reference
from toolkit.backends.numpy.jit.kernels.gemm.amx import BLOCK_LINES
from toolkit.backends.numpy.jit.kernels.gemm.call_list import CallList
from toolkit.backends.numpy.jit.kernels.move import lower_pad
from toolkit.ir import Spec
from toolkit.plans.operands import Operand, contiguous

# The relative cost of packing a byte of windows, which overlap and are short.
UNFOLDED_COST = 4


class Unfolded(NamedTuple):
    """A convolution whose windows are one pixel along the last axis.

    Attributes:
        images, reference: the windows of the images, and their reference.
        attrs: strides, padding and dilation.
        sizes: the extents of a window.
    """

    images: Operand
    reference: Reference
    attrs: Mapping[str, Any]
    sizes: tuple[int, ...]


def unfolded(
    steps: CallList,
    images: Operand,
    reference: Reference,
    attrs: Mapping[str, Any],
    sizes: Sequence[int],
    out: int,
    fill: int = 0,
) -> Unfolded | None:
    """Return an equal convolution of unfolded images, or None for many channels.

    Args:
        steps: receives the call that pads the images, if needed.
        images, reference: the images, and their reference.
        attrs, sizes: of the convolution.
        out: the number of windows along the last axis.
        fill: the value of the padding.
    """
    *batch, width, channels = images.spec.shape
    size, stride = sizes[-1], attrs["strides"][-1]
    is_few = channels and 2 * channels <= BLOCK_LINES and size > 1
    if not is_few or attrs["dilation"][-1] != 1 or not images.is_contiguous:
        return None
    low = attrs["padding"][-1][0]
    high = max(0, (out - 1) * stride + size - low - width)
    if low or high:
        images, reference = _pad_last_axis(steps, images, reference, (low, high), fill)
    item = images.strides[-1]
    strides = (*images.strides[:-2], stride * channels * item, item)
    spec = Spec((*batch, out, size * channels), images.spec.dtype)
    changed = {"strides": 1, "padding": (0, 0), "dilation": 1}
    new_attrs = {name: (*attrs[name][:-1], last) for name, last in changed.items()}
    return Unfolded(Operand(spec, strides), reference, new_attrs, (*sizes[:-1], 1))


def _pad_last_axis(
    steps: CallList,
    images: Operand,
    reference: Reference,
    added: tuple[int, int],
    fill: int,
) -> tuple[Operand, Reference]:
    """Append the call that pads the last axis of images, and return the copy."""
    *batch, width, channels = images.spec.shape
    spec = Spec((*batch, sum(added) + width, channels), images.spec.dtype)
    widths = (*[(0, 0)] * len(batch), added, (0, 0))
    node = SimpleNamespace(attrs={"widths": widths, "value": fill})
    padded = contiguous(spec)
    lowered = lower_pad(node, [images], [padded])
    return padded, steps.copy(lowered, reference, spec.nbytes)
