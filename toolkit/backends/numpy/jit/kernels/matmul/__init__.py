"""Products of matrices of any strides, with an epilogue.

`problem` says what is multiplied, `strategies` how, and `lower` makes calls of it. `product`
writes the loops of blocks, with `tile` innermost; `pack` puts factors in order,
`combine` adds what slots of a long sum have given, and `dot` is for few columns. Numbers of 4
bits have `lower_int4`: `unpack` makes panels of them, and `few_int4` is for few rows.
"""

from toolkit.backends.numpy.jit.kernels.matmul.lower import lower_matmul
from toolkit.backends.numpy.jit.kernels.matmul.lower_int4 import lower_matmul_int4

__all__ = ["lower_matmul", "lower_matmul_int4"]
