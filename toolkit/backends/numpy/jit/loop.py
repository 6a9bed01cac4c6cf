"""Loops over programs of generated code, and choices between them, as calls.

A choice is two loops of at most one turn, of which one has none. A loop of unknown
length asks before each turn; what it carries is in one of two sets of buffers then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from toolkit.backends.base import ALIGNMENT, Move, Operand, aligned
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Reference,
    redirected,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.places import LoopBody
from toolkit.definitions.records import record
from toolkit.ir import Spec

_FOREVER = 1 << 62
# Bytes that one task copies.
_COPIED = 1 << 18


@record
class Loop(Call):
    """A call that runs a whole program again and again.

    Attributes:
        body: a program that is generated code alone.
        arena: where the body keeps its intermediate values.
        moves: where each array of the body is.
        turns: how often it runs, at most.
        condition: a bool that is asked before each turn; None: nothing is.
        wanted: what it has to be for another turn.
        done: an int64 that is told how often the body ran; None: nothing is.
    """

    can_branch = False
    body: Any = None
    arena: Reference = ("work", 0)
    moves: tuple[Move, ...] = ()
    turns: int = 1
    condition: Reference | None = None
    wanted: bool = True
    done: Reference | None = None

    @property
    def codes(self) -> list[Code]:
        """The functions of the body's calls."""
        return [code for _, call in self.body.code.calls for code in call.codes]


def lower_loop(
    body: LoopBody,
    arena: Reference,
    moves: Sequence[Move],
    turns: int,
    first_kept: int = 0,
    changing: Collection[Reference] = (),
    **asked: Any,
) -> Lowered:
    """A loop over the program of `body` as a call of a node.

    What follows from frozen inputs of the body alone is made once, for all turns.

    Args:
        first_kept: by which number the node knows the first operand that is made once.
        changing: the operands that are the same in all turns, but not in all runs.
        asked: `condition`, `wanted` and `done` of the `Loop`.
    """
    once: list[Call] = []
    each: list[Call] = []  # of what is made once in each run
    kept: list[int] = []
    moves = list(moves)
    # The arena has a place even where nothing is in it.
    work = max(1, arena[1] + body.arena_bytes)
    for made in body.preparations:
        bases = [moves[source].base for source in made.sources]
        instead = dict(zip(made.call.given, bases, strict=True))
        if any(base in changing for base in bases):
            place: Reference = ("work", aligned(work))
            work = place[1] + made.nbytes
            each.append(redirected(made.call, {**instead, made.call.made: place}))
        else:
            place = "kept", first_kept + len(kept)
            kept.append(made.nbytes)
            once.append(redirected(made.call, {**instead, made.call.made: place}))
        moves.append(Move(place))
    places = [place for m in moves for place in (m.base, m.first, m.last) if place]
    places += [p for p in (asked.get("condition"), asked.get("done")) if p]
    operands = tuple(dict.fromkeys((arena, *places)))
    calls = [call for _, call in body.code.calls]
    expected = 1 if "condition" in asked else turns
    loop = Loop(
        code=Code(_no_code),
        operands=operands,
        flops=expected * sum(call.flops for call in calls),
        nbytes=expected * sum(call.nbytes for call in calls),
        body=body,
        arena=arena,
        moves=tuple(moves),
        turns=turns,
        **asked,
    )
    return Lowered((*each, loop), work, once, kept)


def lower_scan(
    body: LoopBody,
    arena: Reference,
    moves: Sequence[Move],
    turns: int,
    begun: Sequence[tuple[int, Spec]],
    changing: Collection[Reference],
) -> Lowered:
    """A loop of known length, behind copies of what it changes where it is."""
    loop = lower_loop(body, arena, moves, turns, changing=changing)
    copies = [_begun(number, spec) for number, spec in begun if spec.size]
    return replace(loop, calls=(*copies, *loop.calls))


