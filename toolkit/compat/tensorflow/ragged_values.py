"""The values of ragged rows: tensors, strings, or nested rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.composites import Composite
from toolkit.core.strings import StringTensor as CoreStringTensor, is_string
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.type_aliases import Array, TensorLike


def as_values(values: TensorLike) -> Any:
    """Convert to the values of rows."""
    if isinstance(values, (StringTensor, Tensor, Composite)):
        return values
    is_texts = isinstance(values, np.ndarray) and values.dtype.kind in "OSU"
    if is_texts or is_string(values) or isinstance(values, CoreStringTensor):
        return StringTensor(values)
    return convert(values)


def count_values(values: Any) -> int:
    """Return the number of values."""
    return int(values.shape[0])


def static_integers(numbers: Any, argument: str) -> Array:
    """Return static integers as an array of int64, or of int32 for an int32 tensor."""
    if isinstance(numbers, (Tensor, Variable)):
        values = ops.convert_to_tensor(numbers).static_value()
        if values is None:
            raise NeedsValues(f"RaggedTensor with {argument} that are computed")
        return values if values.dtype in ("int32", "int64") else values.astype("int64")
    return np.asarray(numbers).astype("int64")


def gather_values(values: TensorLike, indices: TensorLike) -> Any:
    """Gather values along the first axis, in the shape of the indices."""
    if isinstance(values, Composite):
        return gather_rows(values, indices)
    if isinstance(values, StringTensor):
        return values[indices]
    return ops.take(values, indices, 0)


def gather_rows(rows: Any, indices: TensorLike) -> Any:
    """Gather rows by their indices."""
    firsts, lengths = rows.splits[:-1][indices], rows.lengths[indices]
    flat_indices = [np.arange(first, first + n) for first, n in zip(firsts, lengths)]  # noqa: B905
    result = type(rows).from_row_lengths(
        gather_values(rows.values, concatenate_indices(flat_indices)), lengths
    )
    result.uniform_row_length = rows.uniform_row_length
    return result


def concatenate_indices(indices: Sequence[Any]) -> Array:
    """Concatenate index arrays; the result is int64 also for an empty list."""
    return np.concatenate([np.zeros(0, "int64"), *indices])


def reshape_values(values: TensorLike, shape: tuple[int, ...]) -> Any:
    """Reshape a tensor or strings."""
    if isinstance(values, StringTensor):
        return StringTensor(np.asarray(values).reshape(shape))
    return ops.reshape(values, shape)


def to_padding(array: Any, padding: Any) -> Any:
    """Return the padding as an element of an array: a string as bytes."""
    value = np.asarray(as_values(padding))
    return value[()] if array.dtype == object else value.astype(array.dtype)


def unpadded_lengths(array: Any, padding: Any) -> Array:
    """Return the length of each row without its padding."""
    differs = np.asarray(array != padding, bool)
    is_filled = np.any(differs.reshape(*array.shape[:2], -1), axis=2)
    after = np.argmax(np.flip(is_filled, 1), axis=1)
    return np.where(np.any(is_filled, axis=1), array.shape[1] - after, 0)


def append_padding(values: Any, fill: Any) -> Any:
    """Append one value, which serves as the padding."""
    inner_shape = tuple(values.shape)[1:]
    if isinstance(values, StringTensor):
        text = b"" if fill is None else np.asarray(StringTensor(fill))[()]
        filling = np.full((1, *inner_shape), text, object)
        return StringTensor(np.concatenate([np.asarray(values), filling]))
    one = ops.cast(0 if fill is None else fill, values.dtype)
    return ops.concatenate([values, ops.broadcast_to(one, (1, *inner_shape))], 0)
