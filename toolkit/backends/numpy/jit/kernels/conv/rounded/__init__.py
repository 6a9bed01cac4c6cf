"""Convolutions whose factors are rounded to bfloat16, in blocks of the size of tiles.

`grid` puts inputs and the zeros around them in lines, on which each tap is a shift.
`pixels` packs them for `correlation`, the convolution and its input gradient, `planes`
those of `kernel_grad`; `unfold` is for images of few channels. `lower` and `lower_grad`
say when all that is quicker than float32, and make calls of it. Work is divided into
parts of images, which a task packs to memory of its own that stays in the second cache;
or, where the weights are more than that cache holds, into parts of those, and images
are packed in front.
"""

from toolkit.backends.numpy.jit.kernels.conv.rounded.lower import lower_rounded
from toolkit.backends.numpy.jit.kernels.conv.rounded.lower_grad import (
    lower_rounded_grad,
)

__all__ = ["lower_rounded", "lower_rounded_grad"]
