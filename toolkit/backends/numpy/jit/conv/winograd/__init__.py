"""3 x 3 convolutions of many channels with a quarter of the multiplications.

`transforms` holds the mathematics, `patches` what all kernels on tiles share;
`correlation` writes the loops of convolutions and input gradients, `kernel_grad` those
of kernel gradients.
"""
