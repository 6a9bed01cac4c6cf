"""One forward call of a small MLP, eager and as a graph, beside Keras and torch.

    python benchmarks/mlp_forward.py --peer-python ../peers/bin/python

The model is Flatten, Dense(128, relu), Dense(10) on images: (60, 28, 28). `numpy` is
the bare arithmetic, the least that the call can cost with the same matrix product.
"""

from harness import Candidate, main

CASES = ["forward 60x28x28"]


def images():
    """The batch, float32."""
    import numpy as np

    return np.random.default_rng(0).random((60, 28, 28), dtype="float32")


def build(keras):
    """The model in toolkit or in Keras: the code is the same."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def with_numpy(case):
    """The arithmetic without any framework."""
    import numpy as np

    random, x = np.random.default_rng(0), images()
    w = random.standard_normal((784, 128), dtype="float32")
    v = random.standard_normal((128, 10), dtype="float32")
    b, c = np.zeros(128, "float32"), np.zeros(10, "float32")
    return lambda: np.maximum(x.reshape(60, 784) @ w + b, 0) @ v + c


def with_toolkit(case):
    """The call of the model."""
    import toolkit

    model, x = build(toolkit), toolkit.ops.convert_to_tensor(images())
    return lambda: model(x)


def with_function(case):
    """The call of the model as a graph."""
    import toolkit

    model, x = toolkit.function(build(toolkit)), images()
    x = toolkit.ops.convert_to_tensor(x)
    return lambda: model(x)


def with_keras(case):
    """The call of the model; its variables are not watched."""
    import keras
    import torch

    model, x = build(keras), torch.tensor(images())

    def call():
        with torch.no_grad():
            return model(x)

    return call


def with_keras_jax(case):
    """The call of the model, and the wait for its result."""
    import keras

    model, x = build(keras), keras.ops.convert_to_tensor(images())
    return lambda: model(x).block_until_ready()


def with_torch(case):
    """torch.nn with the same layers."""
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    x = torch.tensor(images())

    def call():
        with torch.no_grad():
            return model(x)

    return call


CANDIDATES = (
    Candidate("numpy", with_numpy),
    Candidate("toolkit", with_toolkit),
    Candidate("toolkit function", with_function),
    Candidate("keras on torch", with_keras, True, {"KERAS_BACKEND": "torch"}),
    Candidate("keras on jax", with_keras_jax, True, {"KERAS_BACKEND": "jax"}),
    Candidate("torch", with_torch, True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
