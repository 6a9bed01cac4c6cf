"""Handwritten forward pass of the small MLP for tf.function and jax.jit."""

from toolkit.bench.measure import repeat_call


def parameters():
    """Return kernels and biases of the two layers, as NumPy arrays."""
    import numpy as np

    random = np.random.default_rng(0)
    for shape in ((784, 128), (128, 10)):
        yield random.standard_normal(shape, dtype="float32") * 0.05
        yield np.zeros(shape[1], "float32")


def with_tensorflow(workload):
    """Return the seconds of a call of a tf.function."""
    import tensorflow as tf

    w, b, v, c = map(tf.Variable, parameters())
    x = tf.constant(workload.make_data()[0])

    @tf.function
    def forward(x):
        y = tf.nn.relu(tf.matmul(tf.reshape(x, (-1, 784)), w) + b)
        return tf.matmul(y, v) + c

    return repeat_call(lambda: forward(x))


def with_jax(workload):
    """Return the seconds of a call of a jax.jit function, including the wait."""
    import jax
    from jax import numpy as jnp

    weights = tuple(map(jnp.asarray, parameters()))
    x = jnp.asarray(workload.make_data()[0])

    @jax.jit
    def forward(weights, x):
        w, b, v, c = weights
        return jnp.maximum(x.reshape(-1, 784) @ w + b, 0) @ v + c

    return repeat_call(lambda: forward(weights, x).block_until_ready())
