"""The namespace `keras.ops.nn`: functions for neural networks."""

from toolkit import ops
from toolkit.definitions.namespaces import lazy_namespace

# Modules of `toolkit.ops` whose functions are included, and a few names of other
# modules.
_MODULES = """
    activation attention blocks conv loss normalization pool softmax
""".split()
_OTHERS = ("multi_hot", "one_hot", "polar", "sigmoid")
_LATE = ("ctc_decode", "ctc_loss")

__all__ = sorted(
    name
    for name, value in vars(ops).items()
    if getattr(value, "__module__", "").removeprefix("toolkit.ops.") in _MODULES
    or name in _OTHERS
)
__all__ += _LATE


__getattr__, __dir__ = lazy_namespace(__name__, {"toolkit.ops": __all__})
