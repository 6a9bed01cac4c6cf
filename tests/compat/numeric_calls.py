"""Calls of special functions, signals and losses, as in `calls`; see the fixtures.

`gradients(f, *xs)` is the gradient of the sum of f with respect to each x.
"""

import numpy as np

from tests.compat import calls


def names(tf):
    """What the calls may use."""

    def gradients(function, *values):
        xs = [tf.constant(value) for value in values]
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = tf.nest.map_structure(tf.reduce_sum, function(*xs))
        return tape.gradient(y, xs)

    signals = np.sin(np.arange(96, dtype="float32") ** 1.3).reshape(2, 48)
    return {
        **calls.names(tf),
        "gradients": gradients,
        "S": signals,
        "inverse_window": tf.signal.inverse_stft_window_fn(4),
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
}
