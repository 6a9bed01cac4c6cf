"""The kernels of real models' training steps: taken from their programs, not run."""

from contextlib import contextmanager

import numpy as np

import toolkit
from tests.backends.cupy.host import HostDevice
from toolkit import layers
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend

SPATIAL, CHANNELS, LENGTH, WORDS, CLASSES = 16, 16, 12, 50, 10
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16", "float64")


class Recorder(HostDevice):
    """A device that does nothing, and keeps the kernels that it was to load."""

    def __init__(self):
        super().__init__(None, {})
        self.kernels = {}

    def empty(self, shape, dtype):
        array = super().empty(shape, dtype)
        array[...] = 0
        return array

    def load(self, kernels):
        self.kernels |= {k.name: k for k in kernels}
        return [lambda *arguments: None] * len(kernels)

    def product(self, gemm, pointers, workspace):
        return lambda pointers, scratch: None

    def dnn(self, signature, workspace):
        nothing = _Nothing()
        nothing.workspace = 0
        return nothing


class _Nothing:
    def __call__(self, pointers, scratch):
        pass


@contextmanager
def recording():
    """A backend for "gpu:0" that records; its device."""
    device, before = Recorder(), registry._factories["cupy"]
    registry.register_backend("cupy", lambda: CupyBackend(device, np))
    try:
        yield device
    finally:
        registry.register_backend("cupy", before)


def images(last):
    return layers.Input((SPATIAL, SPATIAL, last))


def cnn():
    """Convolutions, pooling, dropout and dense layers."""
    stack = [images(3)]
    for filters in (16, 32):
        stack += [
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
        ]
    stack += [layers.Flatten(), layers.Dense(32, "relu"), layers.Dropout(0.5)]
    return toolkit.Sequential([*stack, layers.Dense(CLASSES)])


def resnet():
    """A chain of bottleneck blocks, as many as make a step of many gradients."""
    x = inputs = images(3)
    x = layers.Conv2D(CHANNELS, 3, padding="same", use_bias=False)(x)
    for block in range(6):
        y, strides = x, 2 if block == 3 else 1
        for filters, size in ((8, 1), (8, 3), (32, 1)):
            y = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(y)
            y = layers.BatchNormalization()(y)
            y, strides = (y if filters == 32 else layers.ReLU()(y)), 1
        if x.shape != y.shape:
            x = layers.Conv2D(32, 1, 2 if block == 3 else 1, use_bias=False)(x)
            x = layers.BatchNormalization()(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return toolkit.Model(inputs, layers.Dense(CLASSES)(x))


def gpt():
    """Two blocks of causal attention and dense layers."""
    inputs = layers.Input((LENGTH,), dtype="int32")
    width = 64
    x = layers.Embedding(WORDS, width)(inputs)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(4, 16, dropout=0.1)(y, y, use_causal_mask=True)
        x = x + layers.Dropout(0.1)(y)
        y = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dropout(0.1)(layers.Dense(width)(y))
    x = layers.LayerNormalization()(x)
    return toolkit.Model(inputs, layers.Dense(WORDS)(x))


def recurrent():
    """An LSTM and a GRU over words."""
    stack = [layers.Input((LENGTH,), dtype="int32"), layers.Embedding(WORDS, 16)]
    stack += [layers.LSTM(24, return_sequences=True), layers.GRU(24)]
    return toolkit.Sequential([*stack, layers.Dense(CLASSES)])


# Each with the optimizer that it is often trained with.
MODELS = {
    "cnn": (cnn, lambda: toolkit.optimizers.Adam()),
    "resnet": (resnet, lambda: toolkit.optimizers.SGD(0.1, 0.9, weight_decay=1e-4)),
    "gpt": (gpt, lambda: toolkit.optimizers.AdamW(clipnorm=1.0)),
    "recurrent": (recurrent, lambda: toolkit.optimizers.RMSprop()),
}


def kernels_of(name, policy):
    """Every kernel of a model's training, evaluation and prediction, by its name."""
    make, optimizer = MODELS[name]
    rng = np.random.default_rng(0)
    before = toolkit.config.dtype_policy()
    toolkit.config.set_dtype_policy(policy)
    try:
        with recording() as device, toolkit.device("gpu:0"):
            model = make()
            shape = (8, *model.input_shape[1:])
            x = rng.random(shape, np.float32)
            if model.inputs[0].dtype == "int32":
                x = rng.integers(0, WORDS, shape).astype("int32")
            y = np.zeros((8, *model.output_shape[1:-1]), "int32")
            loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer(), loss, metrics=["accuracy"])
            model.fit(x, y, batch_size=8, epochs=1, verbose=0)
            model.evaluate(x, y, batch_size=8, verbose=0)
            model.predict(x, batch_size=8, verbose=0)
    finally:
        toolkit.config.set_dtype_policy(before)
    return device.kernels
