"""Products and convolutions of 8-bit integers, with an epilogue.

`words` describes the instructions that multiply several terms at a time. `pack` packs
the terms of both operands. `product` emits the loops over tiles, `lower` the calls.
`few_rows` is for products of few rows, where packing does not pay: `interleave` makes
words in registers. A `convolution` is a product whose rows are the windows of the
outputs: `patches` packs them (im2col). `tiled_convolution` uses AMX tiles instead. Sums
have 32 bits, so all processors compute the same result.
"""

from toolkit.backends.numpy.jit.kernels.integer.convolution import lower_conv_integer
from toolkit.backends.numpy.jit.kernels.integer.lower import lower_matmul_integer

__all__ = ["lower_conv_integer", "lower_matmul_integer"]
