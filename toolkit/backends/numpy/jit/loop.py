"""Loops over programs of generated code, and branches, as calls.

A branch is two loops of at most one iteration, one of which runs. A loop of unknown
length checks its condition before each iteration. Its carried values use two sets of
buffers alternately.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NoReturn

from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, redirect_operands
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record
from toolkit.ir import Spec
from toolkit.plans.locations import LoopBody
from toolkit.plans.operands import ALIGNMENT, LoopOperand, Operand, align_up

_UNBOUNDED = 1 << 62
# Bytes that one task copies.
_COPY_BYTES = 1 << 18


@record
class Loop(Call):
    """A call that runs a whole program repeatedly.

    Attributes:
        body: a program of generated code only.
        arena: the memory of the body's intermediate values.
        moves: the location of each array of the body.
        iterations: the maximum number of iterations.
        condition: a bool that is checked before each iteration; None: no check.
        expected: the value of the condition that continues the loop.
        iteration_count: an int64 that receives the number of iterations, or None.
    """

    can_branch = False
    body: Any = None
    arena: Reference = ("work", 0)
    moves: tuple[LoopOperand, ...] = ()
    iterations: int = 1
    condition: Reference | None = None
    expected: bool = True
    iteration_count: Reference | None = None

    @property
    def codes(self) -> list[Code]:
        """The functions of the body's calls."""
        return [code for _, call in self.body.code.calls for code in call.codes]


def lower_loop(
    body: LoopBody,
    arena: Reference,
    moves: Sequence[LoopOperand],
    iterations: int,
    first_kept: int = 0,
    changing: Collection[Reference] = (),
    **flags: Any,
) -> Lowered:
    """Return a loop over the program of `body` as a call of a node.

    Values that depend on frozen inputs only are hoisted out of the loop.

    Args:
        first_kept: the number of the node's first hoisted operand.
        changing: operands that are constant within a run but vary between runs.
        flags: `condition`, `expected` and `iteration_count` of the `Loop`.
    """
    hoisted_calls: list[Call] = []
    run_calls: list[Call] = []  # hoisted out of the loop, but computed in each run
    kept_sizes: list[int] = []
    moves = list(moves)
    # The arena has an address even if it is empty.
    work = max(1, arena[1] + body.arena_bytes)
    for preparation in body.preparations:
        bases = [moves[source].base for source in preparation.sources]
        replacements = dict(zip(preparation.call.inputs, bases, strict=True))
        if any(base in changing for base in bases):
            reference: Reference = ("work", align_up(work))
            work = reference[1] + preparation.nbytes
            calls = run_calls
        else:
            reference = "kept", first_kept + len(kept_sizes)
            kept_sizes.append(preparation.nbytes)
            calls = hoisted_calls
        replacements[preparation.call.destination] = reference
        calls.append(redirect_operands(preparation.call, replacements))
        moves.append(LoopOperand(reference))
    references = [
        reference for m in moves for reference in (m.base, m.first, m.last) if reference
    ]
    references += [
        p for p in (flags.get("condition"), flags.get("iteration_count")) if p
    ]
    operands = tuple(dict.fromkeys((arena, *references)))
    calls = [call for _, call in body.code.calls]
    expected = 1 if "condition" in flags else iterations
    loop = Loop(
        code=Code(_no_code),
        operands=operands,
        flops=expected * sum(call.flops for call in calls),
        nbytes=expected * sum(call.nbytes for call in calls),
        body=body,
        arena=arena,
        moves=tuple(moves),
        iterations=iterations,
        **flags,
    )
    return Lowered((*run_calls, loop), work, hoisted_calls, kept_sizes)


def lower_scan(
    body: LoopBody,
    arena: Reference,
    moves: Sequence[LoopOperand],
    iterations: int,
    initial_outputs: Sequence[tuple[int, Spec]] = (),
    changing: Collection[Reference] = (),
) -> Lowered:
    """Return a loop of known length, after copies of values updated in place."""
    loop = lower_loop(body, arena, moves, iterations, changing=changing)
    copies = [
        _initial_copy(number, spec) for number, spec in initial_outputs if spec.size
    ]
    return replace(loop, calls=(*copies, *loop.calls))


