"""Padding of convolution and pooling windows, for all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.export.onnx.family import Family, TraceMismatchError, describe_node
from toolkit.ir import Node
from toolkit.ops.spatial import padding_pairs

_POOLS = ("max_pool", "sum_pool")
_WINDOWED = (*_POOLS, "conv", "conv_integer")


def padding(family: Family, node: Node) -> Any:
    """Return (before, after) padding pairs; None means "same", computed at runtime.

    Raises:
        UnsupportedError: the padding has an unsupported dependence on free extents.
    """
    paddings = family.value_per_graph(
        node, lambda counterpart: counterpart.attrs["padding"]
    )
    is_free = any(_free_axes(family, node)) and "spatial" not in node.attrs
    if all(pairs == paddings[0] for pairs in paddings) and not _is_ambiguous(
        family, node
    ):
        return paddings[0]  # some runtimes reject "same" with dilations
    if not is_free or paddings != family.value_per_graph(node, _same_padding):
        return family.common_value(
            node, lambda counterpart: counterpart.attrs["padding"], "padding"
        )
    strides, reaches = node.attrs["strides"], _reaches(node)
    has_gaps = any(k < stride for k, stride in zip(reaches, strides, strict=True))
    if node.op.name not in _POOLS or not has_gaps:
        return None
    # For "same", ONNX Runtime computes a negative padding for such pools, and fails.
    pairs = zip(_free_axes(family, node), reaches, strides, paddings[0], strict=True)
    pads = tuple(_size_independent_padding(*axis) for axis in pairs)
    if None in pads:
        raise family.unsupported_dependence(
            node,
            f'padding "same" of windows of {reaches} with larger strides, {strides}',
        )
    return pads


def check_windows(family: Family) -> None:
    """Raise an error if the padding at other sizes is ambiguous.

    Raises:
        TraceMismatchError: padding "same" adds no padding at any of the sizes.
    """
    for node in family.graph.walk():
        if node.op.name in _WINDOWED and _is_ambiguous(family, node):
            raise TraceMismatchError(describe_node(node))


def as_attributes(pads: Any) -> dict[str, Any]:
    """Return padding pairs as operator attributes; None means "same"."""
    if pads is None:
        return {"auto_pad": "SAME_UPPER"}
    return {"pads": [low for low, _ in pads] + [high for _, high in pads]}


def _free_axes(family: Family, node: Node) -> list[bool]:
    """Return whether each window axis has a free extent."""
    shape = family.shape(node.inputs[0])[1:-1]
    return [not isinstance(n, int) for n in shape]


def _is_ambiguous(family: Family, node: Node) -> bool:
    """Return whether "same" and "valid" agree on no padding, possibly by chance."""
    if "spatial" in node.attrs:
        return False
    pairs = zip(_free_axes(family, node), _reaches(node), strict=True)
    if not any(is_free and reach > 1 for is_free, reach in pairs):
        return False
    functions = (lambda counterpart: counterpart.attrs["padding"]), _same_padding
    paddings = [
        pads
        for function in functions
        for pads in family.value_per_graph(node, function)
    ]
    return not any(n for pads in paddings for pair in pads for n in pair)


def _window(node: Node) -> Sequence[int]:
    if "window" in node.attrs:
        return tuple(node.attrs["window"])
    return tuple(node.inputs[1].spec.shape[:-2])


def _reaches(node: Node) -> list[int]:
    """Return the extent of each window, with dilation gaps."""
    window = _window(node)
    dilation = node.attrs.get("dilation", [1] * len(window))
    return [(k - 1) * step + 1 for k, step in zip(window, dilation, strict=True)]


def _same_padding(node: Node) -> Any:
    """Return the padding of "same"."""
    window, extents = _window(node), node.inputs[0].spec.shape[1:-1]
    dilation = node.attrs.get("dilation", (1,) * len(window))
    sizes = tuple(window), node.attrs["strides"], dilation
    return padding_pairs(node.op.name, "same", extents, *sizes)


def _size_independent_padding(is_free: bool, reach: int, stride: int, pair: Any) -> Any:
    """Return the padding of an axis that is valid at all sizes, or None."""
    if stride == 1 or not is_free:
        return pair
    return (0, reach - 1) if reach <= 2 else None
