"""The `backend` of preprocessing layers, as in `self.backend.numpy.flip`."""

from __future__ import annotations

from typing import Any

from toolkit import ops, random, settings
from toolkit.core.variable import Variable
from toolkit.errors import unknown_choice


class LayerBackend:
    """Operations that code written for Keras expects in `layer.backend`.

    Keras uses another backend in TensorFlow pipelines. This package uses one backend
    for all data, so `set_backend` accepts only that one.
    """

    core = math = numpy = ops
    random = random
    Variable = Variable

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name)

    @property
    def name(self) -> str:
        """Return the name of the backend, as in `toolkit.config.backend()`."""
        return settings.backend()

    _backend = name

    def set_backend(self, backend: str) -> None:
        """Check that `backend` is the current one.

        Raises:
            ArgumentError: it is another one.
        """
        if backend != self.name:
            raise unknown_choice("layer.backend.set_backend", backend, (self.name,))

    def reset(self) -> None:
        """Return to the backend of the process, which is always in use."""
