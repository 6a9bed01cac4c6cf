"""The operations of `keras.ops.image`: toolkit has them by the same names."""

from keras_toolkit.namespace import forward_names
from toolkit.ops import image

__getattr__ = forward_names(globals(), image)
