"""The well-known small convolutional network for CIFAR-10.

    python examples/cifar10_cnn.py --epochs 50
    python examples/cifar10_cnn.py --synthetic --epochs 2 --steps 20

The data set (170 MB) is downloaded on first use; with --synthetic nothing is.
"""

import argparse

import numpy as np

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import cifar10

BATCH = 256


def synthetic_data(n_train=5120, n_test=512):
    """Images like CIFAR-10's in shape: the colour of a noisy image is its class."""
    random = np.random.default_rng(0)
    colours = random.integers(96, 160, (10, 1, 1, 3))

    def images_of(labels):
        noise = random.integers(-64, 64, (len(labels), 32, 32, 3))
        return (colours[labels[:, 0]] + noise).astype("uint8"), labels

    labels = random.integers(0, 10, (n_train + n_test, 1)).astype("uint8")
    return images_of(labels[:n_train]), images_of(labels[n_train:])


def build_model():
    """Pixels from 0 to 255: (batch, 32, 32, 3) in, probabilities: (batch, 10) out."""
    return toolkit.Sequential(
        [
            toolkit.Input((32, 32, 3)),
            layers.Rescaling(1 / 255),
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


def main(arguments=None):
    """Train the model, print its accuracy on the test images, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--steps", type=int, help="batches per epoch; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--synthetic", action="store_true", help="download nothing")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    load_data = synthetic_data if options.synthetic else cifar10.load_data
    (x_train, y_train), (x_test, y_test) = load_data()
    if options.steps:
        x_train, y_train = (
            x_train[: options.steps * BATCH],
            y_train[: options.steps * BATCH],
        )

    model = build_model()
    model.summary()
    model.compile(
        optimizer=optimizers.RMSprop(learning_rate=1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(x_train, y_train, batch_size=BATCH, epochs=options.epochs)

    _, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)
    print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
