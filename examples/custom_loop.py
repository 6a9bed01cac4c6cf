"""Write a custom training loop: GradientTape, an optimizer, and a traced step.

    python examples/custom_loop.py --epochs 15

`train_step` is ordinary code. `@toolkit.function` compiles it to one graph, with the
same result. The test accuracy is about 98 %.
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import trange

import toolkit
from toolkit import layers, losses, metrics, optimizers
from toolkit.datasets import digits
from toolkit.pictures.curves import Curve, Panel, draw_curves

BATCH = 32


def main(arguments=None):
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15, help="default: %(default)s")
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
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss_function = losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizers.Adam(learning_rate=0.005)
    loss_metric = metrics.Mean()
    accuracy = metrics.SparseCategoricalAccuracy()

    @toolkit.function
    def train_step(x, y):
        with toolkit.GradientTape() as tape:
            logits = model(x, training=True)
            loss = loss_function(y, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        loss_metric.update_state(loss)

    @toolkit.function
    def test_step(x, y):
        accuracy.update_state(y, model(x, training=False))

    random = np.random.default_rng(options.seed)
    curve = []
    progress = trange(options.epochs, unit="epoch", disable=None)  # in a terminal
    for _ in progress:
        loss_metric.reset_state()
        order = random.permutation(len(x_train))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            train_step(x_train[rows], y_train[rows])
        curve.append(float(loss_metric.result()))
        progress.set_postfix(loss=f"{curve[-1]:.4f}")

    test_step(x_test, y_test)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "custom_loop.keras")
    epochs = range(1, options.epochs + 1)
    panel = Panel("loss", [Curve("training", epochs, curve, "first")])
    draw_curves([panel], "loss by epoch").save(options.output / "custom_loop.svg")
    print(f"test accuracy {float(accuracy.result()):.4f}")
    return model


if __name__ == "__main__":
    main()
