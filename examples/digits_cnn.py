"""Train a convolutional network on handwritten digits: a first example.

    python examples/digits_cnn.py --epochs 20

The data set is part of the package, so nothing is downloaded. The test accuracy is
about 99 %.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import digits

BATCH = 32


def build_model():
    """Return a model from pixels, (batch, 8, 8) in [0, 16], to probabilities."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main(arguments=None):
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    (x_train, y_train), (x_test, y_test) = digits.load_data()

    model = build_model()
    model.summary()
    steps = options.epochs * -(-len(x_train) // BATCH)
    model.compile(
        optimizer=optimizers.Adam(optimizers.schedules.CosineDecay(2e-3, steps)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(x_train, y_train, batch_size=BATCH, epochs=options.epochs)

    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "digits_cnn.keras")
    history.plot(options.output / "digits_cnn.svg")
    print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
