"""Calls of special functions, signals and losses, as in `calls`; see the fixtures.

`gradients(f, *xs)` is the gradient of the sum of f with respect to each x.
"""

import gzip
import zlib

import numpy as np

from tests.compat import calls


def names(tf):
    """Return the names that the calls may use."""

    def gradients(function, *values):
        xs = [tf.constant(value) for value in values]
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = tf.nest.map_structure(tf.reduce_sum, function(*xs))
        return [tf.convert_to_tensor(g) for g in tape.gradient(y, xs)]

    sampled = (
        tf.constant([1, 3, 4], tf.int64),
        tf.constant([[0.5], [0.25]]),
        tf.constant([0.3, 0.2, 0.1]),
    )
    train, ints = tf.train, tf.train.Int64List
    words = train.Feature(bytes_list=train.BytesList(value=[b"x", b"y"]))
    steps = [train.Feature(int64_list=ints(value=x)) for x in ([1, 2], [3, 4])]
    context = {"n": train.Feature(int64_list=ints(value=[3])), "v": steps[0]}
    lists = {"a": train.FeatureList(feature=steps)}

    def message(context, **lists):
        return train.SequenceExample(
            context=train.Features(feature=context),
            feature_lists=train.FeatureLists(feature_list=lists),
        )

    message_of_lists = message(
        context, **lists, w=train.FeatureList(feature=[words, words])
    )
    serialized = message_of_lists.SerializeToString()
    other = message(context, a=train.FeatureList(feature=steps[:1])).SerializeToString()
    boxes = [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3.05]]
    boxes = np.array([*boxes, [0, 0, 2, 2]], "float32")
    scores = np.array([0.9, 0.75, 0.6, 0.95, 0.3], "float32")
    score_rows = np.stack([scores, scores[::-1]], -1)[None]
    y1 = tf.constant([[0], [3]], tf.int64)
    logits = 3 * np.sin(np.arange(24, dtype="float32")).reshape(4, 2, 3)
    # In float64, so that the numbers are the same on all processors.
    signals = np.sin(np.arange(96) ** 1.3).astype("float32").reshape(2, 48)
    return {
        **calls.names(tf),
        "gradients": gradients,
        "S": signals,
        "inverse_window": tf.signal.inverse_stft_window_fn(4),
        "W": np.sin(np.arange(15, dtype="float32")).reshape(5, 3),
        "b": np.cos(np.arange(5, dtype="float32")),
        "x2": np.cos(np.arange(6, dtype="float32") * 2).reshape(2, 3),
        "sampled": sampled,
        "y1": y1,
        "y2": tf.constant([[0, 1], [3, 2]], tf.int64),
        "sampled2": (
            tf.constant([1, 3, 4], tf.int64),
            tf.constant([[0.5, 0.1], [0.25, 0.3]]),
            tf.constant([0.3, 0.2, 0.1]),
        ),
        "ones2": np.ones((2, 2, 4, 3), "float32"),
        "t3": np.array([0.5, 1.0, 2.0], "float32"),
        "nce": lambda w, b, x: tf.nn.nce_loss(w, b, y1, x, 3, 5, 1, sampled),
        "sampled_softmax": lambda w, b, x: tf.nn.sampled_softmax_loss(
            w, b, y1, x, 3, 5, 1, sampled
        ),
        "batch_cost": lambda p: tf.keras.backend.ctc_batch_cost(
            [[0, 1], [1, 0]], p, [[4], [3]], [[2], [1]]
        ),
        "D": lambda x, fill=None: tf.sparse.to_dense(x, fill),
        "boxes": boxes,
        "scores": scores,
        "both": score_rows,
        "per_class": np.stack([boxes, boxes / 4], 1)[None],
        "overlaps": np.array(
            [[1, 0.9, 0, 0], [0.9, 1, 0.2, 0], [0, 0.2, 1, 0.7], [0, 0, 0.7, 1]],
            "float32",
        ),
        "combined": tf.image.combined_non_max_suppression,
        "IO": tf.io,
        "one": {"n": tf.io.FixedLenFeature([], tf.int64)},
        "steps": {"a": tf.io.FixedLenSequenceFeature([2], tf.int64)},
        "zlib": zlib,
        "gzip": gzip,
        "sequence": message({"n": context["n"]}, **lists),
        "single": lambda *x: tf.io.parse_single_sequence_example(serialized, *x),
        "batch": lambda *x: tf.io.parse_sequence_example([serialized, other], *x),
        "L": logits,
        "P": tf.nn.softmax(logits.transpose(1, 0, 2)).numpy(),
    }


