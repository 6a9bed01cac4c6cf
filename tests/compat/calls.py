"""Calls whose results TensorFlow 2.21 has written, see tests/fixtures.

Each call is evaluated with `tf` and the arrays of `names`; `C` is `tf.constant`.
"""

import numpy as np


def names(tf):
    """Return the names that the calls may use."""
    images = (np.arange(2 * 6 * 8 * 3) % 256).astype("uint8").reshape(2, 6, 8, 3)
    return {
        "tf": tf,
        "np": np,
        "C": tf.constant,
        "A": np.arange(24.0, dtype="float32").reshape(2, 3, 4),
        "M": np.array([[4.0, 1.0], [1.0, 3.0]], "float32"),
        "I": np.array([[3, 1, 2], [0, 5, 4]], "int32"),
        "img": images,
        "imgf": (images / 255).astype("float32"),
        "x4": np.sin(np.arange(168, dtype="float32")).reshape(1, 7, 8, 3),
        "k4": np.cos(np.arange(135, dtype="float32")).reshape(3, 3, 3, 5),
        "mix": np.ones((1, 1, 15, 2), "float32"),
        "ones": np.ones((1, 4, 4, 5), "float32"),
    }


def flat(result):
    """Return the values of a result in order, as arrays."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in flat(item)]
    result = result.numpy() if hasattr(result, "numpy") else result
    array = np.asarray(result)
    return [array.astype("S") if array.dtype.kind in "OSU" else array]


CALLS = {
    "constants": r"""
tf.constant([1, 2])
tf.constant(2.5)
tf.constant([True])
tf.constant([1, 2, 3, 4], shape=(2, 2))
tf.constant(3, tf.float64)
tf.constant(np.array([1.0, 2.0]))
tf.constant(np.array([1, 2]))
tf.constant(np.float64(2.5))
tf.constant(np.int64(3))
tf.Variable(np.float64(2.5))
""",
    "making": r"""
tf.zeros((2, 3))
tf.zeros([2], tf.int32)
tf.ones(3)
tf.fill([2, 2], 7)
tf.fill([2], 1.5)
tf.eye(2)
tf.eye(2, 3, dtype=tf.int32)
tf.eye(2, batch_shape=[2])
""",
    "ranges": r"""
tf.range(5)
tf.range(1, 10, 3)
tf.range(3.0)
tf.range(0, 1, 0.25)
tf.range(5, dtype=tf.int64)
tf.range(10, 0, -3)
tf.linspace(0.0, 1.0, 5)
tf.linspace(0, 10, 5)
""",
    "joining": r"""
tf.cast([1.7, -1.7], tf.int32)
tf.cast([1, 0], tf.bool)
tf.reshape(A, [-1, 6])
tf.reshape(A, [tf.constant(4), 6])
tf.concat([A, A], 1)
tf.concat([[1, 2], [3]], axis=0)
tf.stack([[1, 2], [3, 4]], axis=1)
tf.unstack(A, axis=2)
tf.split(A, 2, axis=2)
tf.split(A, [1, -1], axis=1)
tf.split(A, num_or_size_splits=3, axis=1)
""",
    "gathering": r"""
tf.gather([10, 20, 30], [2, 0])
tf.gather(A, [1, 0], axis=2)
tf.gather(A, [[1, 0], [2, 2]], axis=1, batch_dims=1)
tf.gather(A, [[1, 0], [2, 2]], axis=2, batch_dims=1)
tf.gather(A, [[1, 0], [0, 1]], axis=1)
tf.gather_nd(A, [[0, 1], [1, 2]])
tf.gather_nd(A, [[[0, 1, 2]], [[1, 2, 3]]])
""",
    "one_hot": r"""
tf.one_hot([0, 2, 5], 3)
tf.one_hot([0, 1], 3, on_value=5, off_value=-1)
tf.one_hot([[0], [1]], 2, axis=0)
tf.one_hot([0, 1], 2, dtype=tf.int32)
tf.one_hot([0], 2, on_value=2.0)
""",
    "shapes": r"""
