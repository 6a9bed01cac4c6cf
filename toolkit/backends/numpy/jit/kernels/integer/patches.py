"""Patches (im2col): the window of each output pixel of a convolution, packed as a row.

A row holds the taps of a window in order, the channels of each tap together. The
product of the rows and the weights as a matrix is the convolution. Taps of the
innermost axis that are contiguous in memory are copied as one run. Padding has the
value that represents 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Window
from toolkit.backends.numpy.jit.kernels.integer.words import Words, as_int8
from toolkit.definitions.records import record

# The shortest vector. Fewer elements are copied one by one.
MIN_VECTOR = 4
_PARAMETERS = ("ptr %x", "ptr %to", "i64 %first", "i64 %end", "ptr %numbers")


@record
class PatchPlan:
    """The properties that the code depends on.

    Attributes:
        words: of the product.
        lanes: of a vector of words.
        dtype: of the images: int8 or uint8.
        fill: the value of padding.
        axes: the number of axes with more than one run. None: a row is a pixel, and
        pixels are contiguous.
    """

    words: Words
    lanes: int
    dtype: str
    fill: int = 0
    axes: int | None = None


class _Axis(NamedTuple):
    """The kernel's numbers of an axis. `pitch` is in elements."""

    extent: Number
    out: Number
    size: Number
    stride: Number
    gap: Number
    low: Number
    pitch: Number


def loop_axes(windows: Sequence[Window]) -> list[Window]:
    """Return the axes of the loops over taps, then the axis of runs."""
    *outer, inner = windows
    if inner.dilation == 1 or inner.size == 1:
        return [*outer, inner]
    # Each tap is a run of one pixel.
    one = Window(1, 1, 1, 1, 1, 0, inner.pitch)
    return [*outer, inner, one]


def patch_numbers(
    row_bytes: int, depth: int, image: int, windows: Sequence[Window]
) -> list[int]:
    """Return the numbers that `call_packer` reads.

    Args:
        row_bytes: the bytes of a row of words.
        depth: the elements of a row, or of a pixel if there are windows.
        image: the elements from one image to the next.
        windows: the result of `loop_axes`, or empty if a row is a pixel.
    """
    numbers = [row_bytes, depth, image]
    for w in windows:
        numbers += [w.extent, w.out, w.size, w.stride, w.dilation, w.low, w.pitch]
    return numbers


def emit_pack_patches(plan: PatchPlan) -> Kernel:
    """Emit the function that packs rows.

    The table holds the addresses of the images and of the words, and `patch_numbers`.
    """
    b = Kernel(plan.lanes)
    x, target = b.next_address(), b.next_address()
    row_bytes = b.entry(2)
    address = target + b.low * row_bytes
    call_packer(b, plan, x, address, (b.low, b.high), b.table.element(2, "i64"))
    return b


def call_packer(
    b: Kernel,
    plan: PatchPlan,
    x: Pointer,
    target: Pointer,
    rows: tuple[Number, Number],
    numbers: Pointer,
) -> None:
    """Pack a range of rows to an address. `numbers` are `patch_numbers`."""
    b.declarations |= _packer("pack_patches", plan)
    b.call("pack_patches", x, target, *rows, numbers)


def _packer(name: str, plan: PatchPlan) -> set[str]:
    b = Kernel(plan.lanes * plan.words.terms)
    _Patches(b, plan).write()
    return b.internal_function(name, _PARAMETERS)


