"""TensorFlow 1's names, for `import toolkit.compat.tensorflow.compat.v1 as tf`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("toolkit.compat.tensorflow.v1")
