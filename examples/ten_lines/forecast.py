"""Forecast carbon dioxide in the air of the next week from a year, in ten lines."""

import numpy as np

import toolkit as tk
from toolkit.datasets import co2

tk.utils.set_random_seed(0)
ppm = np.diff([value for value in co2.load_data()[1] if value == value])
past, future = np.lib.stride_tricks.sliding_window_view(ppm, 52)[:-1], ppm[52:]
model = tk.Sequential([tk.layers.Dense(32, "relu"), tk.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(past[:1500], future[:1500], epochs=20)
error = model.evaluate(past[1500:], future[1500:], verbose=0) ** 0.5
print("test error", error, "ppm; without a model", np.std(future[1500:]))
