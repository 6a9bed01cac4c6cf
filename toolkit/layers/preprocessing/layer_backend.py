"""The `backend` of preprocessing layers: `self.backend.numpy.flip`, and so on."""

from __future__ import annotations

from typing import Any

from toolkit import ops, random, settings
from toolkit.core.variable import Variable
from toolkit.errors import unknown_choice


class LayerBackend:
    """The operations that code written for Keras finds in `layer.backend`.

    Keras uses another backend in pipelines of TensorFlow. All data of this package have
    one backend, so `set_backend` accepts that one only.
    """

    core = math = numpy = ops
    random = random
    Variable = Variable

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name)

    @property
    def name(self) -> str:
        """The name of the backend, as in `toolkit.config.backend()`."""
        return settings.backend()

    _backend = name

    def set_backend(self, backend: str) -> None:
        """Check that `backend` is the one in use.

        Raises:
            ArgumentError: it is another one.
        """
        if backend != self.name:
            raise unknown_choice("layer.backend.set_backend", backend, (self.name,))

    def reset(self) -> None:
        """Return to the backend of the process, which is always in use."""
