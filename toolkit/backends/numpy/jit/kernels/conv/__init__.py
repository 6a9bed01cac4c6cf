"""Direct convolutions and their gradients, channels last, for any number of axes.

`geometry` maps outputs to inputs, `input_loader` maps channels to lanes, `tiles`
selects register blocks, and `plan` combines them. `correlate` emits the loops of
convolutions and input gradients, with `sums` innermost, after `pack` has packed the
weights. `kernel_grad` emits the loops of kernel gradients, and `partial_sums` adds
their partial sums. `winograd` does all three with fewer multiplications where possible.
`rounded` rounds operands to bfloat16 on processors that multiply it faster.
"""

from toolkit.backends.numpy.jit.kernels.conv.lower import (
    lower_conv,
    lower_conv_input_grad,
)
from toolkit.backends.numpy.jit.kernels.conv.lower_grad import lower_conv_kernel_grad

__all__ = ["lower_conv", "lower_conv_input_grad", "lower_conv_kernel_grad"]
