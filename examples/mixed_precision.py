"""Train with mixed precision: compute in bfloat16 or float16, keep float32 weights.

    python examples/mixed_precision.py --policy mixed_float16

Values of 16 bits need half the memory, and are fast on GPUs. A loss scale keeps small
gradients in the range of float16. The optimizer increases it until gradients overflow,
and then decreases it. The script also trains the network in float32 for comparison.
Both have a test accuracy of about 99 %.
"""

import argparse
from pathlib import Path

import toolkit
from toolkit import layers, mixed_precision, optimizers
from toolkit.datasets import digits
from toolkit.pictures.curves import Curve, Panel, draw_curves

BATCH = 32


def build_model(policy):
    """Return a model from pixels, (batch, 8, 8) in [0, 16], to probabilities."""
    mixed_precision.set_global_policy(policy)
    try:
        return toolkit.Sequential(
            [
                toolkit.Input((8, 8, 1)),
                layers.Rescaling(1 / 16),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dropout(0.25),
                # Probabilities near 0 need the range and the precision of float32.
                layers.Dense(10, activation="softmax", dtype="float32"),
            ]
        )
    finally:
        mixed_precision.set_global_policy(None)


def train(policy, data, epochs, seed):
    """Return the trained model, its History, and its test accuracy."""
    toolkit.utils.set_random_seed(seed)
    (x_train, y_train), (x_test, y_test) = data
    model = build_model(policy)
    steps = epochs * -(-len(x_train) // BATCH)
    model.compile(
        # `compile` adds the loss scale to the optimizer if the policy is mixed_float16.
        optimizer=optimizers.Adam(optimizers.schedules.CosineDecay(2e-3, steps)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(x_train, y_train, batch_size=BATCH, epochs=epochs)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    return model, history, accuracy


def draw(losses):
    """Draw the losses by epoch for each policy."""
    curves = [
        Curve(policy, range(1, len(values) + 1), values, color, color == "second")
        for (policy, values), color in zip(
            losses.items(), ("first", "second"), strict=True
        )
    ]
    return draw_curves([Panel("loss", curves)], "loss by epoch")


def main(arguments=None):
    """Train with both policies, print the accuracies, and return the mixed model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    parser.add_argument(
        "--policy",
        choices=["mixed_bfloat16", "mixed_float16"],
        default="mixed_bfloat16",
    )
    options = parser.parse_args(arguments)

    data = digits.load_data()
    losses, accuracies = {}, {}
    for policy in ("float32", options.policy):
        model, history, accuracies[policy] = train(
            policy, data, options.epochs, options.seed
        )
        losses[policy] = history.history["loss"]
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "mixed_precision.keras")
    draw(losses).save(options.output / "mixed_precision.svg")
    results = [f"{value:.4f} in {policy}" for policy, value in accuracies.items()]
    print("test accuracy", "; ".join(reversed(results)))
    return model


if __name__ == "__main__":
    main()