def lower_choice(
    branches: Sequence[LoopBody], inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered:
    """One of two programs, by the first input: that for True, or the one behind it."""
    moves = [Move(("in", 1 + i)) for i in range(len(inputs) - 1)]
    moves += [Move(("out", i)) for i in range(len(outputs))]
    condition: Reference = ("in", 0)
    parts: list[Lowered] = []
    for body, wanted in zip(branches, (True, False), strict=True):
        asked: dict[str, Any] = {"condition": condition, "wanted": wanted}
        known = sum(len(part.kept) for part in parts)
        parts.append(lower_loop(body, ("work", 0), moves, 1, known, **asked))
    return _together(parts)


def lower_while(
    condition: LoopBody,
    body: LoopBody,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    limit: int | None,
    begun: Collection[int],
) -> Lowered:
    """A program as long as what it computes last is True.

    Args:
        condition: of carried values and constants, whether there is a first turn.
        body: of the same, new carried values and whether there is another turn.
        inputs: the first carried values, then the constants.
        outputs: the last carried values.
        limit: turns at most.
        begun: the numbers of carried values that the body changes where they are.
    """
    count = len(outputs)
    sizes = [0 if i in begun else y.spec.nbytes for i, y in enumerate(outputs)]
    starts = list(accumulate(map(aligned, sizes), initial=0))
    delta = starts[-1]
    goes_on: Reference = ("work", 2 * delta)
    done: Reference = ("work", goes_on[1] + ALIGNMENT)
    arena: Reference = ("work", done[1] + ALIGNMENT)
    constants = [Move(("in", i)) for i in range(count, len(inputs))]
    given = [Move(("in", i)) for i in range(count)]
    first = lower_loop(condition, arena, [*given, *constants, Move(goes_on)], 1)
    sets: list[Reference] = [("work", start) for start in starts[:-1]]
    carried = [
        Move(place, phase=1, delta=delta, first=("in", i))
        for i, place in enumerate(sets)
    ]
    following = [Move(place, delta=delta) for place in sets]
    for i in begun:
        carried[i] = following[i] = Move(("out", i))
    moves = [*carried, *constants, *following, Move(goes_on)]
    turns = _FOREVER if limit is None else limit
    asked: dict[str, Any] = {"condition": goes_on, "done": done}
    rest = lower_loop(body, arena, moves, turns, len(first.kept), **asked)
    copies = [_begun(i, y.spec) for i in begun if (y := outputs[i]).spec.size]
    last = [
        _last(i, y, place, delta, done)
        for i, (y, place) in enumerate(zip(outputs, sets, strict=True))
        if y.spec.size and i not in begun
    ]
    return _together([Lowered(copies), first, rest, Lowered(last)])


def _together(parts: Sequence[Lowered]) -> Lowered:
    """Calls one after the other that share scratch memory."""
    return Lowered(
        [call for part in parts for call in part.calls],
        max(part.work for part in parts),
        [call for part in parts for call in part.prepared],
        [nbytes for part in parts for nbytes in part.kept],
    )


def _begun(number: int, spec: Spec) -> Call:
    """Copies a carried value to where the body changes it."""
    out: Reference = ("out", number)
    return Call(
        Code(emit_begun),
        (("in", number), out),
        rows=spec.nbytes,
        grain=_COPIED,
        row_operands=frozenset({out}),
        nbytes=2 * spec.nbytes,
    )


def emit_begun() -> Kernel:
    """out = x; a row is a byte."""
    b = Kernel(current().lanes)
    x, out = (b.address(k, "uint8") for k in range(2))
    b.copy(x + b.low, out + b.low, b.high - b.low, "uint8")
    return b


def _last(
    number: int, y: Operand, place: Reference, delta: int, done: Reference
) -> Call:
    """Copies a carried value from where the last turn left it."""
    out: Reference = ("out", number)
    other: Reference = ("work", place[1] + delta)
    size = y.spec.nbytes
    return Call(
        Code(emit_last),
        (("in", number), place, other, done, out),
        rows=size,
        grain=_COPIED,
        row_operands=frozenset({out}),
        nbytes=2 * size,
    )


def emit_last() -> Kernel:
    """out = x after no turn, what is in the first place after an odd number, or else
    in the second; a row is a byte."""
    b = Kernel(current().lanes)
    x, first, second, out = (b.address(k, "uint8") for k in (0, 1, 2, 4))
    turns = b.integer_at(b.address(3, "int64"), "int64")
    is_odd = b.compare("ne", turns & 1, 0)
    made = b.pointer(f"select i1 {is_odd}, ptr {first}, ptr {second}")
    ran = b.compare("ne", turns, 0)
    source = b.pointer(f"select i1 {ran}, ptr {made}, ptr {x}")
    b.copy(source + b.low, out + b.low, b.high - b.low, "uint8")
    return b


def _no_code() -> Any:
    raise NotImplementedError("a loop has no code of its own")
