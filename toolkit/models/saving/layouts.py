"""Memory layouts of weights in files of other libraries.

    "o i h w -> h w i o"              a kernel of a convolution of torch
    "i (3 h d) -> i h d", part 0      queries, keys and values in one array
    "o (c h=7 w=7) -> (h w c) o"      a product with what was flattened

The left side has the axes in the file, the right side the axes of the weight. Axes in
brackets are one merged axis, whose first axis varies slowest. A number is an axis of
that length that the other side lacks; if it is longer than 1, a weight is one part of
it.
"""

from __future__ import annotations

import math
import re

from toolkit.errors import ArgumentError
from toolkit.type_aliases import Array

Shape = tuple[int, ...]
_Groups = list[list[str]]  # the axes of a side; merged axes are in one list
_TOKENS = re.compile(r"[()]|\d+|[A-Za-z_]\w*(?:=\d+)?|\S")


class Layout:
    """Parsed layout.

    Args:
        text: the text of the layout.
        part_index: the index of the part, if the file's array contains several.

    Attributes:
        num_parts: the number of parts.
    """

    def __init__(self, text: str, part_index: int | None = None) -> None:
        self.text, self.part_index = text, part_index
        sides = text.split("->")
        if len(sides) != 2:
            raise self._error('expected "axes in the file -> axes of the weight"')
        # Axes that are numbers get internal names, which start with "#".
        self._sizes: dict[str, int] = {}
        self._file_groups, self._weight_groups = (self._groups(side) for side in sides)
        file, groups = _named(self._file_groups), _named(self._weight_groups)
        if sorted(file) != sorted(groups) or len(set(file)) != len(file):
            raise self._error("expected each axis once on both sides")
        if any(self._sizes[axis] != 1 for axis in _numbers(self._weight_groups)):
            raise self._error("expected only the number 1 on the right side")
        above = [
            n for n in (self._sizes[a] for a in _numbers(self._file_groups)) if n != 1
        ]
        if len(above) > 1:
            raise self._error("expected at most one number that is not 1")
        self.num_parts = above[0] if above else 1
        if above and (
            type(part_index) is not int or not 0 <= part_index < self.num_parts
        ):
            raise self._error(f"expected a part in the range 0 to {self.num_parts - 1}")
        if part_index is not None and not above:
            raise self._error(
                "expected no part, because the layout has no number above 1"
            )

    def _error(self, message: str) -> ArgumentError:
        suffix = "" if self.part_index is None else f", part {self.part_index!r}"
        return ArgumentError(
            f"mapping: {message}; received the layout {self.text!r}{suffix}"
        )

    def _groups(self, side: str) -> _Groups:
        groups: _Groups = []
        is_open = False
        for token in _TOKENS.findall(side):
            if token in "()":
                if is_open == (token == "("):
                    raise self._error("expected closed brackets")
                is_open = not is_open
                if is_open:
                    groups.append([])
                continue
            name, _, size = token.partition("=")
            if name.isdigit():
                name, size = f"#{len(self._sizes)}", name
            elif not name.isidentifier():
                raise self._error("expected names, numbers and brackets")
            if size and self._sizes.setdefault(name, int(size)) != int(size):
                raise self._error(f"expected a single length of {name!r}")
            if is_open:
                groups[-1].append(name)
            else:
                groups.append([name])
        if is_open:
            raise self._error("expected closed brackets")
        return groups

    def file_shape(self, shape: Shape) -> Shape:
        """Return the shape in the file of a weight of this shape.

        Raises:
            ArgumentError: the weight's shape does not have the axes on the right.
        """
        lengths = self._lengths(shape)
        return tuple(
            math.prod(lengths[a] for a in group) for group in self._file_groups
        )

    def _lengths(self, shape: Shape) -> dict[str, int]:
        """Return the length of each axis, for a weight of this shape."""
        wrong = self._error(f"the weight has the shape {shape}")
        if len(shape) != len(self._weight_groups):
            raise wrong
        lengths = dict(self._sizes)
        for size, group in zip(shape, self._weight_groups, strict=True):
            unknown = [axis for axis in group if axis not in lengths]
            known_size = math.prod(lengths[axis] for axis in group if axis in lengths)
            if len(unknown) > 1:
                raise self._error(f"expected lengths, as in {unknown[0]}=7")
            if unknown:
                lengths[unknown[0]] = size // known_size if known_size else 0
            if math.prod(lengths[axis] for axis in group) != size:
                raise wrong
        return lengths

    def from_file(self, array: Array, shape: Shape) -> Array:
        """Return the weight of this shape from a file's array."""
        return self._view_of_file(array, shape).reshape(shape)

    def write_to(self, array: Array, weight: Array) -> None:
        """Write a weight into an array for a file, row by row."""
        view = self._view_of_file(array, weight.shape)
        view[...] = weight.reshape(view.shape)

    def _view_of_file(self, array: Array, shape: Shape) -> Array:
        """Return the weight's view of the file's array, with an axis for each name."""
        lengths = self._lengths(shape)
        axes = [axis for group in self._file_groups for axis in group]
        array_by_axis = array.reshape([lengths[axis] for axis in axes])
        # All numbers but one are 1.
        index = [
            self._index_of(axis) if axis[0] == "#" else slice(None) for axis in axes
        ]
        view = array_by_axis[(*index, ...)]  # a view of a scalar, too
        names = _named(self._file_groups)
        return view.transpose(
            [names.index(axis) for axis in _named(self._weight_groups)]
        )

    def _index_of(self, axis: str) -> int:
        return (
            0 if self._sizes[axis] == 1 or self.part_index is None else self.part_index
        )


def _named(groups: _Groups) -> list[str]:
    return [axis for group in groups for axis in group if axis[0] != "#"]


def _numbers(groups: _Groups) -> list[str]:
    return [axis for group in groups for axis in group if axis[0] == "#"]
