"""Handwritten JAX networks of gpu_speed.py: one jit with donated buffers.

Batch norm keeps no moving averages, which favours JAX.
"""

from functools import partial
from math import prod

import jax
import numpy as np
from gpu_speed import CLASSES, DEPTH, HEADS, LENGTH, VOCABULARY, WIDTH
from jax import lax, nn, numpy as jnp

from toolkit.bench.networks import WORDS


class Weights:
    """Weights by name: created at first use, or given."""

    def __init__(self, values=None, dtype="float32"):
        self.is_new = values is None
        self.values = {} if values is None else values
        self.dtype = dtype
        self.rng = np.random.default_rng(0)

    def __call__(self, name, *shape, start=0.0):
        if self.is_new:
            array = np.full(shape, start, "float32")
            if len(shape) > 1:
                array = self.rng.standard_normal(shape, "float32")
                array *= prod(shape[:-1]) ** -0.5
            self.values[name] = array
        return jnp.asarray(self.values[name], self.dtype)


def dense(w, name, x, units):
    """Return a product with weights, and a bias."""
    return x @ w(f"{name}/w", x.shape[-1], units) + w(f"{name}/b", units)


def convolve(w, name, x, filters, size, stride=1, padding=None, bias=True):
    """Return a channels-last convolution."""
    kernel = w(f"{name}/w", size, size, x.shape[-1], filters)
    pads = [(size // 2, size // 2)] * 2 if padding is None else padding
    names = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, kernel, (stride, stride), pads, None, None, names)
    return y + w(f"{name}/b", filters) if bias else y


def pool(x, size, stride, padding="VALID"):
    """Return the maximum of each window."""
    window, steps = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, padding)


def normalise(w, name, x, axes, epsilon):
    """Normalize over axes to mean 0 and variance 1 in float32; scale and shift."""
    wide = x.astype("float32")
    centred = wide - wide.mean(axes, keepdims=True)
    y = centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + epsilon)
    scale, shift = w(f"{name}/g", x.shape[-1], start=1.0), w(f"{name}/s", x.shape[-1])
    return (y * scale + shift).astype(x.dtype)


def dropout(key, x, rate):
    """Set a fraction of the elements to zero."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def mnist_mlp(w, x, key):
    """Apply the network of `toolkit.bench.networks`; return logits."""
    x = nn.relu(dense(w, "a", x, 512))
    return dense(w, "c", nn.relu(dense(w, "b", x, 512)), 10)


def cifar_cnn(w, x, key):
    """Apply four convolutions and two dense layers, with dropout."""
    keys = jax.random.split(key, 3)
    for number, filters in enumerate((32, 64)):
        x = nn.relu(convolve(w, f"{number}/a", x, filters, 3))
        x = nn.relu(convolve(w, f"{number}/b", x, filters, 3, padding="VALID"))
        x = dropout(keys[number], pool(x, 2, 2), 0.25)
    x = nn.relu(dense(w, "dense", x.reshape(x.shape[0], -1), 512))
    return dense(w, "head", dropout(keys[2], x, 0.5), 10)


def resnet50(w, x, key):
    """Apply Keras's ResNet-50: the stride is in the first convolution of a block."""

    def normed(name, x, *shape):
        y = convolve(w, name, x, *shape, bias=False)
        return normalise(w, f"{name}/n", y, (0, 1, 2), 1e-5)

    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = pool(nn.relu(normed("stem", x, 64, 7, 2)), 3, 2, pads)
    for s, (filters, count, first) in enumerate(
        ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
    ):
        for number in range(count):
            name, stride = f"{s}.{number}", first if number == 0 else 1
            y = nn.relu(normed(f"{name}/a", x, filters, 1, stride))
            y = nn.relu(normed(f"{name}/b", y, filters, 3))
            y = normed(f"{name}/c", y, 4 * filters, 1)
            if number == 0:
                x = normed(f"{name}/d", x, 4 * filters, 1, stride)
            x = nn.relu(x + y)
    return dense(w, "head", x.mean((1, 2)), CLASSES)


def gpt2_small(w, x, key):
    """Apply GPT-2 small, without dropout."""
    batch, length = x.shape
    h = w("tokens", VOCABULARY, WIDTH)[x] + w("positions", LENGTH, WIDTH)[:length]
    by_cudnn = h.dtype == jnp.bfloat16 and jax.default_backend() == "gpu"
    attend = partial(
        nn.dot_product_attention,
        is_causal=True,
        implementation="cudnn" if by_cudnn else None,
    )
    for n in range(DEPTH):
        y = dense(w, f"{n}/in", normalise(w, f"{n}/1", h, -1, 1e-5), 3 * WIDTH)
        heads = y.reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        y = attend(*(heads[:, :, i] for i in range(3))).reshape(h.shape)
        h = h + dense(w, f"{n}/out", y, WIDTH)
        y = dense(w, f"{n}/up", normalise(w, f"{n}/2", h, -1, 1e-5), 4 * WIDTH)
        h = h + dense(w, f"{n}/down", nn.gelu(y, approximate=False), WIDTH)
    return dense(w, "head", normalise(w, "last", h, -1, 1e-5), VOCABULARY)


def lstm(w, x, key):
    """Apply a text classifier on the last state."""
    xs = dense(w, "in", w("words", WORDS, 128)[x], 512).swapaxes(0, 1)
    recurrent = w("recurrent", 128, 512)

    def cell(state, x):
        h, c = state
        i, f, g, o = jnp.split(x + h @ recurrent, 4, axis=1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        return (nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[0], 128), xs.dtype)
    (h, _), _ = lax.scan(cell, (zeros, zeros), xs)
    return dense(w, "head", h, 1)


NETWORKS = {f.__name__: f for f in (mnist_mlp, cifar_cnn, resnet50, gpt2_small, lstm)}


def loss_of(case, dtype, values, x, y, key):
    """Return the loss of a batch, in float32."""
    x = x.astype(dtype) if x.dtype == jnp.float32 else x
    outputs = NETWORKS[case](Weights(values, dtype), x, key).astype("float32")
    if case == "lstm":
        return jnp.mean(nn.softplus(outputs) - y * outputs)
    rows = nn.log_softmax(outputs)
    return -jnp.mean(jnp.take_along_axis(rows, y[..., None], -1))


def step(case, x, y, half):
    """Return a function that trains on one device batch, and one that waits.

    The optimizer is Adam with a rate of 1e-3. The second function returns the last
    loss.
    """
    new = Weights()
    x, y, key = jnp.asarray(x), jnp.asarray(y), jax.random.key(0)
    jax.eval_shape(partial(NETWORKS[case], new), x, key)
    values = {name: jnp.asarray(v) for name, v in new.values.items()}
    zeros = [jax.tree.map(jnp.zeros_like, values) for _ in range(2)]
    state = [(values, *zeros, jnp.zeros((), "int32"), jnp.zeros(()))]
    compute = partial(loss_of, case, "bfloat16" if half else "float32")

    @partial(jax.jit, donate_argnums=0)
    def train(state, x, y):
        values, m, v, count, _ = state
        random = jax.random.fold_in(key, count)
        loss, g = jax.value_and_grad(compute)(values, x, y, random)
        count = count + 1
        m = jax.tree.map(lambda m, g: m + (g - m) * 0.1, m, g)
        v = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, v, g)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        values = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), values, m, v
        )
        return values, m, v, count, loss

    def run():
        state[0] = train(state[0], x, y)

    return run, lambda: float(state[0][4])
