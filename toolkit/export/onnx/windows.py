"""What windows of convolutions and pooling are padded with, at all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.export.onnx.family import Family, Misfit, where_is
from toolkit.ir import Node
from toolkit.ops.conv import padding_pairs

_POOLS = ("max_pool", "sum_pool")
_WINDOWED = (*_POOLS, "conv", "conv_integer")


def padding(family: Family, node: Node) -> Any:
    """The pairs of what windows are padded with; None: "same", by the extents.

    Raises:
        UnsupportedError: it depends on free extents in a way that cannot be written.
    """
    given = family.each(node, lambda twin: twin.attrs["padding"])
    is_free = any(_free_axes(family, node)) and "spatial" not in node.attrs
    if all(pairs == given[0] for pairs in given) and not _is_unsure(family, node):
        return given[0]  # some runtimes refuse "same" beside dilations
    if not is_free or given != family.each(node, _same):
        return family.same(node, lambda twin: twin.attrs["padding"], "padding")
    strides, reaches = node.attrs["strides"], _reaches(node)
    gaps = any(k < stride for k, stride in zip(reaches, strides, strict=True))
    if node.op.name not in _POOLS or not gaps:
        return None
    # For "same", ONNX Runtime pads such pools by less than nothing, and fails.
    pairs = zip(_free_axes(family, node), reaches, strides, given[0], strict=True)
    found = tuple(_at_all_sizes(*axis) for axis in pairs)
    if None in found:
        raise family.not_affine(
            node,
            f'padding "same" of windows of {reaches} with larger strides, {strides}',
        )
    return found


def check_windows(family: Family) -> None:
    """Raise where the sizes do not tell whether windows are padded at others.

    Raises:
        Misfit: padding "same" pads nothing at any of them.
    """
    for node in family.graph.walk():
        if node.op.name in _WINDOWED and _is_unsure(family, node):
            raise Misfit(where_is(node))


def as_attributes(pads: Any) -> dict[str, Any]:
    """Pairs of paddings as attributes of an operator; None: "same"."""
    if pads is None:
        return {"auto_pad": "SAME_UPPER"}
    return {"pads": [low for low, _ in pads] + [high for _, high in pads]}


def _free_axes(family: Family, node: Node) -> list[bool]:
    """Whether each of the windows' axes has a free extent."""
    shape = family.shape(node.inputs[0])[1:-1]
    return [not isinstance(n, int) for n in shape]


def _is_unsure(family: Family, node: Node) -> bool:
    """Whether nothing is padded, be it "same" or "valid", and that may be by chance."""
    if "spatial" in node.attrs:
        return False
    pairs = zip(_free_axes(family, node), _reaches(node), strict=True)
    if not any(is_free and reach > 1 for is_free, reach in pairs):
        return False
    both = (lambda twin: twin.attrs["padding"]), _same
    each = [pads for what in both for pads in family.each(node, what)]
    return not any(n for pads in each for pair in pads for n in pair)


def _window(node: Node) -> Sequence[int]:
    if "window" in node.attrs:
        return tuple(node.attrs["window"])
    return tuple(node.inputs[1].spec.shape[:-2])


def _reaches(node: Node) -> list[int]:
    """How many elements each window is long, with those that it leaves out."""
    window = _window(node)
    dilation = node.attrs.get("dilation", [1] * len(window))
    return [(k - 1) * step + 1 for k, step in zip(window, dilation, strict=True)]


def _same(node: Node) -> Any:
    """What "same" pads with."""
    window, extents = _window(node), node.inputs[0].spec.shape[1:-1]
    dilation = node.attrs.get("dilation", (1,) * len(window))
    sizes = tuple(window), node.attrs["strides"], dilation
    return padding_pairs(node.op.name, "same", extents, *sizes)


def _at_all_sizes(is_free: bool, reach: int, stride: int, pair: Any) -> Any:
    """What pads an axis right at all sizes; None if nothing does."""
    if stride == 1 or not is_free:
        return pair
    return (0, reach - 1) if reach <= 2 else None
