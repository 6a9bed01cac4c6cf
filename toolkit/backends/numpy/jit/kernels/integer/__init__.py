"""Products and convolutions of 8-bit whole numbers, with an epilogue.

`words` is how a processor multiplies them, several terms at a time; `pack` puts the terms
of both factors side by side, `product` writes the loops over tiles, and `lower` makes
calls of it. `few` is for few rows, for which packing would not pay, and `tiles` for AMX.
What the outputs of a `convolution` see are rows of a product: `patches` packs them.
Sums are of 32 bits, so every processor computes the same.
"""

from toolkit.backends.numpy.jit.kernels.integer.convolution import lower_conv_integer
from toolkit.backends.numpy.jit.kernels.integer.lower import lower_matmul_integer

__all__ = ["lower_conv_integer", "lower_matmul_integer"]
