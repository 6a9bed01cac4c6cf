"""Direct convolutions and their gradients, channels last, for any number of axes.

`geometry` says which inputs an output sees, `tiles` how the work is cut for the
registers, `feed` how channels meet lanes. `correlate` writes the loops of convolutions
and input gradients, with `sums` innermost, after `pack` has put the weights in order;
`kernel_grad` those of kernel gradients.
"""

from toolkit.backends.numpy.jit.conv.lower import lower_conv, lower_conv_input_grad
from toolkit.backends.numpy.jit.conv.lower_grad import lower_conv_kernel_grad

__all__ = ["lower_conv", "lower_conv_input_grad", "lower_conv_kernel_grad"]