tf.where([True, False, True])
tf.where(A > 5.0, A, 0.0)
tf.where(np.array([[True, False]]), [[1], [2]], 3)
tf.tile([[1, 2]], [2, 2])
tf.repeat([1, 2], 2)
tf.repeat([[1, 2], [3, 4]], [1, 2], axis=0)
tf.transpose(A)
tf.transpose(A, perm=[1, 0, 2])
tf.expand_dims(A, 0)
tf.expand_dims(A, axis=-1)
tf.squeeze([[1], [2]])
tf.squeeze([[[1], [2]]], axis=[0])
tf.squeeze([[[1], [2]]], axis=0)
""",
    "padding": r"""
tf.pad([[1, 2]], [[1, 0], [0, 1]])
tf.pad([[1, 2, 3]], [[0, 0], [1, 1]], "REFLECT")
tf.pad([[1, 2, 3]], [[0, 0], [1, 1]], mode="SYMMETRIC")
tf.pad([[1, 2]], [[0, 0], [1, 1]], constant_values=9)
tf.slice(A, [0, 1, 1], [1, 2, -1])
tf.reverse(A, [0])
tf.reverse(A, axis=[1, 2])
tf.roll([1, 2, 3, 4], 1, 0)
tf.roll(A, shift=[1, 2], axis=[0, 1])
tf.meshgrid([1, 2], [3, 4, 5])
tf.meshgrid([1, 2], [3, 4, 5], indexing="ij")
tf.broadcast_to([1, 2], [3, 2])
tf.boolean_mask([1, 2, 3], [True, False, True])
tf.boolean_mask(A, [[True, False, True], [False, False, True]])
tf.boolean_mask(A, [True, False], axis=0)
tf.boolean_mask(A, [True, False, True], axis=1)
tf.identity([1])
tf.zeros_like(I)
tf.ones_like(I, dtype=tf.float32)
tf.sequence_mask([1, 3])
tf.sequence_mask([1, 3], 4, dtype=tf.int32)
tf.unique([1, 5, 1, 2, 5])
tf.unique_with_counts([1, 5, 1])
tf.size(A)
tf.rank(A)
tf.shape(A)
tf.shape(A, out_type=tf.int64)
tf.ensure_shape(A, [None, 3, 4])
""",
    "products": r"""
tf.tensordot(A, M, [[0], [0]])
tf.tensordot([1.0, 2.0], [3.0, 4.0], 1)
tf.einsum("ijk,ilk->jl", A, A)
tf.matmul(M, M, transpose_b=True)
tf.matmul(A, A, transpose_a=True)
tf.matmul(I, I, transpose_b=True)
""",
    "clipping": r"""
tf.clip_by_value(A, 2, 5)
tf.clip_by_value([1, 5, 9], 2, 6)
tf.clip_by_norm([3.0, 4.0], 1.0)
tf.clip_by_norm([[3.0, 4.0], [1.0, 0.0]], 1.0, axes=[1])
tf.clip_by_global_norm([[3.0], [4.0]], 2.0)
tf.norm([3.0, 4.0])
tf.norm(M, ord=1, axis=0)
tf.norm(M, axis=1, keepdims=True)
tf.norm(M, ord="fro", axis=[0, 1])
tf.norm(M, ord=np.inf)
tf.norm(M, ord=1, axis=[0, 1])
""",
    "order": r"""
tf.sort([3, 1, 2])
tf.sort([3.0, 1.0, 2.0], direction="DESCENDING")
tf.argsort([3, 1, 2, 1])
tf.argsort([3, 1, 2, 1], direction="DESCENDING", stable=True)
tf.searchsorted([1, 3, 5], [3, 4], side="right")
tf.searchsorted([[1, 3, 5], [2, 4, 6]], [[3, 4], [4, 7]])
""",
    "scattering": r"""