class _Patches:
    """Emits the function."""

    def __init__(self, b: Kernel, plan: PatchPlan) -> None:
        self.b, self.plan = b, plan
        self.x, self.target = b.pointer_parameter("x"), b.pointer_parameter("to")
        self.kind: str = "int8" if plan.words.terms == 4 else "int16"
        self.size: int = 4 // plan.words.terms  # bytes of a term
        numbers = b.pointer_parameter("numbers")
        count = 3 if plan.axes is None else 3 + 7 * (plan.axes + 1)
        values = [
            b.index(f"load i64, ptr {numbers.element(i, 'i64')}") for i in range(count)
        ]
        self.row_bytes, self.depth, self.image = values[:3]
        self.axes: list[_Axis] = [_Axis(*values[i : i + 7]) for i in range(3, count, 7)]

    def write(self) -> None:
        """Emit the loop over rows."""
        b = self.b
        first, end = b.parameter("first"), b.parameter("end")
        with b.loop(first, end) as row:
            target = self.target + (row - first) * self.row_bytes
            if self.plan.axes is None:
                self._copy(self.x + row * self.depth, target, self.depth)
            else:
                self._window(row, target)

    def _window(self, row: Number, target: Pointer) -> None:
        """Pack the window of an output pixel."""
        b = self.b
        starts: list[Number] = []
        for axis in reversed(self.axes):
            row, position = b.split(row, axis.out)
            starts.insert(0, position * axis.stride - axis.low)
        image = self.x + row * self.image
        *outer, inner = self.axes
        run = inner.size * self.depth
        self._taps(outer, starts, image, target, run)

    def _taps(
        self,
        axes: Sequence[_Axis],
        starts: Sequence[Number],
        x: Pointer,
        target: Pointer,
        run: Number,
    ) -> None:
        """Emit the loops over the taps of the outer axes. Taps in the padding are 0."""
        b = self.b
        if not axes:
            self._run(starts[0], x, target)
            return
        axis, *inner = axes
        size = run
        for inner_axis in inner:
            size = inner_axis.size * size
        with b.loop(0, axis.size) as tap:
            coordinate = tap * axis.gap + starts[0]
            tap_target = target + tap * size * self.size
            is_inside = b.is_inside(coordinate, axis.extent)
            with b.when(is_inside):
                self._taps(
                    inner, starts[1:], x + coordinate * axis.pitch, tap_target, run
                )
            with b.when(b.opposite(is_inside)):
                self._clear(tap_target, size)

    def _run(self, start: Number, x: Pointer, target: Pointer) -> None:
        """Pack the taps of the innermost axis: padding, pixels, padding."""
        b, axis = self.b, self.axes[-1]
        size = axis.size
        low = b.min(b.max(0, 0 - start), size)
        high = b.max(low, b.min(size, axis.extent - start))
        self._clear(target, low * self.depth)
        pixels = x + (start + low) * axis.pitch
        address = target + low * self.depth * self.size
        self._copy(pixels, address, (high - low) * self.depth)
        address = target + high * self.depth * self.size
        self._clear(address, (size - high) * self.depth)

    # --- elements ---------------------------------------------------------------------

    def _copy(self, source: Pointer, target: Pointer, count: Number) -> None:
        b = self.b
        for at in vectors_of(b, count):
            value = self._term(b.load(source, at, self.plan.dtype, None))
            b.store(value, target, at, None)
        with b.loop(count & -MIN_VECTOR, count) as at:
            value = self._term(b.scalar(source + at, self.plan.dtype))
            b.put_scalar(value, b.at(target, at, self.kind))

    def _clear(self, target: Pointer, count: Number) -> None:
        b, fill = self.b, as_int8(self.plan.fill)
        for at in vectors_of(b, count):
            b.store(b.filled(fill, self.kind), target, at, None)
        one = Value(str(fill), self.kind)
        with b.loop(count & -MIN_VECTOR, count) as at:
            b.put_scalar(one, b.at(target, at, self.kind))

    def _term(self, x: Value) -> Value:
        """Return an element as a term of a word."""
        b = self.b
        if self.kind == "int16":
            widen = "sext" if x.dtype == "int8" else "zext"
            return b.convert(widen, x, self.kind)
        return self.plan.words.shift_bytes(b, x)


def vectors_of(b: Kernel, count: Number) -> Iterator[Number]:
    """Yield the starts of vectors in `count` elements. Fewer than `MIN_VECTOR` remain.

    The body of the loop is emitted for several vector lengths.
    """
    widest = b.lanes
    with b.loop(0, count & -widest, widest) as at:
        yield at
    lanes = widest // 2
    while lanes >= MIN_VECTOR:
        with b.of_lanes(lanes), b.when(b.compare("ne", count & lanes, 0)):
            yield count & -2 * lanes
        lanes //= 2
