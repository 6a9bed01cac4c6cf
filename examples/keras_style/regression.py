"""Predict a price from numbers and a category, with preprocessing inside the model."""

import numpy as np

import toolkit as keras
from toolkit import layers

KINDS = ["flat", "house", "farm"]


def houses(count, seed=0):
    """Return synthetic houses with their prices in thousands."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(30, 300, count)
    year = rng.integers(1900, 2025, count)
    kind = rng.integers(0, len(KINDS), count)
    price = 2.0 * area + 0.8 * (year - 1900) + np.array([0.0, 60.0, -40.0])[kind]
    price += rng.normal(0, 10, count)
    numbers = np.stack([area, year], axis=1).astype("float32")
    return {"numbers": numbers, "kind": kind[:, None]}, price.astype("float32")


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(2)
    x_train, y_train = houses(3000)
    x_test, y_test = houses(500, seed=1)

    normalization = layers.Normalization()
    normalization.adapt(x_train["numbers"])
    bins = layers.Discretization(bin_boundaries=[1945, 1970, 1990, 2010])

    numbers = keras.Input(shape=(2,), name="numbers")
    kind = keras.Input(shape=(1,), dtype="int64", name="kind")
    era = layers.CategoryEncoding(num_tokens=5, output_mode="one_hot")(
        bins(numbers[:, 1:])
    )
    features = layers.Concatenate()(
        [
            normalization(numbers),
            era,
            layers.CategoryEncoding(num_tokens=len(KINDS), output_mode="one_hot")(kind),
        ]
    )
    hidden = layers.Dense(32, activation="relu")(features)
    hidden = layers.Dense(32, activation="relu")(hidden)
    model = keras.Model({"numbers": numbers, "kind": kind}, layers.Dense(1)(hidden))

    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 200, 0.9)
    model.compile(
        optimizer=keras.optimizers.Adam(schedule), loss="huber", metrics=["mae"]
    )
    model.fit(x_train, y_train, batch_size=64, epochs=25, verbose=0)
    error = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["mae"]
    print(f"mean absolute error: {error:.1f} thousand")
    return error


if __name__ == "__main__":
    assert main() < 16
