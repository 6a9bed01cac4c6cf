"""rearrange: split, permute and merge axes by a pattern of names."""

from __future__ import annotations

import math
import re

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.shape import reshape, transpose
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

Group = list[str]  # the names of the axes that are merged into one axis


@operation
def rearrange(tensor: TensorLike, pattern: str, **axes_lengths: int) -> Tensor:
    """Split, permute and merge the axes of a tensor, as described by a pattern.

    Args:
        tensor: tensor of any shape.
        pattern: names of the axes, "->", and names of the axes of the result. Names in
            parentheses form one axis, in which the last name varies fastest. "..."
            means any unnamed axes, and 1 an axis of extent 1.
        axes_lengths: extents by name. At most one extent of a pair of parentheses may
            be missing.

    Returns:
        A tensor with the elements and dtype of `tensor`.

    Raises:
        ArgumentError: the pattern is not valid, or contradicts the shape.

    Reference:
        Rogozhnikov, Einops (2022), https://openreview.net/forum?id=oapKSVM2bcj

    Example:
        >>> from toolkit import ops
        >>> ops.rearrange(ops.ones((2, 6, 3)), "b (h w) c -> b c h w", h=2).shape
        (2, 3, 2, 3)
    """
    x = convert(tensor)
    left, arrow, right = pattern.partition("->")
    if not arrow:
        raise ArgumentError(f"rearrange: expected '->' in the pattern {pattern!r}")
    sources, targets = _groups(pattern, left), _groups(pattern, right)
    hidden = x.ndim - (len(sources) - (["..."] in sources))
    sources, targets = (_with_hidden(groups, hidden) for groups in (sources, targets))
    names = [name for group in sources for name in group]
    target_names = [name for group in targets for name in group]
    if len(set(names)) < len(names) or sorted(names) != sorted(target_names):
        raise ArgumentError(
            f"rearrange: both sides of {pattern!r} must have the same names, each once"
        )
    if len(sources) != x.ndim:
        raise ShapeError(
            f"rearrange: {left.strip()!r} names {len(sources)} axes; the tensor has "
            f"shape {x.shape}"
        )
    extents: dict[str, int] = {}
    for group, n in zip(sources, x.shape, strict=True):
        extents |= _extents(pattern, group, n, axes_lengths)
    x = reshape(x, [extents[name] for name in names])
    x = transpose(x, [names.index(name) for name in target_names])
    return reshape(x, [math.prod(extents[name] for name in group) for group in targets])


def _groups(pattern: str, side: str) -> list[Group]:
    """Return the groups of one side: a single name is a group, 1 an empty one."""
    tokens = re.findall(r"\([^()]*\)|\.\.\.|\w+|\S", side)
    groups = []
    for token in tokens:
        names = token.strip("()").split()
        names = [name for name in names if name != "1"]
        if not all(name == "..." or name.isidentifier() for name in names):
            raise ArgumentError(f"rearrange: {token!r} in {pattern!r} is not a name")
        if "..." in names and (len(names) > 1 or ["..."] in groups):
            raise ArgumentError(
                f"rearrange: '...' must be a separate term in {pattern!r}"
            )
        groups.append(names)
    return groups


def _with_hidden(groups: list[Group], count: int) -> list[Group]:
    """Return the groups with a separate name for each axis of "..."."""
    hidden = [[f".{i}"] for i in range(count)]
    return [
        name for group in groups for name in (hidden if group == ["..."] else [group])
    ]


def _extents(
    pattern: str, group: Group, n: int, lengths: dict[str, int]
) -> dict[str, int]:
    """Return the extent of each name of a group that forms an axis of extent n."""
    extents = {name: int(lengths[name]) for name in group if name in lengths}
    unknown = [name for name in group if name not in lengths]
    product = math.prod(extents.values())
    if len(unknown) > 1:
        raise ArgumentError(
            f"rearrange: all of {unknown} in {pattern!r}, except one, need a length"
        )
    if unknown and product and n % product == 0:
        extents[unknown[0]] = n // product
    elif unknown or product != n:
        raise ShapeError(
            f"rearrange: an axis of extent {n} does not factor into "
            f"{' x '.join(group) or 1} in {pattern!r} with lengths {lengths}"
        )
    return extents
