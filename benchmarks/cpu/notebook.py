"""Call of a small TensorFlow notebook network: eager and as a function.

    python benchmarks/cpu/notebook.py --peer-python ../peers/tensorflow/bin/python

The same code runs on toolkit, by `toolkit.compat.tensorflow`, and on TensorFlow: 60
images of 28 x 28, a hidden layer of 128, dropout, 10 scores.
"""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import Candidate, main

OURS, THEIRS = "toolkit.compat.tensorflow", "tensorflow"


def make_network(tf):
    """Build the notebook's network, as a user writes it."""

    class Network(tf.keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.flatten = tf.keras.layers.Flatten(input_shape=(28, 28))
            self.dense_1 = tf.keras.layers.Dense(128, activation="relu")
            self.dropout = tf.keras.layers.Dropout(0.2)
            self.dense_2 = tf.keras.layers.Dense(10)

        def call(self, x):
            x = self.flatten(x)
            x = self.dense_1(x)
            x = self.dropout(x)
            return self.dense_2(x)

    return Network()


def call(module, traced, case):
    """Return a call of the network on the images."""
    tf = import_module(module)
    pictures = tf.random.uniform([int(case.split()[0]), 28, 28])
    network = make_network(tf)
    function = tf.function(network) if traced else network
    function(pictures)
    return lambda: function(pictures)


CANDIDATES = (
    Candidate("toolkit function", partial(call, OURS, True)),
    Candidate("toolkit eager", partial(call, OURS, False)),
    Candidate("TensorFlow function", partial(call, THEIRS, True), peer=True),
    Candidate("TensorFlow eager", partial(call, THEIRS, False), peer=True),
)

if __name__ == "__main__":
    main(__doc__, ("60 pictures",), CANDIDATES)
