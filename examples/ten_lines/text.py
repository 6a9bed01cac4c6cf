"""Predict the next character of Python source code, in ten lines."""

import os

import numpy as np

import toolkit as tk

tk.utils.set_random_seed(0)
codes = np.fromfile(os.__file__, "uint8") % 128
lines = np.lib.stride_tricks.sliding_window_view(codes, 41)[::8]
recurrent = tk.layers.GRU(128, return_sequences=True)
model = tk.Sequential(
    [tk.layers.Embedding(128, 32), recurrent, tk.layers.Dense(128, "softmax")]
)
model.compile(tk.optimizers.Adam(5e-3), "sparse_categorical_crossentropy")
model.fit(lines[:, :-1], lines[:, 1:], epochs=5, validation_split=0.1)
