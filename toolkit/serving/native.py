"""Native libraries as what is served."""

from __future__ import annotations

from typing import Any

from toolkit.errors import UnsupportedError
from toolkit.export.native.loading import NativeModel, NativeTensor
from toolkit.serving.servable import Arrays, Servable
from toolkit.serving.tensors import TensorSpec


class NativeServable(Servable):
    """A native library, which needs no compiler.

    Args:
        model: what `toolkit.load_native` has loaded.
        batch_size: the most rows that are computed together; of the sizes that the
            library has, the largest up to it counts, or else the smallest.
        one_size: as for a ModelServable.

    Raises:
        UnsupportedError: the library keeps states, or has tensors without a batch.
    """

    platform = "toolkit_native"

    def __init__(
        self, model: NativeModel, batch_size: int = 32, one_size: bool = False
    ) -> None:
        if model.is_stateful:
            raise UnsupportedError(
                "serve: the library keeps states: an answer would depend on "
                "those before"
            )
        sizes = [n for n in model.batches if n <= batch_size] or model.batches[:1]
        super().__init__(sizes[-1:] if one_size else sizes)
        self.takes_whole_batches = model.takes_whole_batches
        if self.takes_whole_batches:
            self.allowed_rows = model.batches
        self.model = model
        self.inputs = tuple(map(_spec_of, model.inputs))
        self.outputs = tuple(map(_spec_of, model.outputs))

    def run(self, arrays: Arrays) -> list[Any]:
        """The outputs of the library; see `Servable.run`."""
        found = self.model.predict(list(arrays) if len(arrays) > 1 else arrays[0])
        return found if isinstance(found, list) else [found]


def _spec_of(tensor: NativeTensor) -> TensorSpec:
    if tensor.shape[:1] != (None,) or None in tensor.shape[1:]:
        raise UnsupportedError(
            f"serve: expected the batch as the first axis of {tensor.name!r}; received "
            f"{tensor.shape}"
        )
    return TensorSpec(tensor.name, tensor.dtype, tensor.shape)
