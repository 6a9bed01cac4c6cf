"""Train on one task, freeze the base, train a new head, then fine-tune."""

import numpy as np

import toolkit as keras
from toolkit import layers


def strokes(count, seed=0):
    """Return 12 x 12 images of strokes, directions (4), and whether they slant."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(0, 0.2, (count, 12, 12, 1)).astype("float32")
    kind = rng.integers(0, 4, count)
    for i, image in enumerate(images[..., 0]):
        along, at = np.arange(2, 10), rng.integers(3, 9)
        rows, columns = [(at, along), (along, at), (along, along), (along, 11 - along)][
            kind[i]
        ]
        image[rows, columns] += 0.6
    return images, kind, kind >= 2


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(8)
    x, kind, slanted = strokes(2000)
    x_test, kind_test, slanted_test = strokes(400, seed=1)

    base = keras.Sequential(
        [
            keras.Input(shape=(12, 12, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalMaxPooling2D(),
        ],
        name="base",
    )
    first = keras.Sequential([base, layers.Dense(4, activation="softmax")])
    first.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    first.fit(x, kind, epochs=5, verbose=0)
    print(f"directions: {first.evaluate(x_test, kind_test, verbose=0)[1]:.3f}")

    base.trainable = False
    inputs = keras.Input(shape=(12, 12, 1))
    outputs = layers.Dense(1, activation="sigmoid")(base(inputs, training=False))
    second = keras.Model(inputs, outputs)
    second.compile(
        keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"]
    )
    before = [w.copy() for w in base.get_weights()]
    second.fit(x[:400], slanted[:400], epochs=15, verbose=0)
    assert all(
        np.array_equal(a, b) for a, b in zip(before, base.get_weights(), strict=True)
    )

    base.trainable = True
    second.compile(
        keras.optimizers.Adam(0.001), "binary_crossentropy", metrics=["accuracy"]
    )
    second.fit(x[:400], slanted[:400], epochs=10, verbose=0)
    accuracy = second.evaluate(x_test, slanted_test, verbose=0)[1]
    print(f"slanted or not, after fine-tuning: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.95
