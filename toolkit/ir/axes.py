"""Rules of axes: which axes of an operation's operands and results belong together.

A rule is a text with a letter for each axis, as einsum has it: "...mk,...kn->...mn" for
a product. Where an axis with a letter is cut into pieces, the operation can be computed
for each piece by itself. A letter that no result has is one over which the operation
sums (or takes the maximum of, ...). `_` is an axis that must be whole, `...` are the
leading axes, which broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from string import ascii_letters
from typing import Any, NamedTuple

from toolkit.ir.value import Spec

WHOLE = "_"
# Of an axis: its letter, or None if it must be whole.
Letter = str | int | None
AxesRule = str | Callable[..., str]


class Axes(NamedTuple):
    """The letters of each axis of each operand, and of each result."""

    inputs: Sequence[Sequence[Letter]]
    outputs: Sequence[Sequence[Letter]]

    def is_summed(self, letter: Letter) -> bool:
        """Whether no result has a letter."""
        return not any(letter in letters for letters in self.outputs)


def letters(count: int, first: int = 0) -> str:
    """So many different letters."""
    return ascii_letters[first : first + count]


def along(x: Spec, axis: int) -> str:
    """The rule of what goes along one axis, and gives as much as it takes."""
    text = "".join("_" if i == axis else a for i, a in enumerate(letters(x.ndim)))
    return f"{text}->{text}"


def axes_of(
    rule: AxesRule,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    attrs: Mapping[str, Any],
) -> Axes:
    """The letters of an operation on operands of these specs.

    Args:
        rule: a text, or what makes one of the specs of operands and the attributes.
            The last operand, or result, of a text stands for all that follow.
        inputs, outputs: the specs.
        attrs: the attributes.
    """
    text = rule if isinstance(rule, str) else rule(*inputs, **attrs)
    given, made = (part.split(",") for part in text.split("->"))
    own = len(made[0].removeprefix("..."))
    lead = outputs[0].shape[: outputs[0].ndim - own]
    return Axes(
        *(
            [
                _letters_of(text, spec.shape, lead)
                for text, spec in zip_longest(texts, specs, fillvalue=texts[-1])
                if isinstance(spec, Spec)
            ]
            for texts, specs in ((given, inputs), (made, outputs))
        )
    )


def _letters_of(text: str, shape: Sequence[int], lead: Sequence[int]) -> list[Letter]:
    own = text.removeprefix("...")
    found: list[Letter] = [None if letter == WHOLE else letter for letter in own]
    if own == text:
        return found
    # Leading axes have numbers, from the right; one that is repeated has none.
    count = len(shape) - len(own)
    numbers = range(-count, 0)
    return [*(i if shape[count + i] == lead[i] else None for i in numbers), *found]
