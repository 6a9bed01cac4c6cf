"""Forecast the next value of a noisy wave from the last 24: convolution, then GRU."""

import numpy as np

import toolkit as keras
from toolkit import layers

STEPS = 24


def windows(series):
    """Return every window of the series with the value after it."""
    x = np.lib.stride_tricks.sliding_window_view(series[:-1], STEPS)[..., None]
    return x.astype("float32"), series[STEPS:].astype("float32")


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(4)
    rng = np.random.default_rng(0)
    t = np.arange(2500)
    series = np.sin(t / 7) + 0.5 * np.sin(t / 19) + rng.normal(0, 0.05, t.size)
    x_train, y_train = windows(series[:2000])
    x_test, y_test = windows(series[2000:])

    inputs = keras.Input(shape=(STEPS, 1))
    x = layers.Conv1D(16, 5, padding="causal", activation="relu")(inputs)
    x = layers.GRU(24, return_sequences=True)(x)
    x = layers.GRU(24)(x)
    outputs = layers.Dense(1)(x)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="mse")
    model.fit(
        x_train,
        y_train,
        epochs=8,
        batch_size=32,
        validation_data=(x_test, y_test),
        callbacks=[keras.callbacks.ReduceLROnPlateau(patience=2)],
        verbose=0,
    )
    forecast = model.predict(x_test, verbose=0)[:, 0]
    error = float(np.sqrt(np.mean((forecast - y_test) ** 2)))
    naive = float(np.sqrt(np.mean((x_test[:, -1, 0] - y_test) ** 2)))
    print(f"error: {error:.3f}; of repeating the last value: {naive:.3f}")
    return error / naive


if __name__ == "__main__":
    assert main() < 0.7
