"""Products of matrices of any strides, with an epilogue.

`problem` describes a product, `strategies` selects how to compute it, and `lower` emits
the calls. `product` emits the loops over blocks, with the micro-kernel of `tile`
innermost. `pack` packs operands, `combine` adds the partial sums of slots (split-K),
and `dot` is for few columns. `lower_int4` is for 4-bit numbers: `unpack` unpacks them
to panels. `few_int4_dots` is for few rows, and `few_int4` if the processor has no dot
products of bytes.
"""

from toolkit.backends.numpy.jit.kernels.matmul.lower import lower_matmul
from toolkit.backends.numpy.jit.kernels.matmul.lower_int4 import lower_matmul_int4

__all__ = ["lower_matmul", "lower_matmul_int4"]
