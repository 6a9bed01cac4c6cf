"""Products whose factors are rounded to bfloat16, in blocks of the size of AMX's tiles.

A block is 16 lines of 32 terms: rows of the first factor, or pairs of terms of columns of
the second one. Two of them, multiplied by an instruction on tiles or by dot products,
add to 16 rows of 16 sums, which are float32. `pack` rounds both factors and makes them
blocks, one after the other; `product` multiplies and goes on to the epilogue, `deep` does
both for parts of many terms, and `lower` says when that is quicker than products of
float32, and makes calls of it.
"""

from toolkit.backends.numpy.jit.kernels.matmul.rounded.lower import lower_rounded

__all__ = ["lower_rounded"]
