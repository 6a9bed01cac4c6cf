"""Compress images of digits to eight numbers, and reconstruct them.

    python examples/autoencoder.py --epochs 40

The script compares the error with the error of principal components, the best linear
code of the same size. The errors are about 0.10 and 0.16 for pixels from 0 to 1. The
plot shows digits above their reconstructions.
"""

import argparse
from pathlib import Path

import numpy as np

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import digits

CODE = 8
BATCH = 32


def build_encoder():
    """Return a model from (batch, 8, 8, 1) pixels in [0, 1] to (batch, CODE) codes."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(CODE),
        ],
        name="encoder",
    )


def build_decoder():
    """Return a model from (batch, CODE) codes to (batch, 8, 8, 1) pixels in [0, 1]."""
    return toolkit.Sequential(
        [
            toolkit.Input((CODE,)),
            layers.Dense(128, activation="relu"),
            layers.Dense(4 * 4 * 64, activation="relu"),
            layers.Reshape((4, 4, 64)),
            layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ],
        name="decoder",
    )


def principal_components(x_train, x_test):
    """Reconstruct the test images, (n, 8, 8, 1), from CODE principal components."""
    rows = x_train.reshape(len(x_train), -1)
    mean = rows.mean(axis=0)
    axes = np.linalg.svd(rows - mean, full_matrices=False)[2][:CODE]
    centered = x_test.reshape(len(x_test), -1) - mean
    return (centered @ axes.T @ axes + mean).reshape(x_test.shape)


def error(reconstructed, images):
    """Return the root of the mean squared error of a pixel in [0, 1]."""
    return float(np.sqrt(np.mean((reconstructed - images) ** 2)))


def grid(images, reconstructed, columns=16, rows=4):
    """Return one image: rows of images above their reconstructions, with grey lines."""
    pairs = np.stack([images, reconstructed], 1)[: rows * columns, :, :, :, 0]
    pairs = np.pad(pairs, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=0.4)
    height, width = rows * 2 * 9, columns * 9
    pairs = pairs.reshape(rows, columns, 2, 9, 9).transpose(0, 2, 3, 1, 4)
    return pairs.reshape(height, width, 1).repeat(6, 0).repeat(6, 1)


def main(arguments=None):
    """Train the model, print its error on the test images, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    (x_train, _), (x_test, _) = digits.load_data()
    x_train, x_test = (x[..., None].astype("float32") / 16 for x in (x_train, x_test))

    model = toolkit.Sequential([build_encoder(), build_decoder()])
    steps = options.epochs * -(-len(x_train) // BATCH)
    schedule = optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(optimizers.Adam(schedule), "mse")
    model.fit(x_train, x_train, batch_size=BATCH, epochs=options.epochs)

    reconstructed = model.predict(x_test, verbose=0)
    baseline = principal_components(x_train, x_test)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "autoencoder.keras")
    toolkit.utils.save_img(
        options.output / "autoencoder.png", grid(x_test, reconstructed)
    )
    print(
        f"test error {error(reconstructed, x_test):.4f} per pixel; "
        f"of principal components {error(baseline, x_test):.4f}"
    )
    return model


if __name__ == "__main__":
    main()
