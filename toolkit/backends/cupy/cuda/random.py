"""Uniform random numbers, bit-identical to NumPy's Philox 4x64-10.

A thread computes one Philox block. Philox maps a counter and a key to four 64-bit words
in ten rounds of two products (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2,
3", 2011). The key is in device memory, so a captured graph draws different numbers at
each launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scalar
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# For each dtype: elements per block, the type of their bits, dropped bits, the scale.
_FORMATS = {
    "float32": (8, "unsigned", 8, "0x1p-24f"),
    "float64": (4, "u64", 11, "0x1p-53"),
}

_PHILOX = r"""
#ifndef PHILOX
#define PHILOX
struct Words { u64 of[4]; };
DEVICE Words philox(u64 counter, u64 first, u64 second) {
  Words w = {{counter, 0, 0, 0}};
  for (int round = 0; round < 10; ++round) {
    const u64 a = 0xD2E7470EE14C6C93ull, b = 0xCA5A826395121157ull;
    const u64 high0 = __umul64hi(a, w.of[0]), low0 = a * w.of[0];
    const u64 high1 = __umul64hi(b, w.of[2]), low1 = b * w.of[2];
    w.of[0] = high1 ^ w.of[1] ^ first;
    w.of[1] = low1;
    w.of[2] = high0 ^ w.of[3] ^ second;
    w.of[3] = low0;
    first += 0x9E3779B97F4A7C15ull;
    second += 0xBB67AE8584CAA73Bull;
  }
  return w;
}
#endif
"""


def generate_random_uniform(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch for numbers in [0, 1) from a key of two words."""
    (key,), (y,) = inputs, outputs
    if y.spec.dtype not in _FORMATS:
        return None
    if not y.spec.size:
        return []
    count, ctype, drop, scale = _FORMATS[y.spec.dtype]
    k = Threads("random_uniform", (-(-y.spec.size // count),), y)
    k.extra = _PHILOX
    k.source("key", key.spec.dtype, Buffer(0))
    k.target("y", y.spec.dtype, Buffer(1))
    second = offset_text(key, ["1"])
    # NumPy increments the counter before it computes a block.
    k(f"const Words words = philox((u64)i + 1, key[0], key[{second}]);")
    is_vectorized = aligned and y.spec.size % count == 0
    k(f"Pack<{STORED[y.spec.dtype]}, {count}> found;")
    with k.block("#pragma unroll", f"for (int n = 0; n < {count}; ++n)"):
        if count == 8:
            k("const unsigned bits = (unsigned)(words.of[n / 2] >> 32 * (n % 2));")
        else:
            k("const u64 bits = words.of[n];")
        k(f"found.of[n] = (bits >> {drop}) * {scale};")
    if is_vectorized:
        k(f"((Pack<{STORED[y.spec.dtype]}, {count}>*)y)[i] = found;")
    else:
        with k.block("#pragma unroll", f"for (int n = 0; n < {count}; ++n)"):
            k(f"const i64 at = (i64)i * {count} + n;")
            k("if (at < size) y[at] = found.of[n];")
        k.array("i64", "size", Scalar(y.spec.size))
    return [k.launch()]