tf.cumsum([1, 2, 3])
tf.cumsum([1.0, 2.0, 3.0], exclusive=True)
tf.cumsum([1, 2, 3], reverse=True)
tf.cumsum([1, 2, 3], reverse=True, exclusive=True)
tf.cumsum(A, axis=1)
tf.math.cumprod([1, 2, 3, 4], exclusive=True)
tf.scatter_nd([[0], [2], [0]], [1.0, 2.0, 3.0], [4])
tf.tensor_scatter_nd_update([1, 2, 3], [[1]], [9])
tf.tensor_scatter_nd_add([1, 2, 3], [[1], [1]], [9, 1])
tf.tensor_scatter_nd_sub([1, 2, 3], [[1]], [9])
tf.tensor_scatter_nd_max([1, 2, 3], [[1]], [9])
tf.tensor_scatter_nd_min([1, 2, 3], [[1]], [0])
""",
    "reductions": r"""
tf.reduce_sum(A)
tf.reduce_sum(A, 1)
tf.reduce_sum(A, axis=[0, 2], keepdims=True)
tf.reduce_sum(I)
tf.reduce_sum(np.array([200, 100], "uint8"))
tf.reduce_mean(A, axis=-1)
tf.reduce_mean([1, 2, 4])
tf.reduce_mean([-1, -2])
tf.reduce_max(I, axis=1)
tf.reduce_min(A)
tf.reduce_prod([1, 2, 3])
tf.reduce_any([True, False])
tf.reduce_all([[True, False]], axis=1)
tf.reduce_logsumexp([1.0, 2.0])
tf.math.reduce_std(A, axis=0)
tf.math.reduce_variance([1.0, 2.0, 4.0])
tf.math.reduce_euclidean_norm([3.0, 4.0])
tf.argmax(A)
tf.argmax(A, axis=1)
tf.argmin(I, 1)
tf.argmax([1, 3], output_type=tf.int32)
tf.math.count_nonzero([[0, 1], [1, 1]], axis=0)
tf.math.count_nonzero([0, 1], dtype=tf.int32)
""",
    "counting": r"""
tf.math.top_k([1, 5, 3], k=2)
tf.math.bincount([1, 1, 3])
tf.math.bincount([1, 1, 3], weights=[0.5, 1.0, 2.0])
tf.math.bincount([1, 1, 3], minlength=6)
tf.math.confusion_matrix([0, 1, 2], [0, 2, 2])
tf.math.segment_sum([1, 2, 3], [0, 0, 1])
tf.math.segment_mean([1.0, 2.0, 3.0], [0, 0, 1])
tf.math.unsorted_segment_sum([1, 2, 3], [1, 0, 1], 3)
tf.math.unsorted_segment_mean([1.0, 2.0, 3.0], [1, 0, 1], 3)
tf.math.in_top_k([1, 0], [[0.1, 0.9], [0.2, 0.8]], 1)
tf.math.l2_normalize([3.0, 4.0])
tf.math.polyval([1.0, 2.0, 3.0], 2.0)
tf.math.xlogy([0.0, 2.0], [0.0, 3.0])
tf.math.multiply_no_nan([1.0, np.inf], [2.0, 0.0])
tf.math.divide_no_nan([1.0, 2.0], [0.0, 2.0])
tf.math.squared_difference([1, 4], [3, 1])
tf.math.add_n([[1, 2], [3, 4]])
""",
    "arithmetic": r"""
