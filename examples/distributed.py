"""Handwritten digits on several processes: each computes its rows of every batch.

    python examples/distributed.py
    toolkit run --processes 2 examples/distributed.py

Each batch is cut into four parts, whatever the number of processes: the weights have
the same bits with one process and with two. It recognizes about 98 % of test images.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import distribution, layers
from toolkit.datasets import digits

BATCH = 32


def build_model():
    """Pixels from 0 to 16: (batch, 8, 8) in, probabilities: (batch, 10) out."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            # Over the rows of all processes, as everything is.
            layers.BatchNormalization(momentum=0.9),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main(arguments=None):
    """Train the model, print its accuracy on the test images, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    spread = distribution.DataParallel(shards=4)
    with spread.scope():
        (x_train, y_train), (x_test, y_test) = digits.load_data()
        model = build_model()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        # The arrays and the batch size are those of the whole, in every process.
        history = model.fit(x_train, y_train, BATCH, epochs=options.epochs)
        _, accuracy = model.evaluate(x_test, y_test, verbose=0)

    if spread.is_chief:  # files are written by one process
        options.output.mkdir(parents=True, exist_ok=True)
        model.save(options.output / "distributed.keras")
        history.plot(options.output / "distributed.svg")
        print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
