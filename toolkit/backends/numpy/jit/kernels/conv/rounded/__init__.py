"""Convolutions with operands rounded to bfloat16, in blocks of the size of tiles.

`grid` maps inputs and their padding to lines, on which each tap is a shift. `pixels`
packs them for `correlation`, which computes the convolution and its input gradient.
`planes` packs them for `kernel_grad`. `unfold` is for images of few channels. `lower`
and `lower_grad` decide when this is faster than float32, and emit the calls. The work
is divided into parts of images, which a task packs to memory that stays in the L2
cache. If the weights exceed that cache, it is divided into parts of the weights, and
images are packed by an earlier call.
"""

from toolkit.backends.numpy.jit.kernels.conv.rounded.lower import lower_rounded
from toolkit.backends.numpy.jit.kernels.conv.rounded.lower_grad import (
    lower_rounded_grad,
)

__all__ = ["lower_rounded", "lower_rounded_grad"]
