"""The networks of `outcomes.py`: each takes `keras`, toolkit or Keras itself.

Each comes back as a `Lesson`: a compiled model, and what it is to learn. They are
small, and have between them the layers whose weights start in a way of their own, what
draws noise, and the optimizers.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

ROWS, CLASSES, WORDS = 256, 4, 60


@dataclass(frozen=True)
class Lesson:
    """A compiled model, inputs and targets, and how often it sees them."""

    model: Any
    inputs: Any
    targets: Any
    epochs: int = 4


@lru_cache(maxsize=1)
def vectors():
    """Vectors (256, 20) of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 20)).astype("float32")
    return x, (x[:, :3].sum(1) + np.sin(3 * x[:, 3]) > 0).astype("int32")


@lru_cache(maxsize=1)
def images():
    """Images (256, 12, 12, 3), whose left half is brighter or darker in a channel."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 12, 12, 3)).astype("float32")
    y = rng.integers(0, CLASSES, ROWS)
    for image, label in zip(x, y, strict=True):
        image[:, :6, label % 3] += 0.8 * (label // 2 * 2 - 1)
    return x, y.astype("int32")


@lru_cache(maxsize=1)
def texts():
    """Rows (256, 16) of words and zeros: whether a third of the words are below 20."""
    rng = np.random.default_rng(2)
    x = rng.integers(1, WORDS, (ROWS, 16)).astype("int32")
    lengths = rng.integers(4, 17, ROWS)
    x[np.arange(16) >= lengths[:, None]] = 0
    return x, (((0 < x) & (x < 20)).sum(1) > lengths / 3).astype("int32")


@lru_cache(maxsize=1)
def series():
    """Series (256, 10, 6), and their sums up to each step."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 10, 6)).astype("float32")
    return x, x.cumsum(1).astype("float32")


def classifying(keras, optimizer, data, *layers, epochs=4):
    """A stack of layers that ends with scores of classes."""
    x, y = data
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=str(x.dtype)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return Lesson(model, x, y, epochs)


def mlp(keras):
    """Dense layers with dropout and batch normalization."""
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
    """Weights of unit variance, noise that keeps it, and penalties."""
    layers, penalty = keras.layers, keras.regularizers.L1(1e-3)
    return classifying(
        *(keras, keras.optimizers.SGD(0.05, 0.9, nesterov=True), vectors()),
        layers.Dense(64, "selu", True, "lecun_normal", kernel_regularizer="l2"),
        layers.AlphaDropout(0.2),
        layers.GaussianNoise(0.2),
        layers.Dense(2, activity_regularizer=penalty),
    )


def decayed(keras):
    """Multiplied noise, layer normalization, clipped gradients and weight decay."""
    layers, optimizers = keras.layers, keras.optimizers
    return classifying(
        *(keras, optimizers.AdamW(3e-3, weight_decay=0.05, clipnorm=0.5), vectors()),
        layers.Dense(64, activation="swish"),
        layers.GaussianDropout(0.2),
        layers.LayerNormalization(),
        layers.Dense(2),
    )


def orthogonal(keras):
    """Rows that start at right angles."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Ftrl(0.1), vectors()),
        layers.Dense(64, activation="tanh", kernel_initializer="orthogonal"),
        layers.UnitNormalization(),
        layers.Dense(2),
    )


def he_normal(keras):
    """Weights that are normal, without their tails."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Adagrad(0.05), vectors()),
        layers.Dense(64, activation="elu", kernel_initializer="he_normal"),
        layers.RMSNormalization(),
        layers.Dense(2),
    )


def cnn(keras):
    """Augmented images, and separable convolutions."""
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
    """Convolutions in groups, a constraint, and slopes that are learned."""
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
    """Transposed convolutions."""
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
    """Masked words, read from both ends with dropout inside."""
    layers = keras.layers
    return classifying(
        *(keras, keras.optimizers.Adam(5e-3), texts()),
        layers.Embedding(WORDS, 16, mask_zero=True),
        layers.Bidirectional(layers.LSTM(16, dropout=0.1, recurrent_dropout=0.1)),
        layers.Dense(2),
    )


def summing(keras, optimizer, *layers):
    """A stack that ends with the sum of two columns of a series."""
    x, sums = series()
    model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
    model.compile(optimizer, "mse")
    return Lesson(model, x, sums[:, -1, :2])


def gru(keras):
    """Two recurrent layers of other kinds."""
    layers = keras.layers
    return summing(
        *(keras, keras.optimizers.Nadam(3e-3)),
        layers.GRU(24, return_sequences=True, dropout=0.1),
        layers.SimpleRNN(16),
        layers.Dense(2),
    )


def einsum(keras):
    """Kernels of which one axis is summed over, and those of which two are."""
    layers = keras.layers
    return summing(
        *(keras, keras.optimizers.Adam(5e-3)),
        layers.EinsumDense("abc,cde->abde", (None, 4, 8)),
        layers.EinsumDense("abde,def->abf", (None, 16), activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(2),
    )


def convlstm(keras):
    """Convolutions over time, of the quarters of images."""
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
    """A decoder that begins with the state of an encoder."""
    layers, (x, sums) = keras.layers, series()
    told, before = keras.Input(x.shape[1:]), keras.Input(x.shape[1:])
    _, *state = layers.LSTM(24, return_state=True)(told)
    y = layers.LSTM(24, return_sequences=True)(before, initial_state=state)
    model = keras.Model([told, before], layers.TimeDistributed(layers.Dense(6))(y))
    model.compile(keras.optimizers.Adam(5e-3), "huber")
    delayed = np.concatenate([0 * x[:, :1], x[:, :-1]], 1)
    return Lesson(model, [x, delayed], sums)


def transformer(keras, attention, optimizer, width=32):
    """Two blocks that attend to masked words."""
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
    """Attention with several heads."""
    heads = keras.layers.MultiHeadAttention
    return transformer(
        keras, lambda: heads(4, 8, dropout=0.1), keras.optimizers.Adam(2e-3)
    )


def grouped_attention(keras):
    """Attention whose heads share keys and values."""
    heads = keras.layers.GroupQueryAttention
    return transformer(
        keras, lambda: heads(8, 4, 2, dropout=0.1), keras.optimizers.Adafactor(0.02)
    )


def applied(keras, application):
    """A network of the applications, for enlarged images."""
    x, y = images()
    large = x[:64].repeat(3, 1).repeat(3, 2)[:, :32, :32]
    make = getattr(keras.applications, application)
    shape = large.shape[1:]
    model = make(weights=None, input_shape=shape, classes=CLASSES)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    return Lesson(model, 50 * large + 120, y[:64], epochs=2)


def efficient_net(keras):
    """EfficientNetB0: normal kernels, squeeze and excite, blocks left out at random."""
    return applied(keras, "EfficientNetB0")


def mobile_net(keras):
    """MobileNetV2."""
    return applied(keras, "MobileNetV2")


NETWORKS = {
    function.__name__: function
    for function in (
        *(mlp, selu, decayed, orthogonal, he_normal, cnn, grouped, autoencoder),
        *(lstm, gru, einsum, convlstm, translator, attention, grouped_attention),
        *(efficient_net, mobile_net),
    )
}