def lower_branch(
    branches: Sequence[LoopBody], inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered:
    """Return a branch on the first input: the program for True, or for False."""
    moves = [LoopOperand(("in", 1 + i)) for i in range(len(inputs) - 1)]
    moves += [LoopOperand(("out", i)) for i in range(len(outputs))]
    condition: Reference = ("in", 0)
    lowered_branches: list[Lowered] = []
    for body, expected in zip(branches, (True, False), strict=True):
        flags: dict[str, Any] = {"condition": condition, "expected": expected}
        first_kept = sum(len(lowered.kept_sizes) for lowered in lowered_branches)
        lowered_branches.append(
            lower_loop(body, ("work", 0), moves, 1, first_kept, **flags)
        )
    return _concatenate(lowered_branches)


def lower_while(
    condition: LoopBody,
    body: LoopBody,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    limit: int | None,
    initial_outputs: Collection[int] = (),
) -> Lowered:
    """Return a loop that runs while its program's last output is True.

    Args:
        condition: computes from carried values and constants whether to run the first
            iteration.
        body: computes from the same inputs the new carried values and whether to
            continue.
        inputs: the initial carried values, then the constants.
        outputs: the final carried values.
        limit: the maximum number of iterations.
        initial_outputs: the numbers of carried values that the body updates in place.
    """
    count = len(outputs)
    sizes = [
        0 if i in initial_outputs else y.spec.nbytes for i, y in enumerate(outputs)
    ]
    starts = list(accumulate(map(align_up, sizes), initial=0))
    delta = starts[-1]
    continues: Reference = ("work", 2 * delta)
    iteration_count: Reference = ("work", continues[1] + ALIGNMENT)
    arena: Reference = ("work", iteration_count[1] + ALIGNMENT)
    constants = [LoopOperand(("in", i)) for i in range(count, len(inputs))]
    initial = [LoopOperand(("in", i)) for i in range(count)]
    first = lower_loop(
        condition, arena, [*initial, *constants, LoopOperand(continues)], 1
    )
    sets: list[Reference] = [("work", start) for start in starts[:-1]]
    carried = [
        LoopOperand(reference, phase=1, delta=delta, first=("in", i))
        for i, reference in enumerate(sets)
    ]
    following = [LoopOperand(reference, delta=delta) for reference in sets]
    for i in initial_outputs:
        carried[i] = following[i] = LoopOperand(("out", i))
    moves = [*carried, *constants, *following, LoopOperand(continues)]
    iterations = _UNBOUNDED if limit is None else limit
    flags: dict[str, Any] = {"condition": continues, "iteration_count": iteration_count}
    loop = lower_loop(body, arena, moves, iterations, len(first.kept_sizes), **flags)
    copies = [
        _initial_copy(i, outputs[i].spec)
        for i in initial_outputs
        if outputs[i].spec.size
    ]
    last = [
        _final_copy(i, y, reference, delta, iteration_count)
        for i, (y, reference) in enumerate(zip(outputs, sets, strict=True))
        if y.spec.size and i not in initial_outputs
    ]
    return _concatenate([Lowered(copies), first, loop, Lowered(last)])


def _concatenate(lowered_nodes: Sequence[Lowered]) -> Lowered:
    """Return consecutive calls that share scratch memory."""
    return Lowered(
        [call for lowered in lowered_nodes for call in lowered.calls],
        max(lowered.work for lowered in lowered_nodes),
        [call for lowered in lowered_nodes for call in lowered.prepared],
        [nbytes for lowered in lowered_nodes for nbytes in lowered.kept_sizes],
    )


def _initial_copy(number: int, spec: Spec) -> Call:
    """Return a copy of a carried value to the output that the body updates."""
    out: Reference = ("out", number)
    return Call(
        Code(emit_initial_copy),
        (("in", number), out),
        rows=spec.nbytes,
        grain=_COPY_BYTES,
        row_operands=frozenset({out}),
        nbytes=2 * spec.nbytes,
    )


def emit_initial_copy() -> Kernel:
    """Emit out = x; a row is a byte."""
    b = Kernel(current().lanes)
    x, out = (b.address(k, "uint8") for k in range(2))
    b.copy(x + b.low, out + b.low, b.high - b.low, "uint8")
    return b


def _final_copy(
    number: int, y: Operand, buffer: Reference, delta: int, iteration_count: Reference
) -> Call:
    """Return a copy of a carried value from the buffer of the last iteration."""
    out: Reference = ("out", number)
    other: Reference = ("work", buffer[1] + delta)
    size = y.spec.nbytes
    return Call(
        Code(emit_final_copy),
        (("in", number), buffer, other, iteration_count, out),
        rows=size,
        grain=_COPY_BYTES,
        row_operands=frozenset({out}),
        nbytes=2 * size,
    )


def emit_final_copy() -> Kernel:
    """Emit a copy to out; a row is a byte.

    The source is x after no iteration, the first buffer after an odd number of
    iterations, and otherwise the second buffer.
    """
    b = Kernel(current().lanes)
    x, first, second, out = (b.address(k, "uint8") for k in (0, 1, 2, 4))
    iterations = b.integer_at(b.address(3, "int64"), "int64")
    is_odd = b.compare("ne", iterations & 1, 0)
    last_buffer = b.pointer(f"select i1 {is_odd}, ptr {first}, ptr {second}")
    ran = b.compare("ne", iterations, 0)
    source = b.pointer(f"select i1 {ran}, ptr {last_buffer}, ptr {x}")
    b.copy(source + b.low, out + b.low, b.high - b.low, "uint8")
    return b


def _no_code() -> NoReturn:
    raise NotImplementedError("a loop has no separate code")
