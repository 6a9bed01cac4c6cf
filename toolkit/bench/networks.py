"""Networks of the benchmarks; `keras` is toolkit or Keras itself.

The functions return compiled models, except `mlp`, which is only called.
"""

from __future__ import annotations

from typing import Any

TEXT_LENGTH, WORDS = 80, 10_000
CONTEXT, VOCABULARY, WIDTH, HEADS = 128, 512, 128, 4


def cifar_cnn(keras: Any) -> Any:
    """Return the well-known small CNN: (batch, 32, 32, 3) to 10 probabilities."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.RMSprop(1e-4), "categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def mnist_mlp(keras: Any) -> Any:
    """Return an MLP with two wide hidden layers: (batch, 784) to 10 probabilities."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def tiny_mlp(keras: Any) -> Any:
    """Return a tiny MLP whose step is only overhead: (batch, 16) to 1."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Dense(32, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(), "mse")
    return model


def mlp(keras: Any) -> Any:
    """Return a small image classifier, not compiled: (batch, 28, 28) to 10 logits."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def lstm(keras: Any) -> Any:
    """Return a text classifier: (batch, TEXT_LENGTH) words to one probability."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((TEXT_LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, 128),
            layers.LSTM(128),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(), "binary_crossentropy", metrics=["accuracy"])
    return model


def gpt(keras: Any) -> Any:
    """Return a two-block transformer: (batch, CONTEXT) tokens to logits of the next."""
    layers = keras.layers

    class Embed(keras.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.tokens = layers.Embedding(VOCABULARY, WIDTH)
            self.positions = layers.Embedding(CONTEXT, WIDTH)

        def call(self, x: Any) -> Any:
            return self.tokens(x) + self.positions(keras.ops.arange(CONTEXT))

    tokens = keras.Input((CONTEXT,), dtype="int32")
    x = Embed()(tokens)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x = layers.add([x, attention(y, y, use_causal_mask=True)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = layers.add([x, layers.Dense(WIDTH)(y)])
    x = layers.LayerNormalization()(x)
    model = keras.Model(tokens, layers.Dense(VOCABULARY)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss)
    return model


def resnet(keras: Any) -> Any:
    """Return a ResNet of three blocks with batch norm: (batch, 32, 32, 3) to 10."""
    layers = keras.layers

    def convolve(x: Any, filters: int, kernel: int, stride: int = 1) -> Any:
        x = layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    images = keras.Input((32, 32, 3))
    x = layers.Activation("relu")(convolve(images, 16, 3))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = layers.Activation("relu")(convolve(x, filters, 3, stride))
        y = convolve(y, filters, 3)
        shortcut = x if stride == 1 else convolve(x, filters, 1, stride)
        x = layers.Activation("relu")(layers.add([y, shortcut]))
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(images, layers.Dense(10, activation="softmax")(x))
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def conv_stack(keras: Any, width: int, depth: int) -> Any:
    """Return `depth` convolutions of `width` channels: (batch, 16, 16, width) to 10."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((16, 16, width)),
            *(
                layers.Conv2D(width, 3, padding="same", activation="relu")
                for _ in range(depth)
            ),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(), "sparse_categorical_crossentropy")
    return model
