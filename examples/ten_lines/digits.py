"""Recognize handwritten digits, in ten lines."""

import toolkit as tk
from toolkit.datasets import digits

tk.utils.set_random_seed(0)
(x_train, y_train), (x_test, y_test) = digits.load_data()
dense = [tk.layers.Dense(64, "relu"), tk.layers.Dense(10, "softmax")]
model = tk.Sequential([tk.layers.Rescaling(1 / 16), tk.layers.Flatten(), *dense])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x_train, y_train, epochs=20)
model.save("digits.keras")
history.plot("digits.svg")
print("test accuracy", model.evaluate(x_test, y_test, verbose=0)[1])
