"""Networks of `outcomes.py`: each takes `keras`, toolkit or Keras itself.

Each returns a `Lesson`: a compiled model with its training data. They are small.
Together they cover the layers with special initializers, the sources of noise, and the
optimizers.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

ROWS, CLASSES, WORDS = 256, 4, 60


@dataclass(frozen=True)
class Lesson:
    """A compiled model, inputs and targets, and the number of epochs."""

    model: Any
    inputs: Any
    targets: Any
    epochs: int = 4


@lru_cache(maxsize=1)
def vectors():
    """Return vectors (256, 20) of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 20)).astype("float32")
    return x, (x[:, :3].sum(1) + np.sin(3 * x[:, 3]) > 0).astype("int32")


@lru_cache(maxsize=1)
def images():
    """Return images (256, 12, 12, 3), labeled by a channel's left-right contrast."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 12, 12, 3)).astype("float32")
    y = rng.integers(0, CLASSES, ROWS)
    for image, label in zip(x, y, strict=True):
        image[:, :6, label % 3] += 0.8 * (label // 2 * 2 - 1)
    return x, y.astype("int32")


@lru_cache(maxsize=1)
def texts():
    """Return rows (256, 16) of words; the label: a third of the words are below 20."""
    rng = np.random.default_rng(2)
    x = rng.integers(1, WORDS, (ROWS, 16)).astype("int32")
    lengths = rng.integers(4, 17, ROWS)
    x[np.arange(16) >= lengths[:, None]] = 0
    return x, (((0 < x) & (x < 20)).sum(1) > lengths / 3).astype("int32")


@lru_cache(maxsize=1)
def series():
    """Return series (256, 10, 6), and their cumulative sums."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 10, 6)).astype("float32")
    return x, x.cumsum(1).astype("float32")


def classifying(keras, optimizer, data, *layers, epochs=4):
    """Build a stack of layers that ends with class scores."""
    x, y = data
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=str(x.dtype)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return Lesson(model, x, y, epochs)


def mlp(keras):
    """Build dense layers with dropout and batch normalization."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Adam(3e-3), vectors()),
        layers.Dense(64, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(64, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(2),
    )


def selu(keras):
    """Build unit-variance weights, noise that keeps the variance, and penalties."""
    layers, penalty = keras.layers, keras.regularizers.L1(1e-3)
    return classifying(
        *(keras, keras.optimizers.SGD(0.05, 0.9, nesterov=True), vectors()),
        layers.Dense(64, "selu", True, "lecun_normal", kernel_regularizer="l2"),
        layers.AlphaDropout(0.2),
        layers.GaussianNoise(0.2),
        layers.Dense(2, activity_regularizer=penalty),
    )


def decayed(keras):
    """Build multiplicative noise, layer normalization, clipping and weight decay."""
    layers, optimizers = keras.layers, keras.optimizers
    return classifying(
        *(keras, optimizers.AdamW(3e-3, weight_decay=0.05, clipnorm=0.5), vectors()),
        layers.Dense(64, activation="swish"),
        layers.GaussianDropout(0.2),
        layers.LayerNormalization(),
        layers.Dense(2),
    )


def orthogonal(keras):
    """Build a network with orthogonal initial rows."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Ftrl(0.1), vectors()),
        layers.Dense(64, activation="tanh", kernel_initializer="orthogonal"),
        layers.UnitNormalization(),
        layers.Dense(2),
    )


def he_normal(keras):
    """Build a network with truncated normal weights."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Adagrad(0.05), vectors()),
        layers.Dense(64, activation="elu", kernel_initializer="he_normal"),
        layers.RMSNormalization(),
        layers.Dense(2),
    )


def cnn(keras):
    """Build image augmentation and separable convolutions."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.RMSprop(2e-3), images()),
        layers.RandomFlip("vertical"),
        layers.RandomTranslation(0.1, 0.1),
        layers.Conv2D(16, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.SpatialDropout2D(0.1),
        layers.SeparableConv2D(24, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.DepthwiseConv2D(3),
        layers.GlobalAveragePooling2D(),
        layers.Dense(CLASSES),
    )


def grouped(keras):
    """Build grouped convolutions, a constraint, and learned slopes."""
    layers = keras.layers
    limit = keras.constraints.MaxNorm(1.0)
    return classifying(
        *(keras, keras.optimizers.Lion(5e-4), images()),
        layers.Conv2D(16, 3, padding="same", kernel_constraint=limit),
        layers.GroupNormalization(4),
        layers.PReLU(),
        layers.AveragePooling2D(2),
        layers.Conv2D(16, 3, groups=2, activation="mish"),
        layers.Flatten(),
        layers.Dense(CLASSES),
    )


def autoencoder(keras):
    """Build transposed convolutions."""
    layers, (x, _) = keras.layers, images()
    options = {"padding": "same", "activation": "relu"}
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            layers.Conv2D(16, 3, 2, **options),
            layers.Conv2DTranspose(16, 3, 2, **options),
            layers.Conv2D(3, 3, padding="same"),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), "mae")
    return Lesson(model, x, x)


