"""`tf.TensorArray`: tensors that are written individually, and stacked."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.arguments import dtype_name, extents
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, TraceError
from toolkit.type_aliases import TensorLike


def _static_size(size: Tensor | int) -> int:
    """Return the static number of tensors."""
    if size is None:
        return 0
    if isinstance(size, Tensor) and size.static_value() is None:
        raise TraceError(
            "TensorArray: expected a known size; received a traced tensor. For a "
            "loop of unknown length, use a tensor as a loop variable, and write to "
            "it by tf.tensor_scatter_nd_update"
        )
    return int(size)


class TensorArray:
    """Tensors by their index, each written once.

    Args:
        dtype: of the tensors.
        size: their number, static also in a trace; 0 by default.
        dynamic_size: whether the array grows for an index beyond `size`.
        clear_after_read: whether a tensor can be read only once; True by default.
        infer_shape: whether all must have one shape.
        element_shape: this shape, with None for any extent.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> array = tf.TensorArray(tf.float32, size=3)
        >>> for i in tf.range(3):
        ...     array = array.write(i, tf.cast(i, tf.float32) ** 2)
        >>> array.stack().numpy().tolist()
        [0.0, 1.0, 4.0]
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        name: str | None = None,
    ) -> None:
        self.dtype: str | None = dtype_name(dtype)
        self.dynamic_size: bool = bool(dynamic_size)
        self.element_shape: tuple[Any, ...] | None = (
            None if element_shape is None else tuple(element_shape)
        )
        self._clears, self._has_one_shape = clear_after_read is not False, infer_shape
        self._tensors: list[Tensor | None] = [None] * _static_size(size)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Write the tensor at a static index; return the array."""
        if isinstance(index, Tensor) and index.static_value() is None:
            raise TraceError(
                "TensorArray.write: expected a known index; received a traced "
                "tensor, for example from a loop of unknown length. Use a tensor as "
                "a loop variable, and write to it by tf.tensor_scatter_nd_update"
            )
        i, x = int(index), convert(value, self.dtype)
        shape = self.element_shape
        if shape is None and self._has_one_shape:
            shape = next((t.shape for t in self._tensors if t is not None), None)
        fits = shape is None or (
            len(shape) == x.ndim
            and all(n in (None, m) for m, n in zip(x.shape, shape, strict=True))
        )
        if not fits:
            raise ShapeError(
                f"TensorArray.write: expected shape {shape}; received {tuple(x.shape)}"
            )
        if self.dynamic_size and i >= len(self._tensors):
            self._tensors += [None] * (i + 1 - len(self._tensors))
        if not 0 <= i < len(self._tensors):
            raise ArgumentError(
                f"TensorArray.write: expected an index in [0, {len(self._tensors)}); "
                f"received {i}"
            )
        self._tensors[i] = x
        return self

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """Return the tensor at an index."""
        x = self._tensors[int(index)]
        if x is None:
            raise ArgumentError(
                f"TensorArray.read: element {int(index)} was not written, or it was "
                "read before (see clear_after_read)"
            )
        if self._clears:
            self._tensors[int(index)] = None
        return x

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of tensors."""
        return convert(len(self._tensors))

    def _read_all(self) -> list[Tensor]:
        written = [x for x in self._tensors if x is not None]
        if not written:
            raise ArgumentError("TensorArray: expected a tensor to be written first")
        # As in TensorFlow, a missing tensor is zero.
        zeros = ops.zeros_like(written[0])
        return [zeros if x is None else x for x in self._tensors]

    def stack(self, name: str | None = None) -> Tensor:
        """Stack all tensors in the order of their indices."""
        return ops.stack(self._read_all())

    def concat(self, name: str | None = None) -> Tensor:
        """Concatenate all tensors."""
        return ops.concatenate(self._read_all())

    def gather(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """Stack the tensors at some indices."""
        return ops.take(self.stack(), indices, 0)

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """Return the array with the rows of a tensor."""
        self._tensors = list(ops.unstack(convert(value, self.dtype)))
        return self

    def split(
        self, value: TensorLike, lengths: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Return the array with the parts of a tensor that have these lengths."""
        sizes = extents(lengths)
        rows = convert(value, self.dtype)
        if sum(sizes) != rows.shape[0]:
            raise ShapeError(
                f"TensorArray.split: expected lengths that add up to {rows.shape[0]}; "
                f"received {sizes}"
            )
        self._tensors = list(ops.split(rows, list(accumulate(sizes))[:-1], 0))
        return self

    def scatter(
        self, indices: TensorLike, value: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Write the rows of a tensor at indices."""
        for index, row in zip(extents(indices), convert(value), strict=True):
            self.write(index, row)
        return self

    def identity(self) -> TensorArray:
        """Return the array."""
        return self

    def mark_used(self) -> None:
        """Do nothing."""
