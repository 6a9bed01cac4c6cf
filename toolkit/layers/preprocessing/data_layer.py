"""Common part of data layers: they accept numbers and nested lists as arrays."""

from __future__ import annotations

from typing import Any

from toolkit import ops, random, settings
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import any_symbolic


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


class DataLayer(Layer):
    """Base class of layers whose data can be numbers or nested lists, also in dicts.

    Lists of arrays are stacked.

    Attributes:
        backend: the operations under their Keras names: `backend.numpy.flip`,
            `backend.random.uniform`, `backend.cast`, `backend.name`.
    """

    backend: Any = LayerBackend()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], _PLAIN):
            args = (as_tensors(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    def _get_seed_generator(self, backend: str | None = None) -> Any:
        """Return the layer's `generator`, for subclasses written for Keras.

        Args:
            backend: the name of the backend in use, or None.
        """
        self.backend.set_backend(backend or self.backend.name)
        if not hasattr(self, "generator"):
            raise ArgumentError(
                f"{self.name}: expected the attribute `generator`, a SeedGenerator; "
                "set it in `__init__`"
            )
        return self.generator

    def convert_weight(self, weight: Any) -> Tensor:
        """Return a weight unchanged, for subclasses written for Keras.

        Args:
            weight: a weight, or an array.
        """
        return weight


_PLAIN = (list, tuple, dict, int, float)


def as_tensors(data: Any) -> Any:
    """Return a number or nested lists as a tensor; convert the entries of a dict."""
    if isinstance(data, dict):
        return {name: as_tensors(value) for name, value in data.items()}
    if not isinstance(data, _PLAIN) or any_symbolic(data):
        return data
    return ops.convert_to_tensor(data)
