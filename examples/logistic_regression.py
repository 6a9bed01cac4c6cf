"""Train a logistic regression on handwritten digits.

    python examples/logistic_regression.py --epochs 30

The model is one Dense layer from 64 pixels to the probabilities of ten digits. The test
accuracy is about 97 %.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import digits


def main(arguments=None):
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    (x_train, y_train), (x_test, y_test) = digits.load_data()

    model = toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=optimizers.Adam(learning_rate=0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(x_train, y_train, batch_size=32, epochs=options.epochs)

    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "logistic_regression.keras")
    history.plot(options.output / "logistic_regression.svg")
    print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
