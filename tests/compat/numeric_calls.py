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
    return {**calls.names(tf), "gradients": gradients, "S": signals}


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
}
