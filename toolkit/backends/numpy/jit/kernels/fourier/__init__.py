"""Fourier transforms of lengths with small prime factors.

`plan` selects the lengths and their radices. `butterfly` transforms a few elements in
registers. `interleave` transposes vectors. `stages` builds long transforms from short
ones. `real` builds real transforms from complex ones. `lower` emits the calls.
"""

from toolkit.backends.numpy.jit.kernels.fourier.lower import (
    lower_dft,
    lower_irdft,
    lower_rdft,
)

__all__ = ["lower_dft", "lower_irdft", "lower_rdft"]
