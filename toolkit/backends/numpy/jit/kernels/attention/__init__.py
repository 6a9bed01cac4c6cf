"""Blocked attention: only a block of the weights exists at a time, in the cache.

The lanes of a vector are neighbouring queries of one head, so that the maximum and the
sum over the keys need no operation across lanes. Keys and values are read in place, one
number at a time. Queries and outputs are transposed at loads and stores: a block has
few of them.
"""

from toolkit.backends.numpy.jit.kernels.attention.lower import (
    lower_attention,
    lower_attention_grad,
)