tf.divide(3, 2)
tf.divide([1.0, 2.0], 2.0)
tf.math.truediv(tf.constant(3), tf.constant(2))
tf.math.floordiv(-5, 3)
tf.math.floordiv(-5.0, 3.0)
tf.math.mod(-5, 3)
tf.pow(2, 3)
tf.pow(2.0, [1.0, 2.0])
tf.add(1, 2)
tf.subtract([1.0], 2.0)
tf.multiply(2, [3])
tf.maximum([1, 5], 3)
tf.equal([1, 2], [1, 3])
tf.not_equal([1], [2])
tf.less([1], [2])
tf.abs([-1, 2])
tf.sign([-2.0, 0.0, 3.0])
tf.round([0.5, 1.5, 2.5, -0.5])
tf.floor([1.5])
tf.math.ceil([1.2])
tf.square([3])
tf.sqrt([4.0])
tf.exp([1.0])
tf.math.log([2.0])
tf.math.log1p([1.0])
tf.math.expm1([1.0])
tf.sigmoid([0.0])
tf.tanh([1.0])
tf.math.softplus([1.0])
tf.math.erf([0.5])
tf.math.rsqrt([4.0])
tf.math.reciprocal([4.0])
tf.math.is_nan([np.nan, 1.0])
tf.logical_and([True], [False])
tf.math.atan2([1.0], [2.0])
tf.negative([1])
tf.math.log_sigmoid([1.0])
tf.math.conj(np.array([1 + 2j], "complex64"))
tf.math.real(np.array([1 + 2j], "complex64"))
tf.math.angle(np.array([1 + 2j], "complex64"))
tf.math.softmax([[1.0, 2.0]])
tf.math.zero_fraction([0.0, 1.0])
tf.math.scalar_mul(2.0, C([1.0, 2.0]))
""",
    "linalg": r"""
tf.linalg.det(M)
tf.linalg.inv(M)
tf.linalg.cholesky(M)
tf.linalg.eigvalsh(M)
tf.linalg.eigh(M)[0]
tf.linalg.svd(M)[0]
tf.linalg.svd(A)[0]
tf.linalg.svd(A, compute_uv=False)
(lambda s, u, v: u @ tf.linalg.diag(s) @ tf.linalg.adjoint(v))(*tf.linalg.svd(A))
tf.abs(tf.linalg.qr(M)[1])
tf.linalg.solve(M, [[1.0], [2.0]])
tf.linalg.solve(M, [[1.0], [2.0]], adjoint=True)
tf.linalg.triangular_solve(M, [[1.0], [2.0]])
tf.linalg.triangular_solve(M, [[1.0], [2.0]], adjoint=True)
tf.linalg.triangular_solve(M, [[1.0], [2.0]], lower=False)
tf.linalg.lstsq(A[0], A[0][:, :1], l2_regularizer=0.1)
tf.linalg.norm(M)
tf.linalg.band_part(A, 0, 1)
tf.linalg.band_part(A, -1, 0)
tf.linalg.diag([1.0, 2.0])
tf.linalg.diag([[1.0, 2.0], [3.0, 4.0]])
tf.linalg.diag([1.0, 2.0], k=1)
tf.linalg.diag([1.0, 2.0], k=-1)
tf.linalg.diag_part(M)
tf.linalg.diag_part(A)
tf.linalg.diag_part(M, k=1)
tf.linalg.set_diag(M, [7.0, 8.0])
tf.linalg.set_diag(A, A[:, :, 0])
tf.linalg.matvec(M, [1.0, 2.0])
tf.linalg.matvec(M, [1.0, 2.0], transpose_a=True)
tf.linalg.slogdet(M)
tf.linalg.logdet(M)
tf.linalg.pinv(M)
tf.linalg.trace(A[:, :, :3])
tf.linalg.matrix_transpose(A)
tf.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
tf.linalg.global_norm([[3.0], [4.0]])
""",
    "activations": r"""
