"""Attention a block at a time: of the weights, only what fits the cache is ever there.

The lanes of a vector are neighbouring queries of one head, so that the maximum and the
sum over the keys, like everything else per query, need no work across lanes. Keys and
values are read where they are, one number at a time; queries and outputs, of which a block
has few, are transposed when they are read and written.
"""

from toolkit.backends.numpy.jit.kernels.attention.lower import (
    lower_attention,
    lower_attention_grad,
)
