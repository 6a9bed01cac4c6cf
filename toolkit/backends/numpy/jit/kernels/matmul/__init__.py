"""Products of matrices of any strides, with an epilogue.

`problem` says what is multiplied, `strategies` how, and `lower` makes calls of it. `product`
writes the loops of blocks, with `tile` innermost; `pack` puts factors in order,
`unpack` makes panels of numbers of 4 bits, `combine` adds what slots of a long sum have given, and `dot` is for few columns.
"""

from toolkit.backends.numpy.jit.kernels.matmul.lower import (
    lower_matmul,
    lower_matmul_int4,
)