tf.nn.relu([-1.0, 2.0])
tf.nn.relu6([7.0])
tf.nn.elu([-1.0])
tf.nn.selu([-1.0])
tf.nn.gelu([-1.0, 0.5])
tf.nn.gelu([-1.0, 0.5], approximate=True)
tf.nn.leaky_relu([-1.0])
tf.nn.leaky_relu([-1.0], alpha=0.3)
tf.nn.silu([1.0])
tf.nn.silu([1.0], beta=2.0)
tf.nn.softmax([[1.0, 2.0]], axis=0)
tf.nn.log_softmax([1.0, 2.0])
tf.nn.softplus([1.0])
tf.nn.softsign([1.0])
tf.nn.crelu([1.0, -2.0])
tf.nn.l2_loss([3.0, 4.0])
tf.nn.moments(A, axes=[0, 1])
tf.nn.moments(A, [1], keepdims=True)
tf.nn.batch_normalization(A, 1.0, 2.0, 0.5, 3.0, 1e-3)
tf.nn.batch_normalization(A, 1.0, 2.0, None, None, 1e-3)
tf.nn.bias_add(A, [1.0, 2.0, 3.0, 4.0])
tf.nn.bias_add(x4, [1.0] * 7, data_format="NCHW")
tf.nn.l2_normalize(A, axis=[1])
tf.nn.embedding_lookup(M, [[1, 0]])
tf.nn.embedding_lookup(M, [1, 0], max_norm=1.0)
""",
    "convolutions": r"""
tf.nn.conv2d(x4, k4, 1, "SAME")
tf.nn.conv2d(x4, k4, [1, 2, 2, 1], "VALID")
tf.nn.conv2d(x4, k4, strides=2, padding="SAME")
tf.nn.conv2d(x4, k4, 1, [[0, 0], [1, 2], [0, 1], [0, 0]])
tf.nn.conv2d(x4, k4, 1, "SAME", dilations=2)
tf.nn.conv1d(A, k4[0][:, :1].repeat(4, 1), 1, "SAME")
tf.nn.depthwise_conv2d(x4, k4, [1, 1, 1, 1], "SAME")
tf.nn.separable_conv2d(x4, k4, mix, [1, 1, 1, 1], "VALID")
tf.nn.max_pool2d(x4, 2, 2, "SAME")
tf.nn.max_pool2d(x4, [1, 3, 3, 1], [1, 2, 2, 1], "VALID")
tf.nn.avg_pool2d(x4, 2, 2, "VALID")
tf.nn.avg_pool2d(x4, 3, 2, "SAME")
tf.nn.max_pool(x4, ksize=2, strides=1, padding="SAME")
tf.nn.conv2d_transpose(ones, k4, [1, 8, 8, 3], 2, "SAME")
tf.nn.conv2d_transpose(ones, k4, [1, 7, 7, 3], 2, "SAME")
tf.nn.conv2d_transpose(ones, k4, [1, 9, 9, 3], 2, "VALID")
tf.nn.conv2d_transpose(ones, k4, [1, 4, 4, 3], 1, "SAME")
tf.nn.conv2d_transpose(ones, k4, [1, 10, 10, 3], 2, "VALID")
""",
    "losses": r"""
tf.nn.softmax_cross_entropy_with_logits(labels=[[0.0, 1.0]], logits=[[1.0, 3.0]])
tf.nn.sparse_softmax_cross_entropy_with_logits([1, 0], [[1.0, 3.0], [0.0, 2.0]])
tf.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[2.0, -100.0])
tf.nn.weighted_cross_entropy_with_logits([1.0, 0.0], [2.0, -1.0], pos_weight=3.0)
""",
    "images": r"""
