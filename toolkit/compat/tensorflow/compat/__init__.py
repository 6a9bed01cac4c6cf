"""`tf.compat`: TensorFlow 1's names in `v1`, those of 2 in `v2`, also to import."""

import sys

from toolkit.compat import tensorflow as v2
from toolkit.compat.tensorflow import v1

for _name, _module in (("v1", v1), ("v2", v2)):
    sys.modules[f"{__name__}.{_name}"] = _module
