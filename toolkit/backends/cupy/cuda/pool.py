"""Channels-last pooling: one thread per window forward, one per pixel backward.

A thread handles the adjacent channels of one memory access. A pixel sums over the
windows that contain it, in their order. No element has several writers, so results are
deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from toolkit import dtypes
from toolkit.backends.cupy.cuda.launch import Buffer, Launch
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.scalars import literal
from toolkit.backends.cupy.cuda.threads import Threads, lanes_of, offset_text
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node


@contextmanager
def taps(k: Threads, spatial: Sequence[int], attrs: Any) -> Iterator[list[str]]:
    """Loop over the pixels of a thread's window, in order; yield their indices.

    `tap` is the position in the window.
    """
    window, strides, padding = (attrs[n] for n in ("window", "strides", "padding"))
    names = []
    with ExitStack() as stack:
        for a, (n, size, stride, (low, _)) in enumerate(
            zip(spatial, window, strides, padding, strict=True)
        ):
            stack.enter_context(k.block(f"for (int w{a} = 0; w{a} < {size}; ++w{a})"))
            k(f"const int x{a} = {k.indices[1 + a]} * {stride} - {low} + w{a};")
            k(f"if (x{a} < 0 || x{a} >= {n}) continue;")
            names.append(f"x{a}")
        k(f"const int tap = {_flat([f'w{a}' for a in range(len(window))], window)};")
        yield [k.indices[0], *names, k.indices[-1]]


@contextmanager
def windows(k: Threads, counts: Sequence[int], attrs: Any) -> Iterator[list[str]]:
    """Loop over the windows that contain a thread's pixel; yield their indices.

    The order is fixed. `tap` is the position of the pixel in the window.
    """
    window, strides, padding = (attrs[n] for n in ("window", "strides", "padding"))
    with ExitStack() as stack:
        for a, (n, size, stride, (low, _)) in enumerate(
            zip(counts, window, strides, padding, strict=True)
        ):
            at = f"({k.indices[1 + a]} + {low})"
            first = f"{at} < {size} ? 0 : ({at} - {size}) / {stride} + 1"
            last = f"min({n - 1}, {at} / {stride})"
            head = f"for (int y{a} = {first}, end{a} = {last}; y{a} <= end{a}; ++y{a})"
            stack.enter_context(k.block(head))
            k(f"const int w{a} = {at} - y{a} * {stride};")
        k(f"const int tap = {_flat([f'w{a}' for a in range(len(window))], window)};")
        yield [k.indices[0], *[f"y{a}" for a in range(len(window))], k.indices[-1]]


def _flat(names: Sequence[str], extents: Sequence[int]) -> str:
    terms = [f"{name} * {prod(extents[a + 1 :])}" for a, name in enumerate(names)]
    return " + ".join(terms)


def generate_max_pool(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch for the maximum of each window, and its first position.

    NaN is the maximum.
    """
    (x,), (y, index) = inputs, outputs
    if not y.spec.size:
        return []
    dtype = x.spec.dtype
    k = _Channels("max_pool", y, (x, y, index), aligned)
    k.source("x", dtype, Buffer(0))
    k.target("y", dtype, Buffer(1))
    k.target("index", index.spec.dtype, Buffer(2))
    lowest = literal(dtypes.lowest(dtype), dtype)
    # Padding counts as the lowest number: if it is first, its position is the result.
    is_padding = " || ".join(
        f"{i} * {stride} < {low}"
        for i, stride, (low, _) in zip(
            k.indices[1:-1], node.attrs["strides"], node.attrs["padding"], strict=True
        )
    )
    k(f"{COMPUTED[dtype]} best[{k.lanes}];", f"int place[{k.lanes}];")
    with k.channel_loop():
        k(f"best[c] = {lowest};", f"place[c] = {is_padding} ? 0 : -1;")
    with taps(k, x.spec.shape[1:-1], node.attrs) as pixel:
        k.load("from", "x", dtype, offset_text(x, pixel))
        with k.channel_loop():
            k(f"const {COMPUTED[dtype]} value = widen(from.of[c]);")
            is_nan = " || (value != value && best[c] == best[c])"
            nan = is_nan if dtypes.is_float(dtype) else ""
            with k.block(f"if (place[c] < 0 || value > best[c]{nan})"):
                k("best[c] = value;", "place[c] = tap;")
    k.store("y", dtype, f"Narrow<{STORED[dtype]}>::of(best[c])")
    k.store("index", index.spec.dtype, "place[c]")
    return [k.launch()]


