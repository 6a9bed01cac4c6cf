"""The operations of `keras.ops.nn`: toolkit has them by the same names."""

from keras_toolkit.namespace import forward_names
from toolkit import ops

__getattr__ = forward_names(globals(), ops)
