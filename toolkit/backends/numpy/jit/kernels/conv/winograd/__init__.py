"""Winograd convolutions, 3 x 3, with a quarter or half of the multiplications.

`transforms` holds the mathematics, and `patches` the code that all kernels on tiles
share. `correlation` emits the loops of convolutions and input gradients, `kernel_grad`
the loops of kernel gradients. `exactness` defines where the errors are small enough.
"""
