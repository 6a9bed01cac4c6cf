"""Calls of `tf.image` with boxes, each with TensorFlow 2.21's result below it."""

CALLS = {
    "crop_and_resize": r"""
cropped([[0.0, 0.0, 1.0, 1.0]], [0], [2, 2])
    float32 [[[0.0, 4.0], [15.0, 19.0]]]
cropped([[0.2, 0.1, 1.0, 0.9]], [1], [2, 3])
    float32 [[[23.4, 25.0, 26.6], [35.4, 37.0, 38.6]]]
cropped([[0.0, 0.0, 0.5, 0.5], [0.2, 0.1, 1.0, 0.9]], [0, 1], [2, 1])
    float32 [[[1.0], [8.5]], [[25.0], [37.0]]]
cropped([[0.0, 0.0, 1.5, 0.5]], [0], [3, 2], extrapolation_value=7.0)
    float32 [[[0.0, 2.0], [11.25, 13.25], [7.0, 7.0]]]
cropped([[0.1, 0.1, 0.8, 0.7]], [1], [2, 2], method="nearest")
    float32 [[[20.0, 23.0], [30.0, 33.0]]]
cropped([[1.0, 1.0, 0.0, 0.0]], [1], [2, 2])
    float32 [[[39.0, 35.0], [24.0, 20.0]]]
cropped([[0.2, 0.4, 0.8, 0.6]], [1], [1, 1])
    float32 [[[29.5]]]
cropped([[0.25, 0.25, 0.75, 0.75]], [0], [2, 2], "nearest", 3.0)
    float32 [[[6.0, 8.0], [11.0, 13.0]]]
I.crop_and_resize(tf.cast(P, tf.uint8), [[0.0, 0.0, 1.0, 0.5]], [0], [2, 2])[..., 0]
    float32 [[[0.0, 2.0], [15.0, 17.0]]]
cropped([[0.0, 0.0, 1.0, 1.0]], [2], [2, 2])
    refused
cropped([[0.0, 0.0, 1.0, 1.0]], [0, 1], [2, 2])
    refused
""",
    "non_max_suppression": r"""
I.non_max_suppression(B, W, 3)
    int32 [0, 2]
I.non_max_suppression(B, W, 1)
    int32 [0]
I.non_max_suppression(B, W, 3, iou_threshold=0.95)
    int32 [0, 1, 2]
I.non_max_suppression(B, W, 3, 0.5, 0.75)
    int32 [0]
I.non_max_suppression(B, [0.7, 0.9, 0.8], 3)
    int32 [1, 2]
I.non_max_suppression(B, [0.5, 0.5, 0.5], 3, 0.95)
    int32 [0, 1, 2]
I.non_max_suppression([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]], [0.1, 0.2], 2)
    int32 [1]
I.non_max_suppression(tf.zeros([0, 4]), tf.zeros([0]), 2)
    int32 []
I.non_max_suppression([[0.0, 0.0, 0.0, 0.0]] * 2, [0.1, 0.2], 2)
    int32 [1, 0]
I.non_max_suppression(B, W, 3, 1.5)
    refused
I.non_max_suppression_with_scores(B, W, 3)
    (int32 [0, 2], float32 [0.9, 0.7])
I.non_max_suppression_with_scores(B, W, 3, soft_nms_sigma=0.5)
    (int32 [0, 2, 1], float32 [0.9, 0.7, 0.35589])
I.non_max_suppression_with_scores(B, W, 2, 1.0, 0.2, 0.2)
    (int32 [0, 2], float32 [0.9, 0.7])
""",
    "draw_bounding_boxes": r"""
drawn([0.0, 0.0, 1.0, 1.0], [[1.0]])
    int32 [[2, 2, 2, 2, 2], [2, 0, 0, 0, 2], [2, 0, 0, 0, 2], [2, 2, 2, 2, 2]]
drawn([0.3, 0.3, 0.8, 0.7], [[0.5]])
    int32 [[0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
drawn([0.3, 0.3, 0.8, 0.7], None)
    int32 [[0, 2, 2, 0, 0], [0, 2, 2, 0, 0], [0, 2, 2, 0, 0], [0, 0, 0, 0, 0]]
drawn([-0.5, 0.3, 0.8, 1.7], [[0.5]])
    int32 [[0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]
drawn([0.8, 0.8, 0.2, 0.2], [[0.5]])
    int32 [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
drawn([1.2, 1.2, 1.5, 1.5], [[0.5]])
    int32 [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
colors([[0, 0, 1, 1]], [[1.0, 0.5, 0.25, 0.125]])
    float32 [1.0, 0.5, 0.25, 0.125]
colors([[0, 0, 1, 1]] * 2, [[1.0, 0.5, 0.25, 0.125]])
    float32 [1.0, 0.5, 0.25, 0.125]
colors([[0, 0, 1, 1]] * 2, [[1.0, 0.5, 0.25, 0.125], [0.5, 0.0, 0.0, 0.0]])
    float32 [0.5, 0.0, 0.0, 0.0]
colors([[0, 0, 1, 1]] * 1, None)
    float32 [1.0, 1.0, 0.0, 1.0]
colors([[0, 0, 1, 1]] * 2, None)
    float32 [0.0, 0.0, 1.0, 1.0]
colors([[0, 0, 1, 1]] * 3, None)
    float32 [1.0, 0.0, 0.0, 1.0]
colors([[0, 0, 1, 1]] * 4, None)
    float32 [0.0, 1.0, 0.0, 1.0]
colors([[0, 0, 1, 1]] * 5, None)
    float32 [0.5, 0.0, 0.5, 1.0]
colors([[0, 0, 1, 1]] * 6, None)
    float32 [0.5, 0.5, 0.0, 1.0]
colors([[0, 0, 1, 1]] * 7, None)
    float32 [0.5, 0.0, 0.0, 1.0]
colors([[0, 0, 1, 1]] * 8, None)
    float32 [0.0, 0.0, 0.5, 1.0]
colors([[0, 0, 1, 1]] * 9, None)
    float32 [0.0, 1.0, 1.0, 1.0]
colors([[0, 0, 1, 1]] * 10, None)
    float32 [1.0, 0.0, 1.0, 1.0]
colors([[0, 0, 1, 1]] * 11, None)
    float32 [1.0, 1.0, 0.0, 1.0]
""",
    "dtypes": r"""
I.convert_image_dtype(C([0, 100, 255], tf.uint8), tf.uint16)
    uint16 [0, 25600, 65280]
I.convert_image_dtype(C([0, 100, 255], tf.uint8), tf.int16)
    int16 [0, 12800, 32640]
I.convert_image_dtype(C([0, 100, 255], tf.uint8), tf.int8)
    int8 [0, 50, 127]
I.convert_image_dtype(C([0, 30000, 65535], tf.uint16), tf.uint8)
    uint8 [0, 117, 255]
I.convert_image_dtype(C([-5, 30000], tf.int16), tf.uint8, saturate=True)
    uint8 [0, 234]
I.convert_image_dtype(C([-5, 30000], tf.int16), tf.uint8)
    uint8 [255, 234]
I.convert_image_dtype(C([100, -100], tf.int8), tf.int32)
    int32 [1677721600, -1677721600]
""",
    "refusals": r"""
I.random_brightness(P, -0.1)
    refused
I.random_contrast(P, 0.9, 0.1)
    refused
I.random_saturation(tf.ones([2, 2, 3]), 0.9, 0.1)
    refused
I.random_hue(tf.ones([2, 2, 3]), 0.9)
    refused
I.adjust_hue(tf.ones([2, 2, 3]), 5.0)
    refused
I.rgb_to_grayscale(tf.ones([2, 2, 1]))
    refused
I.grayscale_to_rgb(tf.ones([2, 2, 3]))
    refused
""",
}
