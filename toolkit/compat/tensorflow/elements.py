"""Elements of data sets: tensors for users, arrays inside toolkit."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import data as core, dtypes
from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.sparse_tensor import SparseTensor, SparseTensorSpec
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.types import DType, TensorShape, as_dtype
from toolkit.core.strings import StringTensor as CoreStringTensor, is_string
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.data.structure import NoneSpec, map_leaves
from toolkit.data.views import View


class TensorSpec(core.TensorSpec):
    """The shape and dtype of a tensor; None is a dynamic extent.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.TensorSpec([None, 3], tf.int32).shape
        TensorShape([None, 3])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.dtype.kind
        dtype = dtypes.STRING if kind in "OSU" else self.dtype.name
        object.__setattr__(self, "dtype", as_dtype(dtype))
        if self.shape is not None:
            object.__setattr__(self, "shape", TensorShape(self.shape))

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """Return a spec with the shape and dtype of another one."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    def is_compatible_with(self, spec_or_tensor: Any) -> bool:
        """Return whether the dtypes and all static extents are equal."""
        other = spec_or_tensor
        if as_dtype(other.dtype) != self.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return TensorShape(self.shape).is_compatible_with(other.shape)

    def to_core(self) -> core.TensorSpec:
        """Return the spec as a `toolkit.data.TensorSpec`."""
        return core.TensorSpec(self.shape, self.dtype, self.name)


class RaggedTensorSpec(TensorSpec):
    """The shape and dtype of ragged rows.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.RaggedTensorSpec([2, None], tf.int32)
        RaggedTensorSpec(TensorShape([2, None]), tf.int32, 1, tf.int64)
    """

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = "float32",
        ragged_rank: int | None = None,
        row_splits_dtype: Any = "int64",
    ) -> None:
        super().__init__(shape, dtype)
        rank = max(0, len(self.shape or ()) - 1) if ragged_rank is None else ragged_rank
        object.__setattr__(self, "_facts", (rank, as_dtype(row_splits_dtype)))

    @property
    def ragged_rank(self) -> int:
        return int(vars(self)["_facts"][0])

    @property
    def row_splits_dtype(self) -> DType:
        return DType(vars(self)["_facts"][1])

    @classmethod
    def from_value(cls, value: RaggedTensor) -> RaggedTensorSpec:
        """Return the spec of ragged rows."""
        splits = value.splits.dtype
        return cls(value.shape, value.dtype, value.ragged_rank, splits)

    def __repr__(self) -> str:
        fields = (self.shape, self.dtype, self.ragged_rank, self.row_splits_dtype)
        return f"RaggedTensorSpec({', '.join(map(repr, fields))})"


class NoneTensorSpec:
    """The spec of None in an element."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoneTensorSpec)

    def __hash__(self) -> int:
        return hash(NoneTensorSpec)

    def __repr__(self) -> str:
        return "NoneTensorSpec()"


def to_tensor_spec(spec: core.TensorSpec) -> Any:
    """Return the spec of the tensor for a spec of toolkit."""
    if isinstance(spec, NoneSpec):
        return NoneTensorSpec()
    if isinstance(spec, SparseTensorSpec):
        return spec
    return TensorSpec(spec.shape, spec.dtype)


def as_tensors(element: Any) -> Any:
    """Convert the arrays of an element to tensors."""
    return map_leaves(as_tensor, element)


def as_tensor(value: Any) -> Any:
    """Convert a value of an element to a tensor."""
    # the most frequent case
    if type(value) is np.ndarray and value.dtype.kind in "fiub":
        return convert(value)
    if value is None or isinstance(value, (core.Dataset, SparseTensor)):
        return value
    is_array = isinstance(value, np.ndarray)
    # an object array can be empty
    if is_string(value) or is_array and value.dtype.kind == "O":
        return StringTensor(value)
    if isinstance(value, core.Ragged):
        return RaggedTensor(value.values, np.asarray(value.row_splits))
    return convert(value)


def as_numpy(element: Any) -> Any:
    """Convert an element to arrays, NumPy scalars and bytes."""

    def shown(value: object) -> Any:
        return StringTensor(value).numpy() if is_string(value) else value

    return map_leaves(shown, element)


def as_components(element: Any) -> Any:
    """Convert the tensors, numbers and lists of an element to arrays; strings to bytes.

    Numbers have the dtypes of their tensors, and lists are stacked.
    """
    return map_leaves(_as_component, element)


def _as_component(value: Any) -> Any:
    if isinstance(value, core.Dataset):
        return _unwrap_dataset(value)
    if isinstance(value, RaggedTensor):
        return value.as_data()
    if value is None or isinstance(value, core.Ragged):
        return value
    if isinstance(value, SparseTensor):
        return value
    if isinstance(value, (Tensor, Variable, CoreStringTensor)):
        return value.numpy()
    if not isinstance(value, np.ndarray) and hasattr(value, "__array__"):
        value = np.asarray(value)
    if is_string(value):
        return StringTensor(value).numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    return convert(value).numpy()


def element_of_result(result: Any) -> Any:
    """Convert the result of a user's function to an element.

    As in TensorFlow, a list is a tuple of components; a list in it is one tensor.
    """
    return as_components(tuple(result) if type(result) is list else result)


def as_plain(argument: Any) -> Any:
    """Convert tensors in an argument that is not an element to numbers and strings."""
    if isinstance(argument, core.Dataset):
        return _unwrap_dataset(argument)
    if isinstance(argument, (Tensor, Variable)):
        return argument.numpy()
    if isinstance(argument, CoreStringTensor):
        texts = np.frompyfunc(bytes.decode, 1, 1)(np.asarray(argument))
        return texts.tolist() if argument.ndim else texts
    if isinstance(argument, TensorSpec):
        return argument.to_core()
    if isinstance(argument, TensorShape):
        return list(argument)
    if isinstance(argument, DType):
        return argument
    if type(argument) in (list, tuple):
        return type(argument)(map(as_plain, argument))
    if type(argument) is dict:
        return {key: as_plain(value) for key, value in argument.items()}
    return argument


def _unwrap_dataset(dataset: core.Dataset) -> core.Dataset:
    """Return the underlying data set of toolkit for a data set of tensors."""
    return dataset.source if isinstance(dataset, View) else dataset