class _Channels(Threads):
    """Kernel with one thread for a few adjacent channels of each pixel of y.

    Args:
        family: the prefix of its name.
        y: the array of the pixels, a whole one.
        operands: the arrays that it reads and writes by channels; see `lanes_of`.
        aligned: whether all addresses are multiples of 16.
    """

    def __init__(
        self, family: str, y: Operand, operands: Sequence[Operand], aligned: bool
    ) -> None:
        self.lanes = lanes_of(operands, aligned)
        *shape, channels = y.spec.shape
        super().__init__(family, (*shape, channels // self.lanes), *operands)
        self(f"const {self.number} channel = {self.indices[-1]} * {self.lanes};")
        self.indices[-1] = "channel"

    def channel_loop(self) -> AbstractContextManager[None]:
        """Loop over the channels with index c."""
        return self.block("#pragma unroll", f"for (int c = 0; c < {self.lanes}; ++c)")

    def load(self, name: str, array: str, dtype: str, offset: str) -> None:
        """Load the channels of an array from an offset on."""
        pack = f"const Pack<{STORED[dtype]}, {self.lanes}>"
        self(f"{pack} {name} = *({pack}*)({array} + {offset});")

    def store(self, array: str, dtype: str, text: str) -> None:
        """Store the expression in c to the channels of the thread's pixel."""
        pack = f"Pack<{STORED[dtype]}, {self.lanes}>"
        self(f"{pack} {array}_pack;")
        with self.channel_loop():
            self(f"{array}_pack.of[c] = {text};")
        self(f"*({pack}*)({array} + i * {self.lanes}) = {array}_pack;")


def generate_max_pool_gather(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch that takes the argmax elements; 0 on padding."""
    (x, index), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    dtype, window = x.spec.dtype, node.attrs["window"]
    k = Threads("max_pool_gather", y.spec.shape, x, index, y)
    k.source("x", dtype, Buffer(0))
    k.source("index", index.spec.dtype, Buffer(1))
    k.target("y", dtype, Buffer(2))
    k(f"const int tap = index[{offset_text(index, k.indices)}];")
    tests, names = [], []
    for a, n in enumerate(x.spec.shape[1:-1]):
        stride, (low, _) = node.attrs["strides"][a], node.attrs["padding"][a]
        step = prod(window[a + 1 :])
        offset = f"tap / {step} % {window[a]} - {low}"
        k(f"const int x{a} = {k.indices[1 + a]} * {stride} + {offset};")
        tests.append(f"x{a} >= 0 && x{a} < {n}")
        names.append(f"x{a}")
    source = offset_text(x, [k.indices[0], *names, k.indices[-1]])
    k(f"{COMPUTED[dtype]} value = 0;")
    k(f"if ({' && '.join(tests)}) value = widen(x[{source}]);")
    k(f"y[i] = Narrow<{STORED[dtype]}>::of(value);")
    return [k.launch()]


def generate_sum_pool(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch for the sum of each window."""
    (x,), (y,) = inputs, outputs
    return _sum(node, x, y, aligned, taps, x.spec.shape[1:-1])


def generate_sum_pool_grad(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch that adds each element of g to all pixels of its window."""
    (g,), (y,) = inputs, outputs
    return _sum(node, g, y, aligned, windows, g.spec.shape[1:-1])


def generate_max_pool_scatter(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch that adds each element of g to its argmax pixel."""
    (g, index), (y,) = inputs, outputs
    return _sum(node, g, y, aligned, windows, g.spec.shape[1:-1], index)


def _sum(
    node: Node,
    x: Operand,
    y: Operand,
    aligned: bool,
    loops: Any,
    extents: Sequence[int],
    index: Operand | None = None,
) -> list[Launch]:
    """Return the launch that sums over the loops; with an index, only argmax."""
    if not y.spec.size:
        return []
    dtype = x.spec.dtype
    k = _Channels(node.op.name, y, (x, y, *([index] if index else [])), aligned)
    k.source("x", dtype, Buffer(0))
    if index is not None:
        k.source("index", index.spec.dtype, Buffer(1))
    k.target("y", dtype, Buffer(1 + (index is not None)))
    k(f"{COMPUTED[dtype]} sum[{k.lanes}] = {{}};")
    with loops(k, extents, node.attrs) as names:
        k.load("from", "x", dtype, offset_text(x, names))
        if index is not None:
            k.load("winner", "index", index.spec.dtype, offset_text(index, names))
        test = "if (winner.of[c] == tap) " if index else ""
        with k.channel_loop():
            k(f"{test}sum[c] += widen(from.of[c]);")
    k.store("y", dtype, f"Narrow<{STORED[dtype]}>::of(sum[c])")
    return [k.launch()]
