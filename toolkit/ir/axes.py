"""Axis rules: the correspondence between axes of an operation's operands and results.

A rule is a string with a letter for each axis, in the notation of einsum:
"...mk,...kn->...mn" for a matrix product. If an axis with a letter is split, the
operation can be computed for each part separately. The operation reduces over a letter
that no result has (sum, maximum, ...). `_` is an axis that may not be split; `...` are
the leading axes, which broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from string import ascii_letters
from typing import Any, NamedTuple

from toolkit.ir.value import Spec

WHOLE = "_"
# The letter of an axis, or None if it may not be split.
Letter = str | int | None
AxesRule = str | Callable[..., str]


class Axes(NamedTuple):
    """The letters of each axis of each operand, and of each result."""

    inputs: Sequence[Sequence[Letter]]
    outputs: Sequence[Sequence[Letter]]

    def is_summed(self, letter: Letter) -> bool:
        """Return whether the operation reduces over a letter."""
        return not any(letter in letters for letters in self.outputs)


def letters(count: int, first: int = 0) -> str:
    """Return this number of different letters."""
    return ascii_letters[first : first + count]


def rule_along_axis(x: Spec, axis: int) -> str:
    """Return the rule of an operation along one axis that preserves its extent."""
    text = "".join("_" if i == axis else a for i, a in enumerate(letters(x.ndim)))
    return f"{text}->{text}"


def axes_of(
    rule: AxesRule,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    attrs: Mapping[str, Any],
) -> Axes:
    """Return the letters of an operation on operands with these specs.

    Args:
        rule: a string, or a function that returns one for the specs of operands and the
            attributes. The last operand, or result, in a string is repeated for all
            further ones.
        inputs, outputs: the specs.
        attrs: attributes of the operation.
    """
    text = rule if isinstance(rule, str) else rule(*inputs, **attrs)
    operand_parts, result_parts = (side.split(",") for side in text.split("->"))
    named_axes = len(result_parts[0].removeprefix("..."))
    lead = outputs[0].shape[: outputs[0].ndim - named_axes]
    return Axes(
        *(
            [
                _letters_of(text, spec.shape, lead)
                for text, spec in zip_longest(texts, specs, fillvalue=texts[-1])
                if isinstance(spec, Spec)
            ]
            for texts, specs in ((operand_parts, inputs), (result_parts, outputs))
        )
    )


def _letters_of(text: str, shape: Sequence[int], lead: Sequence[int]) -> list[Letter]:
    named_axes = text.removeprefix("...")
    axis_letters: list[Letter] = [
        None if letter == WHOLE else letter for letter in named_axes
    ]
    if named_axes == text:
        return axis_letters
    # Leading axes are numbered from the right; a broadcast axis has no number.
    count = len(shape) - len(named_axes)
    numbers = range(-count, 0)
    return [
        *(i if shape[count + i] == lead[i] else None for i in numbers),
        *axis_letters,
    ]
