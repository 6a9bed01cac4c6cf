"""The namespace `keras.ops.numpy`: the functions of `toolkit.ops` that no other has."""

from toolkit import ops
from toolkit.definitions.namespaces import on_first_use
from toolkit.ops.keras_modules import MODULE_OF

# `remainder` is no function of Keras; `vectorize` is defined on a higher level.
__all__ = [
    "vectorize",  # noqa: F822
    *sorted(
        name
        for name, value in vars(ops).items()
        if getattr(value, "__module__", "").startswith("toolkit.ops.")
        and name not in {"remainder", *MODULE_OF}
    ),
]


__getattr__, __dir__ = on_first_use(__name__, {"toolkit.ops": __all__})
