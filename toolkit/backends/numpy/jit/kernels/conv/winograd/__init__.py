"""3 x 3 convolutions of some channels with a quarter of the multiplications.

`transforms` holds the mathematics, `patches` what all kernels on tiles share;
`correlation` writes the loops of convolutions and input gradients, `kernel_grad` those
of kernel gradients.

Errors against float64, over the root of the mean square of the results, of normal
images and weights (and of images after relu), 16 x 16 pixels:

| channels added up | direct, mean square | largest | Winograd, mean square | largest |
|---:|---:|---:|---:|---:|
| 16 | 2.1e-7 (1.5e-7) | 2.0e-6 | 5.1e-7 (4.1e-7) | 4.2e-6 |
| 64 | 4.2e-7 (3.0e-7) | 4.2e-6 | 8.3e-7 (7.0e-7) | 8.5e-6 |
| 128 | 5.9e-7 (4.1e-7) | 6.0e-6 | 1.1e-6 (9.4e-7) | 1.0e-5 |
| 256 | 8.4e-7 (5.9e-7) | 8.5e-6 | 1.6e-6 (1.4e-6) | 1.6e-5 |
| 512 | 1.2e-6 (8.4e-7) | 1.2e-5 | 2.2e-6 (1.8e-6) | 2.1e-5 |

So it is used up to 128 channels: then no convolution has larger errors than a direct
one of 512 channels. Kernel gradients add up pixels, and have 1.4 to 1.8 times the
errors of direct ones for any number of them.
"""

from __future__ import annotations

from toolkit import settings

MOST_CHANNELS = 128


def is_allowed(channels: int = 1) -> bool:
    """Whether errors may be as large as they are for this number of channels added up."""
    return channels <= MOST_CHANNELS and settings.matmul_precision() != "highest"
