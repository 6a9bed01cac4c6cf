"""Train on handwritten digits in several processes, with data parallelism.

    python examples/distributed.py
    toolkit run --processes 2 examples/distributed.py

Each process computes its rows of every batch. Each batch is divided into four parts for
any number of processes, so the weights have the same bits with one process and with
two. The test accuracy is about 98 %.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import distribution, layers
from toolkit.datasets import digits

BATCH = 32


def build_model():
    """Return a model from pixels, (batch, 8, 8) in [0, 16], to probabilities."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            # The statistics use the rows of all processes.
            layers.BatchNormalization(momentum=0.9),
            layers.Dropout(0.2),
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
    parallel = distribution.DataParallel(shards=4)
    with parallel.scope():
        (x_train, y_train), (x_test, y_test) = digits.load_data()
        model = build_model()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        # Every process receives all arrays and the global batch size.
        history = model.fit(x_train, y_train, BATCH, epochs=options.epochs)
        _, accuracy = model.evaluate(x_test, y_test, verbose=0)

    if parallel.is_chief:  # one process writes files
        options.output.mkdir(parents=True, exist_ok=True)
        model.save(options.output / "distributed.keras")
        history.plot(options.output / "distributed.svg")
        print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
