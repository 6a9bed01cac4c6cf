"""The namespace `keras.ops.numpy`: functions that no other namespace has."""

from toolkit import ops
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.ops.keras_modules import MODULE_OF

# Keras has no `remainder`; a module of a higher level defines `vectorize`.
__all__ = [
    "vectorize",  # noqa: F822
    *sorted(
        name
        for name, value in vars(ops).items()
        if getattr(value, "__module__", "").startswith("toolkit.ops.")
        and name not in {"remainder", *MODULE_OF}
    ),
]


__getattr__, __dir__ = lazy_namespace(__name__, {"toolkit.ops": __all__})
