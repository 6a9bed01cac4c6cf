"""3 x 3 convolutions of some channels with a quarter of the multiplications, or half.

`transforms` holds the mathematics, `patches` what all kernels on tiles share;
`correlation` writes the loops of convolutions and input gradients, `kernel_grad` those
of kernel gradients. `exactness` says where the errors are small enough.
"""
