"""Direct convolutions and their gradients, channels last, for any number of axes.

`geometry` says which inputs an output sees, `feed` how channels meet lanes, `tiles` how
work is cut for the registers, and a plan all of it. `correlate` writes the loops of
convolutions and input gradients, with `sums` innermost, after `pack` has put the
weights in order; `kernel_grad` writes those of kernel gradients, whose parts `total`
adds up. `winograd` does all three with fewer multiplications where that is possible,
`rounded` rounds factors to bfloat16 on processors that multiply these faster.
"""

from toolkit.backends.numpy.jit.kernels.conv.lower import (
    lower_conv,
    lower_conv_input_grad,
)
from toolkit.backends.numpy.jit.kernels.conv.lower_grad import lower_conv_kernel_grad

__all__ = ["lower_conv", "lower_conv_input_grad", "lower_conv_kernel_grad"]
