"""What layers of data share: they take numbers and nested lists for arrays."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import any_symbolic


class DataLayer(Layer):
    """Base of layers whose data may be a number or nested lists, in dicts, too.

    Lists of arrays are stacked.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], _PLAIN):
            args = (as_tensors(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)


_PLAIN = (list, tuple, dict, int, float)


def as_tensors(data: Any) -> Any:
    """A number or nested lists as a tensor; those in a dict as tensors each."""
    if isinstance(data, dict):
        return {name: as_tensors(value) for name, value in data.items()}
    if not isinstance(data, _PLAIN) or any_symbolic(data):
        return data
    return ops.convert_to_tensor(data)