tf.image.resize(img, [3, 4])
tf.image.resize(imgf, [9, 5], method="nearest")
tf.image.resize(imgf, [12, 16], method="bicubic")
tf.image.resize(imgf, [12, 12], preserve_aspect_ratio=True)
tf.image.resize(img, [3, 4], method="nearest")
tf.image.flip_left_right(img)
tf.image.flip_up_down(img)
tf.image.rot90(img)
tf.image.rgb_to_grayscale(imgf)
tf.image.rgb_to_grayscale(img)
tf.image.adjust_brightness(imgf, 0.1)
tf.image.adjust_brightness(img, 0.1)
tf.image.adjust_contrast(imgf, 2.0)
tf.image.adjust_contrast(img, 2.0)
tf.image.adjust_saturation(imgf, 0.5)
tf.image.adjust_hue(imgf, 0.1)
tf.image.per_image_standardization(img)
tf.image.central_crop(img, 0.5)
tf.image.central_crop(img, 0.7)
tf.image.crop_to_bounding_box(img, 1, 2, 3, 4)
tf.image.pad_to_bounding_box(img, 1, 1, 9, 10)
tf.image.resize_with_pad(imgf, 8, 8)
tf.image.resize_with_crop_or_pad(img, 4, 10)
tf.image.convert_image_dtype(img, tf.float32)
tf.image.convert_image_dtype(imgf, tf.uint8)
tf.image.convert_image_dtype(imgf, tf.uint8, saturate=True)
tf.image.psnr(imgf, imgf * 0.9, 1.0)
tf.image.rgb_to_hsv(imgf)
tf.image.extract_patches(imgf, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
tf.image.transpose(img)
tf.image.grayscale_to_rgb(C(img[..., :1]))
tf.image.image_gradients(C(imgf))
tf.image.sobel_edges(C(imgf))
tf.image.ssim(np.tile(imgf, (1, 4, 4, 1)), np.tile(imgf, (1, 4, 4, 1)) * 0.9, 1.0)
""",
    "bits": r"""
tf.bitwise.bitwise_and([6], [3])
tf.bitwise.left_shift([1], [3])
tf.bitwise.invert([0])
""",
    "control": r"""
tf.cond(tf.constant(True), lambda: 1.0, lambda: 2.0)
tf.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s + i), [0, 0])
tf.case([(tf.constant(False), lambda: 1)], default=lambda: 2)
tf.switch_case(tf.constant(1), [lambda: 1, lambda: 5])
tf.switch_case(tf.constant(7), [lambda: 1, lambda: 5])
tf.map_fn(lambda x: x * 2, C([1, 2, 3]))
tf.scan(lambda a, x: a + x, C([1, 2, 3]))
tf.scan(lambda a, x: a + x, C([1, 2, 3]), initializer=10)
tf.scan(lambda a, x: a + x, C([1, 2, 3]), reverse=True)
tf.foldl(lambda a, x: a + x, C([1, 2, 3]))
tf.foldr(lambda a, x: a - x, C([1, 2, 3]))
tf.vectorized_map(lambda x: tf.reduce_sum(x), A)
""",
    "strings": r"""
tf.strings.lower("AB")
tf.strings.length(["a", "bcd"])
tf.strings.join(["a", "b"], separator="-")
tf.strings.substr("hello", 1, 3)
tf.strings.regex_replace("hello", "l", "L")
tf.strings.to_number(["1.5"])
tf.strings.as_string([1, 2])
tf.strings.as_string([1.5])
tf.strings.reduce_join(["a", "b"])
tf.strings.upper(["ab"])
tf.strings.strip(" a ")
tf.strings.regex_full_match(["aa", "b"], "a+")
tf.constant(["a", "b"])
""",
    "others": r"""
tf.io.decode_raw(b"\x01\x00\x02\x00", tf.int16)
tf.convert_to_tensor([1.0, 2.0])
tf.convert_to_tensor(3, dtype_hint=tf.float32)
tf.recompute_grad(lambda x: x * 2)(tf.constant(1.0))
tf.saturate_cast([300.0, -5.0], tf.uint8)
tf.dtypes.cast(1.5, tf.int32)
tf.is_tensor(C(1))
tf.is_tensor(1)
tf.int8.min
tf.float32.is_floating
tf.as_dtype("float32").size
tf.TensorShape([1, None]).as_list()
tf.nest.flatten([[1, 2], (3,)])
tf.nest.map_structure(lambda x: x + 1, {"a": 1})
""",
    "operators": r"""
C(5) // 2
C(5) % 3
C([1.0, 2.0]) ** 2
-C([1])
C([1, 2]) == C([1, 3])
C([1.0]) > 0
C(2.0) + 1
1 - C(2.0)
C([[1, 2]]) @ C([[1], [2]])
C([1, 2, 3])[1:]
C([1, 2, 3])[-1]
C(A)[..., tf.newaxis]
C(A)[:, 1]
~C([True])
C([True]) & C([False])
abs(C([-1.0]))
C([[1, 2]]).get_shape().as_list()
len(C([1, 2]))
[int(v) for v in C([1, 2])]
C(1).dtype.name
C(1.0).ndim
C(A)[tf.newaxis]
C([1, 2]).shape.as_list()
C(A).shape.rank
""",
    "signals": r"""
