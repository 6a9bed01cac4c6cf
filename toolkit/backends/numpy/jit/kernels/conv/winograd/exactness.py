"""The channels for which Winograd's transforms are exact enough.

The table has root mean square errors against float64, divided by the root mean square
of the results, for normal images and weights (and for images after relu) of 16 x 16
pixels. The last number is the largest error.

| channels added up | direct | F(2, 3) | F(4, 3) |
|---:|---:|---:|---:|
| 16 | 2.1e-7 (1.5e-7), 2.1e-6 | 1.6e-7 (1.4e-7), 8.6e-7 | 5.3e-7 (4.2e-7), 4.3e-6 |
| 64 | 4.2e-7 (2.9e-7), 4.1e-6 | 2.7e-7 (2.3e-7), 1.5e-6 | 8.4e-7 (6.7e-7), 6.6e-6 |
| 128 | 5.9e-7 (4.3e-7), 4.9e-6 | 3.6e-7 (3.2e-7), 2.4e-6 | 1.1e-6 (9.7e-7), 8.7e-6 |
| 256 | 8.3e-7 (6.1e-7), 8.6e-6 | 4.9e-7 (4.4e-7), 2.7e-6 | 1.5e-6 (1.3e-6), 1.1e-5 |
| 512 | 1.2e-6 (8.4e-7), 1.2e-5 | 7.0e-7 (5.8e-7), 5.1e-6 | 2.2e-6 (1.8e-6), 1.6e-5 |
| 1024 | 1.7e-6 (1.2e-6), 1.3e-5 | 9.7e-7 (8.6e-7), 6.0e-6 | 3.1e-6 (2.6e-6), 3.1e-5 |

F(2, 3) has smaller errors than a direct sum, which has nine times as many terms: it is
allowed for any number of channels. F(4, 3) is allowed up to 128 channels: then no
convolution has larger errors than a direct one of 512 channels. Kernel gradients sum
over pixels, and have 1.4 to 1.8 times the errors of direct ones for any number of
pixels.
"""

from __future__ import annotations

from toolkit import settings

MAX_CHANNELS = 128


def is_exact_enough(channels: int, outputs: int) -> bool:
    """Return whether sums over `channels` may use tiles of `outputs` outputs."""
    if settings.matmul_precision() == "highest":
        return False
    return outputs == 2 or channels <= MAX_CHANNELS
