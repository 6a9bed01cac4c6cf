"""Compress images of bars to eight numbers and reconstruct them."""

import numpy as np

import toolkit as keras
from toolkit import layers


def bars(count, seed=0):
    """Return 16 x 16 images of one horizontal and one vertical bar."""
    rng = np.random.default_rng(seed)
    images = np.zeros((count, 16, 16, 1), "float32")
    for image, row, column in zip(
        images, *rng.integers(0, 14, (2, count)), strict=True
    ):
        image[row : row + 2] = 1.0
        image[:, column : column + 2] = 1.0
    return images


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(5)
    x_train, x_test = bars(2000), bars(200, seed=1)

    encoder = keras.Sequential(
        [
            keras.Input(shape=(16, 16, 1)),
            layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(8),
        ],
        name="encoder",
    )
    decoder = keras.Sequential(
        [
            keras.Input(shape=(8,)),
            layers.Dense(4 * 4 * 32, activation="relu"),
            layers.Reshape((4, 4, 32)),
            layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu"),
            layers.UpSampling2D(),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ],
        name="decoder",
    )
    autoencoder = keras.Sequential([encoder, decoder])
    autoencoder.compile(
        optimizer=keras.optimizers.Adam(0.003), loss="binary_crossentropy"
    )
    autoencoder.fit(x_train, x_train, epochs=12, batch_size=64, verbose=0)

    decoded = decoder.predict(encoder.predict(x_test, verbose=0), verbose=0)
    right = float(np.mean((decoded > 0.5) == (x_test > 0.5)))
    print(f"pixels drawn right: {right:.3f}")
    return right


if __name__ == "__main__":
    assert main() > 0.93
