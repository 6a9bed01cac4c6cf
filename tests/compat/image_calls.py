"""Calls of `tf.image`, each with TensorFlow 2.21's result below it, see shown.py."""

CALLS = {
    "resize_with_pad": r"""
padded([8, 9, 1], 6, 12)
    ((6, 12), list((0, 5), (2, 7)))
padded([8, 9, 1], 7, 7)
    ((7, 7), list((0, 5), (0, 6)))
padded([9, 8, 1], 5, 7)
    ((5, 7), list((0, 4), (1, 4)))
padded([5, 7, 1], 8, 8)
    ((8, 8), list((1, 5), (0, 7)))
padded([2, 5, 7, 1], 3, 8)
    ((2, 3, 8), list((0, 2), (1, 4)))
padded([5, 7, 1], 3, 8)
    ((3, 8), list((0, 2), (1, 4)))
padded([3, 100, 1], 1, 20)
    refused
I.resize_with_pad(tf.reshape(tf.range(12.0), [2, 6, 1]), 3, 4)[..., 0]
    float32 [[3.25, 4.75, 6.25, 7.75], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
""",
    "psnr": r"""
psnr("uint8", 255)
    float32 [11.881]
psnr("uint8", 1.0)
    float32 [-36.25]
psnr("float32", 255.0)
    float32 [11.881]
psnr("float64", 1.0)
    float32 [-36.25]
psnr("int32", 1)
    float32 [-36.25]
psnr("float16", 1, 1 / 240)
    float32 [11.355]
I.psnr(W, W, 255)
    float32 [inf]
""",
    "differences": r"""
I.total_variation(W[:, ::-1])
    refused
I.sobel_edges(W).dtype
    refused
I.image_gradients(W[:, ::-1])[0][0, ..., 0]
    uint8 [[136, 136], [0, 0]]
""",
}
