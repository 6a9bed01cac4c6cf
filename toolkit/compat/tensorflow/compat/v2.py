"""TensorFlow 2's names, for `import toolkit.compat.tensorflow.compat.v2 as tf`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("toolkit.compat.tensorflow")
