"""`tf.experimental`: its `numpy`."""

from toolkit.compat.tensorflow.experimental import numpy
