"""Fourier transforms of lengths whose prime factors are small.

`plan` says which lengths these are, and what they are made of; `butterfly` transforms
few elements in registers, `interleave` puts vectors in the order of memory, `stages`
makes long transforms of short ones, `halves` those of real numbers of complex ones;
`lower` decides.
"""

from toolkit.backends.numpy.jit.kernels.fourier.lower import (
    lower_dft,
    lower_irdft,
    lower_rdft,
)

__all__ = ["lower_dft", "lower_irdft", "lower_rdft"]
