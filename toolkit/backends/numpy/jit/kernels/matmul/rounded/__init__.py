"""Products with operands rounded to bfloat16, in blocks of the size of AMX tiles.

A block is 16 lines of 32 terms: rows of the left operand, or pairs of terms of columns
of the right one. Tile instructions or dot products multiply two blocks and add to 16
rows of 16 float32 sums. `gemm.strips` rounds both operands and packs them into blocks,
and `gemm.tiled_product` multiplies the blocks and applies the epilogue. `split_k` does
both for parts of many terms. `lower` decides when this is faster than float32, and
emits the calls.
"""

from toolkit.backends.numpy.jit.kernels.matmul.rounded.lower import lower_rounded

__all__ = ["lower_rounded"]