tf.signal.fft(C([1+2j, 3, 4j]))
tf.signal.ifft(C([1+2j, 3, 4j]))
tf.signal.rfft(A)
tf.signal.rfft([1.0, 2.0, 3.0], [8])
tf.signal.irfft(tf.signal.rfft(A))
tf.signal.fft2d(tf.cast(A, tf.complex64))
tf.signal.ifft2d(tf.cast(A, tf.complex64))
tf.signal.frame(tf.range(9), 4, 2)
tf.signal.frame(tf.range(9), 4, 2, pad_end=True)
tf.signal.frame(A, 2, 1, axis=1)
tf.signal.hann_window(5)
tf.signal.hamming_window(4, periodic=False)
tf.signal.stft(x4[0, 0, :, 0], 4, 2)
tf.signal.stft(A[0, 0], 3, 1, fft_length=8, window_fn=None)
""",
    "more": r"""
tf.math.reciprocal_no_nan([0.0, 2.0])
tf.math.xdivy([0.0, 1.0], [0.0, 2.0])
tf.math.xlog1py([0.0, 1.0], [-1.0, 2.0])
tf.math.is_non_decreasing([1, 1, 2])
tf.math.is_strictly_increasing([1, 1, 2])
tf.linalg.cholesky_solve(tf.linalg.cholesky(M), [[1.0], [2.0]])
tf.linalg.normalize(M, axis=1)
tf.linalg.matrix_rank(M)
tf.linalg.tensor_diag_part(M)
tf.abs(tf.eigvals(M))
tf.nn.depth_to_space(x4[:, :6, :, :1].repeat(4, 3), 2)
tf.nn.space_to_depth(x4[:, :6], 2)
tf.nn.convolution(x4, k4)
tf.nn.convolution(A, k4[0, :2, :1].repeat(4, 1), padding="SAME")
tf.nn.pool(x4, [2, 2], "MAX", strides=[2, 2])
tf.nn.pool(x4, [2, 2], "AVG", padding="SAME")
tf.nn.local_response_normalization(x4, 1, 1.0, 0.5, 0.75)
tf.nn.compute_average_loss([1.0, 2.0])
tf.nn.compute_average_loss([1.0, 2.0], global_batch_size=4)
tf.nn.ctc_loss([[1, 2]], A[:1].transpose(1, 0, 2) / 9, [2], [3], blank_index=0)
tf.nn.ctc_loss([[0, 1]], A[:1] / 9, [2], [3], logits_time_major=False, blank_index=-1)
tf.image.adjust_gamma(imgf, 2.0)
tf.image.adjust_gamma(img, 0.5)
tf.image.total_variation(C(imgf))
tf.image.rgb_to_yuv(imgf)
tf.image.yuv_to_rgb(imgf)
tf.image.rgb_to_yiq(imgf)
tf.image.yiq_to_rgb(imgf)
tf.io.encode_base64("ab?")
tf.io.decode_base64("YWI_")
tf.strings.split("a b c")
tf.strings.split("a,b", sep=",")
tf.strings.bytes_split("abc")
tf.reverse_sequence(A, [2, 3], seq_axis=1, batch_axis=0)
tf.reverse_sequence([[1, 2, 3]], [2], seq_axis=1)
tf.dynamic_partition([1, 2, 3, 4], [0, 1, 0, 2], 3)
tf.dynamic_partition(A, [1, 0], 2)
tf.dynamic_stitch([[0, 2], [1, 2]], [[10, 20], [30, 40]])
tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], nbins=5)
tf.complex([1.0], [2.0])
tf.bitcast(C([1.0]), tf.int32)
tf.as_string([1])
tf.math.nextafter(C([1.0]), C([2.0]))
""",
}
