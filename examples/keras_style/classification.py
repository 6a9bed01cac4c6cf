"""Classify points of three interleaved spirals with a dense network."""

import numpy as np

import toolkit as keras
from toolkit import layers


def spirals(count, classes=3, seed=0):
    """Return the points of each spiral, and the index of their spiral."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    radius = rng.uniform(0.1, 1.0, count)
    angle = 4.0 * radius + labels * 2 * np.pi / classes + rng.normal(0, 0.1, count)
    points = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)
    return points.astype("float32"), labels


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(1)
    x_train, y_train = spirals(2000)
    x_test, y_test = spirals(500, seed=1)
    model = keras.Sequential(
        [
            keras.Input(shape=(2,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.1),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=64,
        epochs=30,
        validation_split=0.1,
        callbacks=[keras.callbacks.EarlyStopping(patience=10, mode="min")],
        verbose=0,
    )
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.9
