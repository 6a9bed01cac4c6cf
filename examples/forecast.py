"""Forecast carbon dioxide in the air for a year, week by week, from two years.

    python examples/forecast.py --epochs 20

The inputs are changes, not levels, so the network can forecast levels that the training
data does not contain. The training data ends in 1990, and the test data starts there.
The error is about 0.7 ppm. The error of the last year plus its growth is 1.0 ppm.
"""

import argparse
from pathlib import Path

import numpy as np

import toolkit
from toolkit import layers, optimizers
from toolkit.datasets import co2
from toolkit.pictures.curves import Curve, Panel, draw_curves

PAST, AHEAD = 104, 52
BATCH = 32


def read_series():
    """Return the weeks and the values in ppm, without gaps, both (weeks,)."""
    weeks, ppm = co2.load_data()
    is_finite = np.isfinite(ppm)
    numbers = np.arange(len(ppm))
    return weeks, np.interp(numbers, numbers[is_finite], ppm[is_finite]).astype(
        "float32"
    )


def windows(series):
    """Return past, (n, PAST, 1), and future, (n, AHEAD), minus the current value."""
    segments = np.lib.stride_tricks.sliding_window_view(series, PAST + AHEAD)
    changes = segments - segments[:, PAST - 1 : PAST]
    return changes[:, :PAST, None], changes[:, PAST:]


def repeat_last_year(past):
    """Repeat the last year, plus its growth over the year before."""
    past = past[:, :, 0]
    growth = past[:, -1:] - past[:, -1 - AHEAD : -AHEAD]
    return past[:, -AHEAD:] + growth


def build_model():
    """Return a model from (batch, PAST, 1) changes to (batch, AHEAD), in ppm."""
    return toolkit.Sequential(
        [
            toolkit.Input((PAST, 1)),
            layers.Conv1D(32, 8, strides=4, activation="relu"),
            layers.GRU(64),
            layers.Dense(AHEAD),
        ]
    )


def error(forecast, future):
    """Return the root of the mean squared error, in ppm."""
    return float(np.sqrt(np.mean((forecast - future) ** 2)))


def draw(past, future, forecast):
    """Draw one test window: the measurements, and the forecast from week 0."""
    measured = np.concatenate([past[:, 0], future])
    curves = [
        Curve("measured", np.arange(-PAST, AHEAD), measured, "first"),
        Curve("forecast", np.arange(AHEAD), forecast, "second", dashed=True),
    ]
    return draw_curves([Panel("change of CO2 in ppm", curves)], "forecast", "week")


def main(arguments=None):
    """Train the model, print the error after 1990, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    weeks, series = read_series()
    first_test = int(np.searchsorted(weeks, np.datetime64("1990-01-01")))
    x_train, y_train = windows(series[:first_test])
    x_test, y_test = windows(series[first_test:])

    model = build_model()
    steps = options.epochs * -(-len(x_train) // BATCH)
    schedule = optimizers.schedules.CosineDecay(3e-3, steps)
    model.compile(optimizers.Adam(schedule), "mse")
    model.fit(x_train, y_train, batch_size=BATCH, epochs=options.epochs)

    forecast = model.predict(x_test, verbose=0)
    repeated = error(repeat_last_year(x_test), y_test)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "forecast.keras")
    draw(x_test[-1], y_test[-1], forecast[-1]).save(options.output / "forecast.svg")
    print(f"test error {error(forecast, y_test):.4f} ppm; of repeating {repeated:.4f}")
    return model


if __name__ == "__main__":
    main()
