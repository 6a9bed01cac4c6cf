"""Branches around code for rare lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.math.vector import Vector


def select_rare(
    rare: Vector, usual: Sequence[Vector], emit_rare: Callable[[], Sequence[Vector]]
) -> list[Vector]:
    """Return the usual values; in rare lanes, the values that `emit_rare` emits.

    That code runs only if a lane is rare. It ends the current basic block.
    """
    b = rare.builder
    slow, exit_block, before = b.fresh("rare"), b.fresh("done"), b.block
    b.emit(
        f"br i1 {b.across_lanes('or', rare.value)}, label %{slow}, label %{exit_block}"
    )
    b.label(slow)
    rare_values = [x.where(rare, y) for x, y in zip(emit_rare(), usual, strict=True)]
    after = b.block
    b.emit(f"br label %{exit_block}")
    b.label(exit_block)
    return [
        phi(x, (y.value, before), (z.value, after))
        for x, y, z in zip(usual, usual, rare_values, strict=True)
    ]


def phi(like: Vector, *sources: tuple[Value, str]) -> Vector:
    """Emit the value of the block that ran before this block."""
    value = like.value
    listed = ", ".join(f"[ {x.text}, %{block} ]" for x, block in sources)
    b = like.builder
    return Vector(b, b.let(f"phi {value.type} {listed}", value.dtype, value.lanes))


def loop_over_lanes(
    first: Sequence[Vector], step: Callable[..., tuple[Sequence[Vector], Vector]]
) -> Sequence[Vector]:
    """Emit a loop of at least one step, and return its last vectors.

    A step is a function of the vectors. It returns the next vectors, and whether lanes
    continue.
    """
    b = first[0].builder
    loop, exit_block, before = b.fresh("again"), b.fresh("done"), b.block
    b.emit(f"br label %{loop}")
    b.label(loop)
    slot = len(b.lines)
    current = [phi(x, (x.value, before)) for x in first]
    following, lane_continues = step(*current)
    continues = b.across_lanes("or", lane_continues.value)
    # The end block and the results of the step are not available earlier.
    for number, (x, y, z) in enumerate(zip(first, current, following, strict=True)):
        text = f"phi {x.value.type} [ {x.value.text}, %{before} ], "
        text += f"[ {z.value.text}, %{b.block} ]"
        b.lines[slot + number] = f"  {y.value.text} = {text}"
    b.emit(f"br i1 {continues}, label %{loop}, label %{exit_block}")
    b.label(exit_block)
    return following
