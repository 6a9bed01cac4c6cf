"""Train a siamese network: a shared encoder decides whether two inputs are related."""

import numpy as np

import toolkit as keras
from toolkit import layers, ops


def pairs(count, seed=0):
    """Return pairs of noisy curves of five families, and whether the families agree."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 32)
    classes = rng.integers(0, 5, (2, count))
    same = rng.random(count) < 0.5
    classes[1][same] = classes[0][same]
    phases = rng.uniform(0, 2 * np.pi, (2, count, 1))
    curves = np.sin(2 * np.pi * (classes[..., None] + 1) * t + phases)
    curves += rng.normal(0, 0.1, curves.shape)
    labels = (classes[0] == classes[1]).astype("float32")
    return list(curves.astype("float32")[..., None]), labels


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(9)
    x_train, y_train = pairs(3000)
    x_test, y_test = pairs(500, seed=1)

    encoder = keras.Sequential(
        [
            keras.Input(shape=(32, 1)),
            layers.Conv1D(32, 5, activation="relu"),
            layers.Conv1D(32, 5, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16),
            layers.UnitNormalization(),
        ],
        name="encoder",
    )
    left = keras.Input(shape=(32, 1), name="left")
    right = keras.Input(shape=(32, 1), name="right")
    distance = layers.Lambda(
        lambda xs: ops.sum(ops.square(xs[0] - xs[1]), axis=-1, keepdims=True)
    )([encoder(left), encoder(right)])
    outputs = layers.Dense(1, activation="sigmoid")(distance)
    model = keras.Model([left, right], outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(0.005),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(x_train, y_train, epochs=10, batch_size=64, verbose=0)
    accuracy = model.evaluate(x_test, y_test, verbose=0)[1]
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.9
