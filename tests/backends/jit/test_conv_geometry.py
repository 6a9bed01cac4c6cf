"""Tests of the inputs of each output, and of tiles of positions and channels."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from toolkit.backends.numpy.jit.kernels.conv.geometry import (
    Window,
    backward,
    blocks,
    collapse,
    forward,
)
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    split_evenly,
    split_panels,
    split_tiles,
)


@st.composite
def windows(draw):
    size, stride, dilation = (draw(st.integers(1, 5)) for _ in range(3))
    low, high = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    reach = (size - 1) * dilation + 1
    extent = max(1, reach - low - high) + draw(st.integers(0, 30))
    out = (extent + low + high - reach) // stride + 1
    return Window(extent, out, size, stride, dilation, low, pitch=1)


def products_of_window(window):
    """(output, input, tap) of every product, by the definition of a convolution."""
    for out in range(window.out):
        for tap in range(window.size):
            at = out * window.stride + tap * window.dilation - window.low
            if 0 <= at < window.extent:
                yield out, at, tap


def visited(axis):
    """Yield (output, input, tap) of every product of an axis."""
    for position in range(axis.count):
        for tap in range(*axis.visible_taps(position)):
            yield (
                axis.start + axis.step * position,
                axis.stride * position + axis.offset + axis.gap * tap,
                axis.first + axis.every * tap,
            )


@given(windows())
def test_forward_visits_every_product_once(window):
    (axis,) = forward([window])
    assert Counter(visited(axis)) == Counter(products_of_window(window))


@given(windows())
def test_backward_visits_every_product_once(window):
    products = [p for (axis,) in backward([window]) for p in visited(axis)]
    reversed_products = (
        (at, out, window.size - 1 - tap) for out, at, tap in products_of_window(window)
    )
    assert Counter(products) == Counter(reversed_products)
    outputs = [
        axis.start + axis.step * j
        for (axis,) in backward([window])
        for j in range(axis.count)
    ]
    assert sorted(outputs) == list(range(window.extent))


@given(windows())
def test_forward_and_backward_geometry_agree(window):
    for (axis,) in [forward([window]), *backward([window])]:
        by_position = {
            (j, t) for j in range(axis.count) for t in range(*axis.visible_taps(j))
        }
        by_tap = {
            (j, t) for t in range(axis.taps) for j in range(*axis.reached_positions(t))
        }
        assert by_position == by_tap


@given(windows(), st.integers(1, 14))
def test_tiles_cover_every_position_and_its_window(window, limit):
    for (axis,) in [forward([window]), *backward([window])]:
        position, products = 0, set()
        for tile in split_tiles(axis, limit):
            assert (tile.start, tile.size <= limit) == (position, True)
            for _ in range(tile.count):
                for segment in tile.segments:
                    for tap in range(segment.low, segment.high):
                        rows = range(segment.first, segment.last)
                        products |= {(position + row, tap) for row in rows}
                position += tile.size
        assert position == axis.count
        expected = {
            (j, t) for j in range(axis.count) for t in range(*axis.visible_taps(j))
        }
        assert products == expected


def test_pixels_without_neighbours_become_one_axis():
    rows = Window(8, 8, 1, 1, 1, 0, pitch=40, step=20)
    columns = Window(5, 5, 1, 1, 1, 0, pitch=8, step=4)
    (axis,) = collapse([rows, columns])
    assert (axis.extent, axis.out, axis.pitch, axis.step) == (40, 40, 8, 4)
    window = Window(8, 8, 1, 1, 1, 0, pitch=48, step=20)
    assert collapse([window, columns]) == (window, columns)
    assert collapse([Window(1, 1, 1, 1, 1, 0, pitch=9), columns]) == (columns,)


@given(st.integers(0, 300), st.integers(1, 20))
def test_chunks_have_almost_equal_sizes(extent, limit):
    lengths = split_evenly(extent, limit)
    sizes = [size for size, count in lengths for _ in range(count)]
    assert sum(sizes) == extent
    assert all(0 < size <= limit for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-extent // limit)


@given(st.integers(1, 200), st.integers(1, 8), st.sampled_from([2, 4, 8, 16]))
def test_panels_cover_every_channel(width, vectors, lanes):
    panels = split_panels(width, vectors, lanes)
    covered = [
        panel.first + k * panel.vectors * lanes + channel
        for panel in panels
        for k in range(panel.count)
        for channel in range(sum(panel.lane_counts(lanes)))
    ]
    assert covered == list(range(width))


@given(st.integers(1, 3000), st.integers(1, 20), st.integers(1, 40))
def test_blocks_visit_every_pixel_once(extent, maximum, minimum):
    pixel_blocks = blocks(
        (Window(extent, extent, 1, 1, 1, 0, pitch=3, step=2),), maximum, minimum
    )
    *outer, inner = pixel_blocks
    for steps in ("pitch", "step"):
        offsets = [0]
        for window in pixel_blocks:
            step = getattr(window, steps)
            offsets = [p + i * step for p in offsets for i in range(window.extent)]
        length = {"pitch": 3, "step": 2}[steps]
        assert offsets == list(range(0, extent * length, length))
    assert not outer or (outer[0].extent <= maximum and inner.extent >= minimum)
    assert all(window.is_trivial for window in pixel_blocks)


def test_blocks_divide_among_two_threads_if_they_can():
    def counts(extent):
        (outer, *_) = blocks((Window(extent, extent, 1, 1, 1, 0, pitch=3),), 16, 28)
        return outer.extent

    assert [counts(n) for n in (49, 196, 784, 3 * 31)] == [49, 4, 16, 3]
