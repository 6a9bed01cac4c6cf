"""Servable of a native library."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError
from toolkit.export.native.loading import NativeModel, NativeTensor
from toolkit.serving.servable import Arrays, Servable
from toolkit.serving.tensors import TensorSpec


class NativeServable(Servable):
    """Servable of a native library, which needs no compiler.

    Args:
        model: the result of `toolkit.load_native`.
        batch_size: the maximum batch size. It selects the largest size of the library
            up to this value, or else the smallest size.
        one_size: as for a ModelServable.

    Raises:
        UnsupportedError: the library is stateful, or has tensors without a batch axis.
    """

    platform = "toolkit_native"

    def __init__(
        self, model: NativeModel, batch_size: int = 32, one_size: bool = False
    ) -> None:
        if model.is_stateful:
            raise UnsupportedError(
                "serve: the library has states, so a response would depend on "
                "earlier requests"
            )
        sizes = [n for n in model.batches if n <= batch_size] or model.batches[:1]
        super().__init__(sizes[-1:] if one_size else sizes)
        self.takes_whole_batches = model.takes_whole_batches
        if self.takes_whole_batches:
            self.allowed_rows = model.batches
        self.model = model
        self.inputs = tuple(map(_tensor_spec, model.inputs))
        self.outputs = tuple(map(_tensor_spec, model.outputs))

    def run(self, arrays: Arrays) -> list[Any]:
        """Return the outputs of the library; see `Servable.run`."""
        outputs = self.model.predict(list(arrays) if len(arrays) > 1 else arrays[0])
        return outputs if isinstance(outputs, list) else [outputs]


def _tensor_spec(tensor: NativeTensor) -> TensorSpec:
    if tensor.shape[:1] != (None,) or None in tensor.shape[1:]:
        raise UnsupportedError(
            f"serve: expected the batch as the first axis of {tensor.name!r}; received "
            f"{tensor.shape}"
        )
    return TensorSpec(tensor.name, tensor.dtype, tensor.shape)
