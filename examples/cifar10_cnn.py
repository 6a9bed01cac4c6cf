"""Train a small convolutional network on CIFAR-10.

    python examples/cifar10_cnn.py --epochs 50
    python examples/cifar10_cnn.py --data digits --epochs 10

CIFAR-10 (170 MB) is downloaded at the first use. The digits are part of the package and
are enlarged to the same shape; the accuracy is about 98 % after ten epochs.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import cifar10, digits

BATCH = 64


def load_data(name):
    """Return (x_train, y_train), (x_test, y_test); uint8 images: (n, 32, 32, 3)."""
    if name == "cifar10":
        return cifar10.load_data()
    return tuple(
        (15 * x[..., None].repeat(4, 1).repeat(4, 2).repeat(3, 3), y)
        for x, y in digits.load_data()
    )


def build_model():
    """Return a model from pixels, (batch, 32, 32, 3) in [0, 255], to probabilities."""
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
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="batches per epoch; default: all")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--data", choices=["cifar10", "digits"], default="cifar10")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    (x_train, y_train), (x_test, y_test) = load_data(options.data)
    if options.steps:
        count = options.steps * BATCH
        x_train, y_train = x_train[:count], y_train[:count]

    model = build_model()
    model.summary()
    model.compile(
        optimizer=optimizers.RMSprop(learning_rate=1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(x_train, y_train, batch_size=BATCH, epochs=options.epochs)

    _, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "cifar10_cnn.keras")
    history.plot(options.output / "cifar10_cnn.svg")
    print(f"test accuracy {accuracy:.4f} on {options.data}")
    return model


if __name__ == "__main__":
    main()
