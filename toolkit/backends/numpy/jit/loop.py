"""Loops over programs of generated code, as calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.backends.base import Move
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Reference
from toolkit.backends.places import LoopBody


@dataclass(frozen=True)
class Loop(Call):
    """A call that runs a whole program again and again.

    Attributes:
        body: a program that is generated code alone.
        arena: where the body keeps its intermediate values.
        moves: where each array of the body is.
        turns: how often it runs.
    """

    can_branch = False
    body: Any = None
    arena: Reference = ("work", 0)
    moves: tuple[Move, ...] = ()
    turns: int = 1

    @property
    def codes(self) -> list[Code]:
        """The functions of the body's calls."""
        return [code for _, call in self.body.code.calls for code in call.codes]


def lower_loop(
    body: LoopBody, arena: Reference, moves: Sequence[Move], turns: int
) -> Any:
    """A loop over the program of `body` as the one call of a node."""
    places = (place for m in moves for place in (m.base, m.first, m.last) if place)
    operands = tuple(dict.fromkeys((arena, *places)))
    calls = [call for _, call in body.code.calls]
    loop = Loop(
        code=Code(_no_code),
        operands=operands,
        flops=turns * sum(call.flops for call in calls),
        nbytes=turns * sum(call.nbytes for call in calls),
        body=body,
        arena=arena,
        moves=tuple(moves),
        turns=turns,
    )
    # The arena has a place even where nothing is in it.
    return Lowered((loop,), max(1, arena[1] + body.arena_bytes))


def _no_code() -> Any:
    raise NotImplementedError("a loop has no code of its own")
