"""Sorting networks on rows of (key, position) pairs, so that the sort is stable.

A key is an unsigned integer that compares as its element does, with NaN last. One
launch sorts rows that fit into shared memory. Longer rows use scratch memory, with one
launch for every step between elements of different tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.launch import (
    Argument,
    Buffer,
    Launch,
    Scalar,
    Scratch,
    make_kernel,
)
from toolkit.backends.cupy.cuda.reduction import power_of_two
from toolkit.backends.cupy.cuda.scalars import SourceWriter
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.plans.operands import Operand, align_up as aligned_bytes

if TYPE_CHECKING:
    from toolkit.ir import Node

# Pairs that a block sorts in shared memory.
TILE = 2048
PAIR = 16  # bytes

PAIRS = r"""
#ifndef PAIRS
#define PAIRS
struct alignas(16) Pair { u64 key; i64 at; };
DEVICE bool behind(Pair a, Pair b) {
  return a.key > b.key || (a.key == b.key && a.at > b.at);
}
// Put the pairs of a step in order: i and the one whose number differs in `bit`, where
// runs of `length` go up and down in turn.
template <class P> DEVICE void exchange_pairs(P pairs, i64 i, i64 first, i64 bit,
                                              i64 length) {
  const i64 low = 2 * (i - (i & (bit - 1))) + (i & (bit - 1)), high = low + bit;
  const Pair a = pairs[low], b = pairs[high];
  if (behind(a, b) != (((low + first) & length) != 0)) {
    pairs[low] = b;
    pairs[high] = a;
  }
}
#endif
"""


def key_of(text: str, dtype: str) -> str:
    """Return an element as an unsigned integer in the same order."""
    if dtype == "float64":
        return f"key_of_double({text})"
    if dtypes.is_float(dtype):
        return f"key_of_float(widen({text}))"
    if dtype == "bool" or dtype.startswith("u"):
        return f"(u64){text}"
    return f"((u64)(i64){text} ^ (1ull << 63))"


# Map sign and magnitude to one order: flip all bits of negative numbers, and the sign
# bit of positive ones. First, -0 becomes 0 and every NaN becomes the last key.
KEYS = r"""
#ifndef KEYS
#define KEYS
DEVICE u64 key_of_float(float x) {
  const unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
  return x != x ? ~0ull : bits >> 31 ? ~bits : bits | 1u << 31;
}
DEVICE u64 key_of_double(double x) {
  const u64 bits = (u64)__double_as_longlong(x == 0 ? 0.0 : x);
  return x != x ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;
}
#endif
"""


def sort_pairs(rows: int, length: int, pairs: Argument) -> list[Launch]:
    """Return the launches that sort rows of pairs; `length` is a power of two."""
    tile = min(TILE, length)
    launches = [_in_tiles(rows, length, tile, pairs, 2, tile)]
    size = 2 * tile
    while size <= length:
        bit = size // 2
        while bit >= tile:
            launches.append(_step(rows, length, pairs, bit, size))
            bit //= 2
        launches.append(_in_tiles(rows, length, tile, pairs, size, size))
        size *= 2
    return launches


def _in_tiles(
    rows: int, length: int, tile: int, pairs: Argument, first: int, last: int
) -> Launch:
    """Return the launch of all steps of `first` to `last` pairs inside a tile."""
    w, threads = SourceWriter(), max(1, tile // 2)
    w(f"__shared__ Pair held[{tile}];")
    w(f"const i64 start = (i64)blockIdx.x * {tile};")
    w(f"for (int k = threadIdx.x; k < {tile}; k += blockDim.x)")
    w("  held[k] = pairs[start + k];")
    w("__syncthreads();")
    with w.block("for (i64 run = first; run <= last; run *= 2)"):
        head = f"for (i64 bit = min(run / 2, (i64){tile // 2}); bit; bit /= 2)"
        with w.block(head):
            w(f"exchange_pairs(held, threadIdx.x, start % {length}, bit, run);")
            w("__syncthreads();")
    w(f"for (int k = threadIdx.x; k < {tile}; k += blockDim.x)")
    w("  pairs[start + k] = held[k];")
    grid = (rows * length // tile, 1, 1)
    numbers = {"first": first, "last": last}
    return _launch("sort_tiles", w, pairs, numbers, grid, threads)


def _step(rows: int, length: int, pairs: Argument, bit: int, size: int) -> Launch:
    """Return the launch of one step between pairs in different tiles."""
    w, threads = SourceWriter(), 256
    w(f"const i64 i = (i64)blockIdx.x * {threads} + threadIdx.x;")
    w(f"const i64 row = i / {length // 2};")
    w(f"exchange_pairs(pairs + row * {length}, i % {length // 2}, 0, bit, run);")
    grid = (rows * length // 2 // threads, 1, 1)
    return _launch("sort_step", w, pairs, {"bit": bit, "run": size}, grid, threads)


def _launch(
    family: str,
    w: SourceWriter,
    pairs: Argument,
    numbers: dict[str, int],
    grid: tuple[int, int, int],
    threads: int,
) -> Launch:
    parameters: list[tuple[str, str, Argument]] = [("Pair*", "pairs", pairs)]
    parameters += [("i64", name, Scalar(n)) for name, n in numbers.items()]
    text = kernel_text(parameters, threads, w.text, PAIRS)
    kernel = make_kernel(family, text, [p[0] for p in parameters])
    return Launch(kernel, grid, (threads, 1, 1), tuple(p[2] for p in parameters))


def pairs_in(rows: int, length: int, offset: int = 0) -> Scratch:
    """Return scratch memory for rows of pairs."""
    return Scratch(offset, aligned_bytes(PAIR * rows * length))


def generate_argsort(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launches of a stable argsort along an axis."""
    (x,), (y,), axis = inputs, outputs, node.attrs["axis"]
    if not x.spec.size:
        return []
    count = x.spec.shape[axis]
    length, rows = power_of_two(count), x.spec.size // count
    lead = [n for a, n in enumerate(x.spec.shape) if a != axis]
    scratch = pairs_in(rows, length)

    def threads(family: str, extent: int) -> tuple[Threads, list[str], str]:
        k = Threads(family, (*lead, extent), x, y)
        k.array("Pair*", "pairs", scratch)
        k.extra = PAIRS + KEYS
        last = k.indices[-1]
        return k, [*k.indices[:axis], last, *k.indices[axis:-1]], last

    k, names, last = threads("sort_keys", length)
    k.source("x", x.spec.dtype, Buffer(0))
    k("Pair pair;")
    k(f"pair.at = {last};")
    key = key_of(f"x[{offset_text(x, names)}]", x.spec.dtype)
    # Padding of a row sorts after every element, including NaN, by its position.
    k(f"pair.key = {last} < {count} ? {key} : ~0ull;")
    k("pairs[i] = pair;")
    launches = [k.launch(), *sort_pairs(rows, length, scratch)]
    k, names, last = threads("sort_order", count)
    k.target("y", y.spec.dtype, Buffer(1))
    row = " + ".join(
        f"{name} * {prod(lead[a + 1 :])}" for a, name in enumerate(k.indices[:-1])
    )
    k(f"y[{offset_text(y, names)}] = pairs[({row or 0}) * (i64){length} + {last}].at;")
    return [*launches, k.launch()]


def generate_searchsorted(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch of a binary search per thread in sorted elements."""
    (edges, values), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    k = Threads("searchsorted", y.spec.shape, edges, values, y)
    k.extra = KEYS
    k.source("edges", edges.spec.dtype, Buffer(0))
    k.source("values", values.spec.dtype, Buffer(1))
    k.target("y", y.spec.dtype, Buffer(2))
    value = key_of(f"values[{offset_text(values, k.indices)}]", values.spec.dtype)
    k(f"const u64 key = {value};")
    k(f"i64 low = 0, high = {edges.spec.size};")
    with k.block("while (low < high)"):
        k("const i64 middle = (low + high) / 2;")
        key = key_of(f"edges[{offset_text(edges, ['middle'])}]", edges.spec.dtype)
        sign = "<" if node.attrs["side"] == "left" else "<="
        k(f"if ({key} {sign} key) low = middle + 1; else high = middle;")
    k("y[i] = low;")
    return [k.launch()]
