"""What few lanes need: code that is passed by where no lane does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.math.vector import Vector


def unless(
    rare: Vector, usual: Sequence[Vector], found: Callable[[], Sequence[Vector]]
) -> list[Vector]:
    """The usual values; in rare lanes, those that a function emits code for.

    Its code is run only if any lane is rare. It ends the current basic block.
    """
    b = rare.builder
    slow, done, before = b.fresh("rare"), b.fresh("done"), b.block
    b.emit(f"br i1 {b.across_lanes('or', rare.value)}, label %{slow}, label %{done}")
    b.label(slow)
    chosen = [x.where(rare, y) for x, y in zip(found(), usual, strict=True)]
    after = b.block
    b.emit(f"br label %{done}")
    b.label(done)
    return [
        phi(x, (y.value, before), (z.value, after))
        for x, y, z in zip(usual, usual, chosen, strict=True)
    ]


def phi(like: Vector, *sources: tuple[Value, str]) -> Vector:
    """The value of the block that was run before this one."""
    value = like.value
    listed = ", ".join(f"[ {x.text}, %{block} ]" for x, block in sources)
    b = like.builder
    return Vector(b, b.let(f"phi {value.type} {listed}", value.dtype, value.lanes))


def repeated(first: Vector, step: Callable[[Vector], tuple[Vector, Vector]]) -> Vector:
    """A value after steps, at least one: each says whether a lane needs another."""
    b = first.builder
    loop, done, before = b.fresh("again"), b.fresh("done"), b.block
    b.emit(f"br label %{loop}")
    b.label(loop)
    slot = len(b.lines)
    current = phi(first, (first.value, before))
    following, more = step(current)
    again = b.across_lanes("or", more.value)
    # The block that a step ends in, and its result, are known only now.
    text = f"phi {first.value.type} [ {first.value.text}, %{before} ], "
    text += f"[ {following.value.text}, %{b.block} ]"
    b.lines[slot] = f"  {current.value.text} = {text}"
    b.emit(f"br i1 {again}, label %{loop}, label %{done}")
    b.label(done)
    return following