def lstm(keras):
    """Build a bidirectional LSTM on masked words, with recurrent dropout."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Adam(5e-3), texts()),
        layers.Embedding(WORDS, 16, mask_zero=True),
        layers.Bidirectional(layers.LSTM(16, dropout=0.1, recurrent_dropout=0.1)),
        layers.Dense(2),
    )


def summing(keras, optimizer, *layers):
    """Build a stack that ends with the sum of two columns of a series."""
    x, sums = series()
    model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
    model.compile(optimizer, "mse")
    return Lesson(model, x, sums[:, -1, :2])


def gru(keras):
    """Build two other kinds of recurrent layers."""
    layers = keras.layers
    return summing(
        *(keras, keras.optimizers.Nadam(3e-3)),
        layers.GRU(24, return_sequences=True, dropout=0.1),
        layers.SimpleRNN(16),
        layers.Dense(2),
    )


def einsum(keras):
    """Build kernels with one and with two contracted axes."""
    layers = keras.layers
    return summing(
        *(keras, keras.optimizers.Adam(5e-3)),
        layers.EinsumDense("abc,cde->abde", (None, 4, 8)),
        layers.EinsumDense("abde,def->abf", (None, 16), activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(2),
    )


def convlstm(keras):
    """Build convolutions over time, on the quarters of images."""
    layers, (x, y) = keras.layers, images()
    quarters = x.reshape(ROWS, 2, 6, 2, 6, 3).transpose(0, 1, 3, 2, 4, 5)
    return classifying(
        *(keras, keras.optimizers.Adamax(5e-3)),
        (quarters.reshape(ROWS, 4, 6, 6, 3), y),
        layers.ConvLSTM2D(6, 3, dropout=0.1),
        layers.GlobalMaxPooling2D(),
        layers.Dense(CLASSES),
    )


def translator(keras):
    """Build a decoder that starts with the state of an encoder."""
    layers, (x, sums) = keras.layers, series()
    target, before = keras.Input(x.shape[1:]), keras.Input(x.shape[1:])
    _, *state = layers.LSTM(24, return_state=True)(target)
    y = layers.LSTM(24, return_sequences=True)(before, initial_state=state)
    model = keras.Model([target, before], layers.TimeDistributed(layers.Dense(6))(y))
    model.compile(keras.optimizers.Adam(5e-3), "huber")
    delayed = np.concatenate([0 * x[:, :1], x[:, :-1]], 1)
    return Lesson(model, [x, delayed], sums)


def transformer(keras, attention, optimizer, width=32):
    """Build two blocks with attention to masked words."""
    layers, (x, y) = keras.layers, texts()
    words = keras.Input(x.shape[1:], dtype="int32")
    h = layers.Embedding(WORDS, width, mask_zero=True)(words)
    for _ in range(2):
        h = layers.LayerNormalization()(h + attention()(h, h))
        inner = layers.Dense(2 * width, activation="gelu")(h)
        added = layers.Dropout(0.1)(layers.Dense(width)(inner))
        h = layers.LayerNormalization()(h + added)
    model = keras.Model(words, layers.Dense(2)(layers.GlobalAveragePooling1D()(h)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return Lesson(model, x, y)


def attention(keras):
    """Build multi-head attention."""
    heads = keras.layers.MultiHeadAttention
    return transformer(
        keras, lambda: heads(4, 8, dropout=0.1), keras.optimizers.Adam(2e-3)
    )


def grouped_attention(keras):
    """Build attention whose heads share keys and values."""
    heads = keras.layers.GroupQueryAttention
    return transformer(
        keras, lambda: heads(8, 4, 2, dropout=0.1), keras.optimizers.Adafactor(0.02)
    )


def applied(keras, application):
    """Build a network of the applications, for enlarged images."""
    x, y = images()
    large = x[:64].repeat(3, 1).repeat(3, 2)[:, :32, :32]
    make = getattr(keras.applications, application)
    shape = large.shape[1:]
    model = make(weights=None, input_shape=shape, classes=CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    return Lesson(model, 50 * large + 120, y[:64], epochs=2)


def efficient_net(keras):
    """Build EfficientNetB0: normal kernels, squeeze and excite, stochastic depth."""
    return applied(keras, "EfficientNetB0")


def mobile_net(keras):
    """Build MobileNetV2."""
    return applied(keras, "MobileNetV2")


NETWORKS = {
    function.__name__: function
    for function in (
        *(mlp, selu, decayed, orthogonal, he_normal, cnn, grouped, autoencoder),
        *(lstm, gru, einsum, convlstm, translator, attention, grouped_attention),
        *(efficient_net, mobile_net),
    )
}