CALLS = {
    "gamma": r"""
tf.math.lgamma([0.5, 1.5, 30.0, -0.5])
tf.math.lgamma(tf.constant([0.5], tf.float64))
tf.math.lgamma(tf.constant([0.5], tf.float16))
tf.math.digamma([0.5, 1.5, 30.0, -0.5])
tf.math.polygamma([0.0, 1.0, 2.0], [0.5, 1.5, 3.0])
tf.math.polygamma(1.0, [0.5, 1.5, 3.0])
tf.math.polygamma(a=C(2.0), x=C([0.5]))
tf.math.zeta([2.0, 3.5], [1.0, 4.0])
tf.math.zeta(x=C(2.0), q=C([1.0, 4.0]))
tf.math.igamma([0.5, 2.0], [0.25, 3.0])
tf.math.igamma(a=C(2.0), x=C([0.25, 3.0]))
tf.math.igammac([0.5, 2.0], [0.25, 3.0])
tf.math.betainc([0.5, 2.0], [1.5, 3.0], [0.25, 0.75])
tf.math.lbeta([[1.0, 2.0], [3.0, 4.5]])
tf.math.lbeta([0.5, 1.0, 2.0])
gradients(tf.math.lgamma, [0.5, 1.5, -0.5])
gradients(tf.math.digamma, [0.5, 1.5])
gradients(lambda x: tf.math.polygamma(2.0, x), [0.5, 1.5])
gradients(lambda q: tf.math.zeta(2.0, q), [0.5, 1.5])
gradients(tf.math.igamma, [0.5, 2.0], [0.25, 3.0])
gradients(tf.math.igammac, [0.5, 2.0], [0.25, 3.0])
gradients(lambda x: tf.math.betainc(C([0.5, 2.0]), C([1.5, 3.0]), x), [0.25, 0.75])
gradients(tf.math.lbeta, [0.5, 1.0, 2.0])
tf.compat.v1.lgamma([0.5])
tf.compat.v1.betainc(1.0, 2.0, [0.5])
tf.compat.v1.polygamma(1.0, [0.5])
""",
    "special": r"""
tf.math.bessel_i0([-1.0, 0.0, 3.0])
tf.math.bessel_i0e([-1.0, 0.0, 3.0])
tf.math.bessel_i1([-1.0, 0.0, 3.0])
tf.math.bessel_i1e([-1.0, 0.0, 3.0])
tf.math.special.bessel_i1e([-1.0, 0.0, 3.0])
tf.math.special.bessel_j0([-1.0, 0.0, 3.0])
tf.math.special.bessel_j1([-1.0, 0.0, 3.0])
tf.math.special.bessel_y0([0.5, 3.0])
tf.math.special.bessel_y1([0.5, 3.0])
tf.math.special.bessel_k0([0.5, 3.0])
tf.math.special.bessel_k1([0.5, 3.0])
tf.math.special.bessel_k0e([0.5, 3.0])
tf.math.special.bessel_k1e([0.5, 3.0])
tf.math.special.dawsn([-1.0, 0.0, 3.0])
tf.math.special.expint([0.5, 3.0])
tf.math.special.fresnel_cos([-1.0, 0.0, 3.0])
tf.math.special.fresnel_sin([-1.0, 0.0, 3.0])
tf.math.special.spence([0.5, 3.0])
tf.math.ndtri([0.0, 0.25, 0.5, 0.999, 1.0])
tf.math.erfcinv([0.0, 0.25, 1.0, 1.5, 2.0])
gradients(tf.math.bessel_i1e, [-1.0, 3.0])
gradients(tf.math.bessel_i0e, [-1.0, 3.0])
gradients(tf.math.special.bessel_k0, [0.5, 3.0])
gradients(tf.math.special.bessel_y1, [0.5, 3.0])
gradients(tf.math.special.bessel_j1, [0.5, 3.0])
gradients(tf.math.special.dawsn, [0.5, 3.0])
gradients(tf.math.special.expint, [0.5, 3.0])
gradients(tf.math.special.fresnel_sin, [0.5, 3.0])
gradients(tf.math.special.spence, [0.5, 3.0])
gradients(tf.math.ndtri, [0.25, 0.5, 0.999])
gradients(tf.math.erfcinv, [0.25, 1.5])
tf.math.approx_max_k([[1.0, 4.0, 2.0], [3.0, 0.0, 9.0]], 2)
""",
    "cosines": r"""
tf.signal.dct(S)
tf.signal.dct(S, type=1)
tf.signal.dct(S, type=3)
tf.signal.dct(S, type=4)
tf.signal.dct(S, norm="ortho")
tf.signal.dct(S, type=3, norm="ortho")
tf.signal.dct(S, type=4, norm="ortho")
tf.signal.dct(S, n=20)
tf.signal.dct(S, n=60, type=3)
tf.signal.idct(S)
tf.signal.idct(S, type=1)
tf.signal.idct(S, type=3, norm="ortho")
tf.signal.idct(S, type=4)
tf.signal.dct(tf.constant([1.0, 2.0, 4.0], tf.float64))
gradients(lambda x: tf.signal.dct(x) ** 2, [1.0, 2.0, 4.0])
tf.signal.mdct(S, 8)
tf.signal.mdct(S, 8, window_fn=None, pad_end=True, norm="ortho")
tf.signal.inverse_mdct(tf.signal.mdct(S, 8))
tf.signal.inverse_mdct(tf.signal.mdct(S, 8, None), window_fn=None)
tf.signal.inverse_mdct(tf.signal.mdct(S, 8, norm="ortho"), norm="ortho")
tf.signal.mfccs_from_log_mel_spectrograms(S)
tf.signal.linear_to_mel_weight_matrix()
tf.signal.linear_to_mel_weight_matrix(10, 65, 16000, 80.0, 7600.0, tf.float64)
""",
    "frames": r"""
tf.signal.stft(S, 16, 4)
tf.signal.stft(S, 12, 4, 20)
tf.signal.inverse_stft(tf.signal.stft(S, 16, 4), 16, 4)
tf.signal.inverse_stft(tf.signal.stft(S, 12, 4), 12, 4, window_fn=inverse_window)
tf.signal.inverse_stft(tf.signal.stft(S, 12, 4, 8), 12, 4, 8)
tf.signal.inverse_stft(tf.signal.stft(S, 12, 5, 20), 12, 5, 20, window_fn=None)
tf.signal.inverse_stft_window_fn(4)(12, tf.float32)
tf.signal.inverse_stft_window_fn(5, tf.signal.hamming_window)(12, dtype=tf.float64)
tf.signal.overlap_and_add(S, 7)
tf.signal.overlap_and_add(A, 2)
tf.signal.overlap_and_add(A, 5)
tf.signal.kaiser_window(8)
tf.signal.kaiser_window(7, beta=3.0, dtype=tf.float64)
tf.signal.kaiser_bessel_derived_window(8)
tf.signal.kaiser_bessel_derived_window(7, 3.0)
tf.signal.vorbis_window(8)
tf.signal.vorbis_window(7, dtype=tf.float64)
gradients(lambda x: tf.signal.overlap_and_add(x, 2) ** 2, A)
""",
    "transforms": r"""
tf.signal.fft3d(tf.cast(A, tf.complex64))
tf.signal.ifft3d(tf.cast(A, tf.complex64))
tf.signal.ifft(tf.cast(A, tf.complex64))
tf.signal.ifft2d(tf.cast(A, tf.complex128))
tf.signal.rfft(S)
tf.signal.rfft(S, [20])
tf.signal.irfft(tf.signal.rfft(S), [40])
tf.signal.rfft2d(A)
tf.signal.rfft2d(A, [4, 6])
tf.signal.irfft2d(tf.signal.rfft2d(A))
tf.signal.irfft2d(tf.signal.rfft2d(A), [4, 5])
tf.signal.rfft3d(A)
tf.signal.irfft3d(tf.signal.rfft3d(A))
tf.signal.fftshift(A)
tf.signal.fftshift(A, axes=[1])
tf.signal.ifftshift(A)
tf.signal.ifftshift(S, axes=1)
""",
    "matrices": r"""
tf.linalg.expm(M)
tf.linalg.expm(A[:, :3, :3] / 10)
tf.linalg.expm(tf.constant([[0j, 1j], [1 + 0j, 0j]], tf.complex64))
tf.linalg.sqrtm(M)
tf.linalg.logm(tf.cast(M, tf.complex64))
gradients(tf.linalg.expm, M)
""",
    "samples of classes": r"""
tf.nn.all_candidate_sampler([[0, 5], [3, 3]], 2, 6, True)
tf.random.uniform_candidate_sampler([[0, 5], [3, 3]], 2, 4, False, 10)[1:]
tf.random.log_uniform_candidate_sampler([[0, 5], [3, 3]], 2, 4, False, 10)[1]
tf.nn.fixed_unigram_candidate_sampler([[0, 2]], 2, 3, False, 3, unigrams=[1, 2, 4])[1]
tf.nn.compute_accidental_hits([[0, 5], [3, 3]], tf.constant([3, 0, 9], tf.int64), 2)
tf.nn.sampled_softmax_loss(W, b, y1, x2, 3, 5, 1, sampled)
tf.nn.sampled_softmax_loss(W, b, y2, x2, 3, 5, 2, sampled2, False)
tf.nn.sampled_softmax_loss([W[:3], W[3:]], b, y1, x2, 3, 5, 1, sampled)
tf.nn.nce_loss(W, b, y1, x2, 3, 5, 1, sampled)
tf.nn.nce_loss(W, b, y2, x2, 3, 5, 2, sampled2, True)
gradients(nce, W, b, x2)
gradients(sampled_softmax, W, b, x2)
""",
    "ctc": r"""
tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(L, [4, 3])[0][0], -1)
tf.nn.ctc_greedy_decoder(L, [4, 3])[0][0].dense_shape
tf.nn.ctc_greedy_decoder(L, [4, 3])[1]
tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(L, [4, 3], False, 0)[0][0], -1)
tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(L, [4, 3], blank_index=-2)[0][0], -1)
tf.sparse.to_dense(tf.nn.ctc_beam_search_decoder(L, [4, 3], 5, 2)[0][0], -1)
tf.sparse.to_dense(tf.nn.ctc_beam_search_decoder(L, [4, 3], 5, 2)[0][1], -1)
tf.nn.ctc_beam_search_decoder(L, [4, 3], beam_width=20, top_paths=2)[1]
tf.nn.collapse_repeated([[1, 1, 2], [3, 3, 3]], [3, 2])
tf.keras.backend.ctc_batch_cost([[0, 1], [1, 0]], P, [[4], [3]], [[2], [1]])
tf.keras.backend.ctc_decode(P, [4, 3])
tf.keras.backend.ctc_decode(P, [4, 3], greedy=False, beam_width=5, top_paths=2)
gradients(batch_cost, P)
""",
    "windows": r"""
tf.nn.max_pool_with_argmax(x4, 2, 2, "SAME")
tf.nn.max_pool_with_argmax(x4, [1, 3, 2, 1], [1, 2, 1, 1], "VALID", "NHWC", tf.int32)
tf.nn.max_pool_with_argmax(A[..., None], 2, 1, "SAME", include_batch_in_index=True)
tf.nn.max_pool_with_argmax(tf.zeros((1, 3, 3, 1)), 2, 1, "VALID")
gradients(lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME")[0] ** 2, x4)
tf.nn.dilation2d(x4, k4[..., 0], [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
tf.nn.dilation2d(x4, k4[..., 0], [1, 2, 2, 1], "VALID", "NHWC", [1, 2, 1, 1])
tf.nn.erosion2d(x4, k4[..., 0], [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])
tf.nn.conv1d_transpose(A, np.ones((3, 2, 4), "float32"), [2, 6, 2], 2)
tf.nn.conv1d_transpose(A, np.ones((3, 2, 4), "float32"), [2, 7, 2], 2, "VALID")
tf.nn.conv3d_transpose(x4[:, None], ones2[None], [1, 1, 7, 8, 4], 1)
tf.nn.conv_transpose(x4, ones2, [1, 14, 16, 4], 2)
tf.nn.atrous_conv2d(x4, k4, 2, "SAME")
tf.nn.atrous_conv2d_transpose(x4, ones2, [1, 7, 8, 4], 2, "SAME")
""",
    "moments": r"""
tf.nn.sufficient_statistics(A, [0, 2])[:3]
tf.nn.sufficient_statistics(A, [1], shift=2.0, keepdims=True)
tf.nn.normalize_moments(4.0, C([8.0]), C([20.0]), None)
tf.nn.normalize_moments(4.0, C([8.0]), C([20.0]), 1.5)
tf.nn.weighted_moments(A, [0, 2], [1.0, 2.0, 3.0, 0.5])
tf.nn.weighted_moments(A, [1], C([[[1.0], [2.0], [3.0]]]), keepdims=True)
tf.nn.log_poisson_loss(C([1.0, 2.0, 5.0]), C([0.5, 0.1, 1.5]))
tf.nn.log_poisson_loss(C([0.0, 1.0, 5.0]), C([0.5, 0.1, 1.5]), compute_full_loss=True)
tf.nn.batch_norm_with_global_normalization(x4, t3, t3, t3, t3 * 2, 0.01, True)
""",
    "sets": r"""
D(tf.sets.intersection(I, [[3, 9], [4, 0]]))
D(tf.sets.union(I, [[3, 9], [4, 0]]))
D(tf.sets.difference(I, [[3, 9], [4, 0]]))
D(tf.sets.difference(I, [[3, 9], [4, 0]], aminusb=False))
tf.sets.union(I, [[3, 9], [4, 0]]).dense_shape
D(tf.sets.union(C([["b", "a"]]), C([["c", "a"]])), "")
D(tf.sets.intersection(tf.sparse.from_dense(I), tf.sparse.from_dense(I[::-1])))
tf.sets.size(tf.sparse.from_dense([[1, 2], [3, 0], [4, 4]]))
D(tf.sets.intersection(I[None], I[None, :, :2]))
""",
    "boxes": r"""
tf.image.non_max_suppression_padded(boxes, scores, 4, 0.5, pad_to_max_output_size=True)
tf.image.non_max_suppression_padded(C(boxes), C(scores), 4, 0.5, 0.5)
tf.image.non_max_suppression_padded(boxes[None], scores[None], 4, 0.5, 0.5, True)
tf.image.non_max_suppression_overlaps(overlaps, [0.9, 0.8, 0.7, 0.95], 3, 0.5, 0.1)
tf.image.combined_non_max_suppression(boxes[None, :, None] / 3.5, both, 3, 5, 0.5, 0.35)
combined(boxes[None, :, None], both, 2, 5, 0.5, 0.3, True, False)
tf.image.combined_non_max_suppression(per_class, both, 3, 4, 0.5)
""",
    "sequences": r"""
single(one, steps)
single(None, {"z": IO.FixedLenSequenceFeature([3], tf.float32, allow_missing=True)})
D(single({"v": IO.VarLenFeature(tf.int64)}, None)[0]["v"])
single({"v": IO.RaggedFeature(tf.int64)}, None)
D(single(None, {"w": IO.VarLenFeature(tf.string)})[1]["w"], "")
single(None, {"w": IO.RaggedFeature(tf.string)})[1]["w"].to_tensor("")
batch(one, steps)
batch(None, steps)
IO.decode_compressed(C([zlib.compress(b"abc")]), "ZLIB")
IO.decode_compressed(C(gzip.compress(b"abc")), compression_type="GZIP")
IO.decode_compressed("abc")
sequence.SerializeToString()
sequence.context.feature["n"].int64_list.value[0]
sequence.feature_lists.feature_list["a"].feature[1].int64_list.value[0]
tf.train.SequenceExample.FromString(sequence.SerializeToString()).SerializeToString()
""",
}
